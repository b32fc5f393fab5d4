// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ashlar-go/ashlar/reconciletest"
)

func widgets(t *testing.T, more ...reconciletest.Resource) *reconciletest.StrictServer {
	t.Helper()
	s, err := reconciletest.NewStrictServer(append([]reconciletest.Resource{
		{GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, Plural: "widgets"},
		{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Plural: "configmaps", NoStatus: true},
		{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, Plural: "namespaces", Cluster: true},
		{GroupVersionKind: schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, Plural: "jobs"},
	}, more...))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestStrictServerRules replays testdata/rules.txt, which a real API server passes too.
func TestStrictServerRules(t *testing.T) {
	t.Parallel()
	list, err := reconciletest.Rules()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 20 {
		t.Fatalf("%d scenarios, that cannot be all", len(list))
	}
	for _, s := range list {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			s.Run(t, widgets(t), "https://strict", "shop")
		})
	}
}

// FuzzStrictServer sends arbitrary bodies: whatever comes, the reply is an object or a status with its own code.
func FuzzStrictServer(f *testing.F) {
	for _, st := range []struct{ method, media, body string }{
		{http.MethodPatch, patchType, `[{"op":"add","path":"/metadata/finalizers/-","value":"x.io/a"},{"op":"move","from":"/spec","path":"/status"}]`},
		{http.MethodPatch, patchType, `[{"op":"copy","from":"","path":"/spec/x"},{"op":"remove","path":""}]`},
		{http.MethodPatch, mergeType, `{"metadata":5,"spec":null}`},
		{http.MethodPatch, mergeType, `[]`},
		{http.MethodPatch, applyType, "apiVersion: example.com/v1\nkind: Widget\nmetadata: {finalizers: 5}\n"},
		{http.MethodPut, jsonType, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"ownerReferences":[5]}}`},
		{http.MethodDelete, jsonType, `{"preconditions":{"uid":5}}`},
	} {
		f.Add(st.method, st.media, []byte(st.body))
	}
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	f.Fuzz(func(t *testing.T, method, media string, body []byte) {
		s, err := reconciletest.NewStrictServer([]reconciletest.Resource{{GroupVersionKind: kind, Plural: "widgets"}})
		if err != nil {
			t.Fatal(err)
		}
		const path = "https://strict/apis/example.com/v1/namespaces/shop/widgets"
		for _, r := range []struct{ method, url, media, body string }{
			{http.MethodPost, path, jsonType, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","finalizers":["x.io/b"]},"spec":{"l":[1]}}`},
			{method, path + "/a?fieldManager=m", media, string(body)},
			{http.MethodGet, path, "", ""},
		} {
			req, err := http.NewRequestWithContext(t.Context(), r.method, r.url, strings.NewReader(r.body))
			if err != nil {
				t.Skip()
			}
			req.Header.Set("Content-Type", r.media)
			resp, err := s.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			var reply struct {
				Kind string
				Code int
			}
			if err := json.NewDecoder(resp.Body).Decode(&reply); err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode >= 400 && (reply.Kind != "Status" || reply.Code != resp.StatusCode) {
				t.Errorf("%s: code %d with %+v", r.method, resp.StatusCode, reply)
			}
		}
	})
}
