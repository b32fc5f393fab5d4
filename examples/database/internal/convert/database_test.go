// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ashlar-go/ashlar/examples/database/internal/convert"
)

// TestDatabases converts there and back. A new field that a function forgets ends up in the annotation, which is why the
// annotation is compared as well.
func TestDatabases(t *testing.T) {
	t.Parallel()
	c, err := convert.Databases()
	if err != nil {
		t.Fatal(err)
	}
	const rest = `"storage":{"size":"1000m","class":"fast"},"version":"17"`
	const said = `"observedGeneration":3,"readyReplicas":2,"version":"17","conditions":[{"type":"Ready","status":"True","reason":"Ready","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]`
	for name, row := range map[string]struct{ reason, old, new, back string }{
		"spec": {
			reason: "an old client asks for replicas",
			old:    `{"apiVersion":"db.example.com/v1alpha1","kind":"Database","metadata":{"name":"a"},"spec":{"replicas":2,` + rest + `},"status":{` + said + `}}`,
			new:    `{"apiVersion":"db.example.com/v1","kind":"Database","metadata":{"name":"a"},"spec":{"scalePolicy":{"replicas":2},` + rest + `},"status":{` + said + `}}`,
			back:   `{"apiVersion":"db.example.com/v1alpha1","kind":"Database","metadata":{"name":"a"},"spec":{"replicas":2,` + rest + `},"status":{` + said + `}}`,
		},
		"no status": {
			reason: "the API server asks about objects that have none",
			old:    `{"apiVersion":"db.example.com/v1alpha1","kind":"Database","metadata":{"name":"a"},"spec":{"replicas":2,` + rest + `}}`,
			new:    `{"apiVersion":"db.example.com/v1","kind":"Database","metadata":{"name":"a"},"spec":{"scalePolicy":{"replicas":2},` + rest + `}}`,
			back:   `{"apiVersion":"db.example.com/v1alpha1","kind":"Database","metadata":{"name":"a"},"spec":{"replicas":2,` + rest + `}}`,
		},
	} {
		up, err := c.Convert(t.Context(), []byte(row.old), "v1")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tree(t, []byte(row.new)), tree(t, up)); diff != "" {
			t.Errorf("%s, %s (-want +got):\n%s", name, row.reason, diff)
		}
		down, err := c.Convert(t.Context(), up, "v1alpha1")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tree(t, []byte(row.back)), tree(t, down)); diff != "" {
			t.Errorf("%s, back again (-want +got):\n%s", name, diff)
		}
	}

	full := `{"apiVersion":"db.example.com/v1","kind":"Database","metadata":{"name":"a"},"spec":{"scalePolicy":{"replicas":2,"minReadySeconds":5},` + rest + `},"status":{"phase":"Ready",` + said + `}}`
	down, err := c.Trial(t.Context(), []byte(full), "v1alpha1")
	if err != nil {
		t.Fatal(err)
	}
	if len(down.Kept) != 2 {
		t.Errorf("v1alpha1 has no place for %d values, want minReadySeconds and phase alone: %+v", len(down.Kept), down.Kept)
	}
	up, err := c.Convert(t.Context(), down.Object, "v1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tree(t, []byte(full)), tree(t, up)); diff != "" {
		t.Errorf("there and back (-want +got):\n%s", diff)
	}
}

func tree(t *testing.T, raw []byte) (out any) {
	t.Helper()
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return out
}
