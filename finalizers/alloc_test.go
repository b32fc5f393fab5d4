// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package finalizers_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ashlar-go/ashlar/finalizers"
)

// TestConvergedAllocatesNothing: what the package documentation promises for the pass that every reconcile of every
// live object makes, and for the passes of an object that is being deleted for somebody else's sake.
func TestConvergedAllocatesNothing(t *testing.T) {
	w := newWorld(t)
	var log []string
	f := mustNew(t, []step{{Name: "a", Do: say(&log, "a", finalizers.Done())}, {Name: "b", After: []string{"a"}, Do: done}},
		finalizers.WithFormerNames(former))
	calls := 0
	apply := func(context.Context, *corev1.ConfigMap) (time.Duration, error) {
		calls++
		return 0, nil
	}
	for title, obj := range map[string]*corev1.ConfigMap{
		"live":          configMap("a", "example.com/x", "example.com/y", name),
		"being deleted": terminating("a", "example.com/x", "example.com/y"),
	} {
		ctx := t.Context()
		if n := testing.AllocsPerRun(100, func() {
			if _, err := f.Sync(ctx, w, w, obj, apply); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations a pass, want 0", title, n)
		}
	}
	if calls != 101 || log != nil {
		t.Errorf("%d calls of apply, cleanup %q", calls, log)
	}
	w.wantSent()
}
