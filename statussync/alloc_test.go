// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package statussync_test

import (
	"context"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/statussync"
)

// A converged object costs at most two small allocations, whether its cache holds Go structs or unstructured data.
func TestNoOpAllocations(t *testing.T) {
	s, other := newServer(t, db(3))
	w := newWriter(t, s)
	loose, err := statussync.For[Payload](newGroup(t, s), "main", unstructuredKind(), mainOwns)
	if err != nil {
		t.Fatal(err)
	}
	d := ready(3, "db.shop")
	d.Status.Shards = []Shard{{"a", true}, {"b", false}}
	d.Status.Labels = map[string]string{"tier": "gold", "zone": "b"}
	n := int32(2)
	d.Status.Replicas = &n
	sync_(t, w, live(t, other), d)
	for name, c := range map[string]struct {
		reason string
		w      *statussync.Writer[Payload]
		obj    client.Object
		max    float64
	}{
		"typed":        {"reads by field position", w, live(t, other), 1},
		"unstructured": {"the condition list is read into structs", loose, liveUnstructured(t, other), 2},
	} {
		s.take()
		got := testing.AllocsPerRun(100, func() {
			r, err := c.w.Sync(context.Background(), c.obj, d)
			if err != nil || r.Outcome != statussync.NoOp {
				t.Fatalf("%s: %+v, %v", name, r, err)
			}
		})
		if got > c.max {
			t.Errorf("%s: %v allocations, want at most %v (%s)", name, got, c.max, c.reason)
		}
		if rs := s.take(); len(rs) > 0 {
			t.Errorf("%s: %v requests", name, len(rs))
		}
	}
}
