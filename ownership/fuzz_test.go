// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"bytes"
	"testing"

	"github.com/ashlar-go/ashlar/ownership"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
)

// FuzzComparison declares one JSON tree and lets the server hold another: what was applied is Keep, additions in maps
// are Keep, a changed declared text is Update, and nothing panics, whatever managedFields say.
func FuzzComparison(f *testing.F) {
	f.Add([]byte(`{"replicas":2,"containers":[{"name":"a","env":[{"name":"E","value":"1"}]}]}`), []byte(`{"replicas":3}`), []byte(`{"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{}}}}}`))
	f.Add([]byte(`{"ports":[{"port":1},{"port":1,"protocol":"UDP"}],"args":[],"x":null,"y":{}}`), []byte(`{"ports":{}}`), []byte(`{"f:spec":{"f:args":{"v:\"a\"":{}}}}`))
	f.Add([]byte(`{"limits":{"memory":"1Gi","cpu":1},"data":{"a":"1"}}`), []byte(`{"limits":{"memory":"1024Mi","cpu":"1"},"data":{"a":"1000m"}}`), []byte(`null`))
	f.Add([]byte(`{"finalizers":["a","b"],"list":[1,2.5,true,[null]]}`), []byte(`[]`), []byte(`{"f:spec":{"i:0":{},"k:x":{},"v:":{}}}`))
	widget := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	s, err := ownership.New("fuzz", databaseKind, []ownership.Kind{{GroupVersionKind: widget}})
	if err != nil {
		f.Fatal(err)
	}
	owner := database()
	f.Fuzz(func(t *testing.T, declared, held, fields []byte) {
		var want, have any
		if json.Unmarshal(declared, &want) != nil || json.Unmarshal(held, &have) != nil {
			return
		}
		desired := object(widget, "team-a", "x")
		desired.Object["spec"] = want
		before, _ := json.Marshal(desired.Object)
		live := stored(t, s, owner, desired)
		verb := func(what string) ownership.Verb {
			d := only(t, plan(t, s, owner, objects(desired), objects(live), ownership.Policy{}))
			if d.Verb != ownership.Keep && d.Verb != ownership.Update {
				t.Fatalf("%s: got %s", what, d)
			}
			return d.Verb
		}
		if verb("as applied") != ownership.Keep {
			t.Errorf("what was applied differs from itself: %s", declared)
		}
		if m, ok := live.Object["spec"].(map[string]any); ok {
			m["\x00added"] = "by somebody"
			if verb("added") != ownership.Keep {
				t.Errorf("an undeclared field differs: %s", declared)
			}
			delete(m, "\x00added")
		}
		if spoil(live.Object["spec"]) && verb("spoiled") != ownership.Update {
			t.Errorf("a changed text is not seen: %s", declared)
		}
		live.Object["spec"] = have
		live.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: s.Manager(), Operation: metav1.ManagedFieldsOperationApply,
			APIVersion: "example.com/v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(fields))}})
		verb("anything")
		if after, _ := json.Marshal(desired.Object); !bytes.Equal(before, after) {
			t.Errorf("the declared object was changed from %s to %s", before, after)
		}
	})
}

// spoil changes the first text it finds under map keys to something no comparison may take for equal. Items of lists
// are left alone: a keyed list may hold an equal item behind the spoiled one.
func spoil(v any) bool {
	m, ok := v.(map[string]any)
	if !ok {
		return false
	}
	for k, e := range m {
		if s, ok := e.(string); ok {
			m[k] = s + " spoiled"
			return true
		}
		if spoil(e) {
			return true
		}
	}
	return false
}

// FuzzNote reads annotations that anybody may have edited.
func FuzzNote(f *testing.F) {
	for _, s := range []string{"example.com/v1,Database,team-a,orders", "v1,ConfigMap,,x", ",,,", "a/b/c,K,n,m", "v1,K,n,m,", "/,0,,0"} {
		f.Add(s)
	}
	s, err := ownership.New("fuzz", databaseKind, []ownership.Kind{{GroupVersionKind: configMapKind}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, note string) {
		child := configMap("x", label("ashlar-go.github.io/owner.fuzz", "u1"), annotation("ashlar-go.github.io/owner-ref.fuzz", note))
		ref, ok := ownership.OwnerOf(child)
		if ok && (ref.Name == "" || ref.Kind == "" || ref.Version == "") {
			t.Errorf("%q reads as %v", note, ref)
		}
		if n, ok := s.RequestFor(child); ok && n.Name == "" {
			t.Errorf("%q maps to %v", note, n)
		}
		s.Explain(database(), objects(child))
	})
}
