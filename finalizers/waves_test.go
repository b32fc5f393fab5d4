// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ashlar-go/ashlar/finalizers"
)

// TestWaves: a step starts when what it needs is over, not when unrelated steps are; and in a diamond nothing runs
// twice in a pass.
func TestWaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, terminating("a", name))
	var log []string
	f := mustNew(t, []step{
		{Name: "end", After: []string{"left", "right"}, Do: say(&log, "end", finalizers.Done())},
		{Name: "left", After: []string{"begin"}, Do: say(&log, "left", finalizers.Done())},
		{Name: "slow", Do: say(&log, "slow", finalizers.Wait(0), finalizers.Done())},
		{Name: "right", After: []string{"begin"}, Do: say(&log, "right", finalizers.Wait(0), finalizers.Done())},
		{Name: "begin", Do: say(&log, "begin", finalizers.Done())},
	})
	for _, want := range [][]string{{"slow", "begin", "left", "right"}, {"slow", "right", "end"}} {
		log = nil
		if _, err := f.Sync(t.Context(), w, w, w.get("a"), nil); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, log); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	}
	if w.exists("a") {
		t.Error("not released")
	}
}

// TestWriteAhead: that a step is over is stored before a step that waits for it is called.
func TestWriteAhead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, terminating("a", name))
	do := func(as string) func(context.Context, finalizers.Deletion[*corev1.ConfigMap]) finalizers.Outcome {
		return func(_ context.Context, d finalizers.Deletion[*corev1.ConfigMap]) finalizers.Outcome {
			w.sent = append(w.sent, "DO "+as)
			if stored := w.get("a"); as != "one" && !strings.Contains(stored.Annotations[finalizers.Annotation], `"Done"`) {
				t.Errorf("step %s was called while %q is stored", as, stored.Annotations)
			} else if d.Object.ResourceVersion != stored.ResourceVersion {
				t.Errorf("step %s did not get the fresh object", as)
			}
			return finalizers.Done()
		}
	}
	f := mustNew(t, []step{
		{Name: "one", Do: do("one")},
		{Name: "two", After: []string{"one"}, Do: do("two")},
		{Name: "three", After: []string{"two"}, Do: do("three")},
	})
	if _, err := f.Sync(t.Context(), w, w, w.get("a"), nil); err != nil {
		t.Fatal(err)
	}
	w.wantVerbs("GET", "DO", "PATCH", "DO", "PATCH", "DO", "PATCH")
}

// TestWriteAheadFails: what cannot be stored must not be built upon.
func TestWriteAheadFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, terminating("a", name))
	w.before = func(_ int, req string) error {
		if strings.HasPrefix(req, "PATCH") {
			return apierrors.NewInternalError(errors.New("no"))
		}
		return nil
	}
	var log []string
	f := mustNew(t, []step{
		{Name: "one", Do: say(&log, "one", finalizers.Done())},
		{Name: "two", After: []string{"one"}, Do: say(&log, "two", finalizers.Done())},
	})
	res, err := f.Sync(t.Context(), w, w, w.get("a"), nil)
	if !apierrors.IsInternalError(err) || res.Phase != finalizers.Cleaning {
		t.Errorf("Sync = %v, %v", res.Phase, err)
	}
	if diff := cmp.Diff([]string{"one"}, log); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// TestNewProcessLooksBeforeOrderedSteps: the cache of a new leader may lag behind what the old one has stored. A step
// that is over must not be called again once one that waits for it has begun.
func TestNewProcessLooksBeforeOrderedSteps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, terminating("a", name))
	stale := w.get("a")
	var log []string
	steps := []step{
		{Name: "backup", Do: say(&log, "backup", finalizers.Done())},
		{Name: "volumes", After: []string{"backup"}, Do: say(&log, "volumes", finalizers.Wait(0), finalizers.Done())},
	}
	for range 2 {
		if _, err := mustNew(t, steps).Sync(t.Context(), w, w, stale, nil); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"backup", "volumes", "volumes"}, log); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}
