// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/ashlar-go/ashlar/statussync"
)

const goodSchema = `{
  "paths": {"/apis/shop.example.com/v1/namespaces/{namespace}/databases/{name}/status": {"get": {}, "patch": {}}},
  "components": {"schemas": {
    "com.example.shop.v1.Database": {
      "x-kubernetes-group-version-kind": [{"group": "shop.example.com", "version": "v1", "kind": "Database"}],
      "properties": {"status": {
        "default": {"observedGeneration": -1},
        "properties": {
          "observedGeneration": {}, "endpoint": {}, "replicas": {}, "shards": {}, "labels": {},
          "conditions": {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
        }
      }}
    }
  }}
}`

// checked runs Check with a schema and an answer to access reviews.
func checked(t *testing.T, document string, allowed func(attributes map[string]any) bool, namespaces ...string) ([]string, error) {
	t.Helper()
	s, _ := newServer(t)
	var asked []string
	c := interceptor.NewClient(s, interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.CreateOption) error {
			u := obj.(*unstructured.Unstructured)
			if u.GetKind() != "SelfSubjectAccessReview" {
				return errors.New("a write: " + u.GetKind())
			}
			at, _, err := unstructured.NestedMap(u.Object, "spec", "resourceAttributes")
			if err != nil {
				return err
			}
			raw, err := json.Marshal(at)
			if err != nil {
				return err
			}
			asked = append(asked, string(raw))
			return unstructured.SetNestedField(u.Object, allowed(at), "status", "allowed")
		},
	})
	var opts []statussync.Option
	if document != "" {
		opts = append(opts, statussync.WithOpenAPI(func(_ context.Context, gv schema.GroupVersion) ([]byte, error) {
			if gv != group {
				return nil, errors.New("another group")
			}
			if document == "unreachable" {
				return nil, errors.New("unreachable")
			}
			return []byte(document), nil
		}))
	}
	g, err := statussync.New(c, c, "m", opts...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := statussync.For[Payload](g, "main", &Database{}, mainOwns); err != nil {
		t.Fatal(err)
	}
	if _, err := statussync.For[struct{}](g, "other", &Database{}, statussync.Owns{Conditions: []string{"Backup"}}); err != nil {
		t.Fatal(err)
	}
	return asked, g.Check(t.Context(), namespaces...)
}

func yes(map[string]any) bool { return true }

func TestCheckIsQuietWhenAllIsWell(t *testing.T) {
	t.Parallel()
	asked, err := checked(t, goodSchema, yes)
	if err != nil {
		t.Error(err)
	}
	want := []string{ // once for both writers of the kind
		`{"group":"shop.example.com","resource":"databases","subresource":"status","verb":"patch"}`,
		`{"group":"shop.example.com","resource":"databases","verb":"get"}`,
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("reviews (-want +got):\n%s", diff)
	}
	asked, err = checked(t, "", func(at map[string]any) bool { return at["namespace"] == "a" || at["namespace"] == "b" }, "a", "b")
	if err != nil || len(asked) != 4 {
		t.Errorf("in two namespaces, without a schema: %v, %v", asked, err)
	}
}

