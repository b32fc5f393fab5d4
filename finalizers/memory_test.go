// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/ashlar-go/ashlar/finalizers"
)

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	if known, last := finalizers.Remember(3, 10); known != 3 || !last {
		t.Errorf("knows %d objects, the newest: %v; want 3 and true", known, last)
	}
}

// TestConcurrentObjects: one Finalizer serves many objects at once, as MaxConcurrentReconciles wants; run it with -race.
func TestConcurrentObjects(t *testing.T) {
	t.Parallel()
	f := mustNew(t, []step{
		{Name: "a", Do: done},
		{Name: "b", After: []string{"a"}, Do: func(context.Context, finalizers.Deletion[*corev1.ConfigMap]) finalizers.Outcome {
			return finalizers.Wait(0)
		}},
	})
	finished := make(chan struct{})
	const n = 8
	for i := range n {
		go func() {
			defer func() { finished <- struct{}{} }()
			obj := terminating("a", name)
			obj.UID += obj.UID[:i+1]
			w := newWorld(t, obj)
			for range 3 {
				if res, err := f.Sync(t.Context(), w, w, w.get("a"), nil); err != nil || res.Phase != finalizers.Cleaning {
					t.Errorf("Sync = %v, %v", res.Phase, err)
				}
			}
		}()
	}
	for range n {
		<-finished
	}
}
