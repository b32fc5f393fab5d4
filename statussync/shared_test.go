// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync_test

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/reconciletest"
	"github.com/ashlar-go/ashlar/statussync"
)

// Neither what a cache without deep copies hands out nor the live object read after a conflict is ever changed, in either
// representation, and what a result hands out is the caller's own.
func TestSharedObjectsAreNotChanged(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]client.Object{"typed": &Database{}, "unstructured": unstructuredKind()} {
		s, other := newServer(t, db(1, cond("Old", "True", "R"), cond("App", "True", "R")))
		shared := reconciletest.NewMutationDetector(other)
		g, err := statussync.New(s, shared, "database-operator")
		if err != nil {
			t.Fatal(err)
		}
		w, err := statussync.For[Payload](g, "main", kind, mainOwns)
		if err != nil {
			t.Fatal(err)
		}
		cached := func() client.Object {
			obj := kind.DeepCopyObject().(client.Object)
			if err := shared.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "db"}, obj); err != nil {
				t.Fatal(err)
			}
			return obj
		}
		first := cached()
		for n, endpoint := range []string{"x", "y", "y", "z"} {
			d := ready(1, endpoint)
			d.Conditions[0].Message = "\xff" // mended on its way out
			d.Status.Labels = map[string]string{"a": endpoint}
			if n%2 == 0 { // then something has to be removed before the apply
				applyAs(t, other, "rival", `{"conditions":[{"type":"App","status":"True","reason":"R","message":"","lastTransitionTime":"2026-09-01T12:00:00Z"}]}`)
			}
			for _, obj := range []client.Object{cached(), first} { // the second one is behind, which is a conflict or a live read
				if _, err := w.Plan(obj, d); err != nil {
					t.Fatal(err)
				}
				if r := sync_(t, w, obj, d); r.Object != nil {
					r.Object.SetLabels(map[string]string{"mine": "now"})
				}
			}
			statussync.Owners(cached())
			if _, err := w.TakeOver(t.Context(), cached(), "rival"); err != nil {
				t.Errorf("%s, pass %d: %v", name, n, err)
			}
		}
		if err := shared.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