func TestCheckFinds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason   string
		document string
		allowed  func(map[string]any) bool
		want     []string
	}{
		"no status subresource": {
			"a status write would answer 404", strings.Replace(goodSchema, "/status", "/scale", 1), yes,
			[]string{"no status subresource"},
		},
		"read-only status": {
			"patch is what is needed", strings.Replace(goodSchema, `, "patch": {}`, "", 1), yes,
			[]string{"no status subresource"},
		},
		"atomic list": {
			"writers would overwrite each other", strings.Replace(goodSchema, `"x-kubernetes-list-type": "map"`, `"x-kubernetes-list-type": "atomic"`, 1), yes,
			[]string{"status.conditions is not x-kubernetes-list-type: map keyed by type"},
		},
		"other key": {
			"two conditions of a type could exist", strings.Replace(goodSchema, `["type"]`, `["type", "status"]`, 1), yes,
			[]string{"keyed by type"},
		},
		"missing fields": {
			"the server would refuse or drop them", strings.Replace(strings.Replace(goodSchema, `"endpoint": {},`, "", 1), `"observedGeneration": {},`, "", 1), yes,
			[]string{"no status.endpoint", "no status.observedGeneration"},
		},
		"no default": {
			"kstatus would say Current", strings.Replace(goodSchema, `"default": {"observedGeneration": -1},`, "", 1), yes,
			[]string{"no default {observedGeneration: -1}"},
		},
		"a default that does not help": {
			"generation 1 would be observed", strings.Replace(goodSchema, `"observedGeneration": -1`, `"observedGeneration": 1`, 1), yes,
			[]string{"no default {observedGeneration: -1}"},
		},
		"no conditions": {
			"there is nowhere to write", strings.Replace(goodSchema, `"conditions"`, `"others"`, 1), yes,
			[]string{"no status.conditions"},
		},
		"no status": {"there is nowhere to write", strings.Replace(goodSchema, `"status": {
        "default"`, `"spec": {
        "default"`, 1), yes, []string{"its schema has no status"}},
		"no schema":   {"the document is of another group", strings.Replace(goodSchema, `"kind": "Database"`, `"kind": "Other"`, 1), yes, []string{"no schema of it"}},
		"unreachable": {"Check could not look", "unreachable", yes, []string{"read the OpenAPI v3 schema: unreachable"}},
		"no JSON":     {"Check could not look", "<html>", yes, []string{"read the OpenAPI v3 schema"}},
		"no right to write": {
			"the first Sync would fail", goodSchema, func(at map[string]any) bool { return at["verb"] != "patch" },
			[]string{"databases.shop.example.com/status: the verb patch is not allowed in all namespaces"},
		},
		"no right to read": {
			"the first conflict would fail", goodSchema, func(at map[string]any) bool { return at["verb"] != "get" },
			[]string{"databases.shop.example.com: the verb get is not allowed in all namespaces"},
		},
	} {
		_, err := checked(t, c.document, c.allowed)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s (%s): error = %v, want one with %q", name, c.reason, err, want)
			}
		}
	}
}

// References with siblings are wrapped in allOf.
func TestCheckFollowsReferences(t *testing.T) {
	t.Parallel()
	const document = `{
  "paths": {"/apis/shop.example.com/v1/namespaces/{namespace}/databases/{name}/status": {"patch": {}}},
  "components": {"schemas": {
    "root": {
      "x-kubernetes-group-version-kind": [{"group": "shop.example.com", "version": "v1", "kind": "Database"}],
      "properties": {"status": {"default": {"observedGeneration": -1}, "allOf": [{"$ref": "#/components/schemas/status"}]}}
    },
    "status": {"properties": {
      "observedGeneration": {}, "endpoint": {}, "replicas": {}, "shards": {}, "labels": {},
      "conditions": {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    }}
  }}
}`
	if _, err := checked(t, document, yes); err != nil {
		t.Error(err)
	}
	loop := strings.Replace(document, `{"properties": {
      "observedGeneration"`, `{"$ref": "#/components/schemas/status", "properties": {
      "observedGeneration"`, 1)
	if _, err := checked(t, loop, yes); err == nil || !strings.Contains(err.Error(), "no status") {
		t.Errorf("a reference to itself: %v", err)
	}
}

func TestCheckUnknownKind(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t)
	g := newGroup(t, s)
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "shop.example.com", Version: "v1", Kind: "Missing"})
	if _, err := statussync.For[struct{}](g, "main", u, statussync.Owns{Conditions: []string{"A"}}); err != nil {
		t.Fatal(err)
	}
	if err := g.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "shop.example.com/v1 Missing: the server does not serve it") {
		t.Errorf("error = %v", err)
	}
}
