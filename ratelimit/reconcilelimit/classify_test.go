// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconcilelimit_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/ashlar-go/ashlar/ratelimit"
	"github.com/ashlar-go/ashlar/ratelimit/reconcilelimit"
)

// TestClassifyAggregate: apimachinery joins errors in a type of its own, which errors.As does not look into.
func TestClassifyAggregate(t *testing.T) {
	t.Parallel()
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "databases"}, "a", errBoom)
	busy := apierrors.NewTooManyRequests("busy", 37)
	waiting := &ratelimit.Error{Class: ratelimit.Waiting, After: time.Minute, Err: errBoom}
	for name, tt := range map[string]struct {
		reason string
		errs   []error
		class  ratelimit.Class
		after  time.Duration
	}{
		"conflict": {"one error is no other error for being in a list", []error{conflict}, ratelimit.Conflict, 0},
		"throttled": {"the most patient wins, as in errors.Join", []error{conflict, fmt.Errorf("scale: %w", busy)},
			ratelimit.Throttled, 37 * time.Second},
		"waiting":   {"what a caller says is heard", []error{waiting, conflict}, ratelimit.Conflict, time.Minute},
		"transient": {"", []error{waiting, errBoom}, ratelimit.Transient, time.Minute},
		"nested":    {"", []error{fmt.Errorf("volumes: %w", utilerrors.NewAggregate([]error{waiting}))}, ratelimit.Waiting, time.Minute},
		"terminal":  {"", []error{errBoom, reconcile.TerminalError(errBoom)}, ratelimit.Terminal, 0},
	} {
		err := utilerrors.NewAggregate(tt.errs)
		for _, err := range []error{err, fmt.Errorf("sync: %w", err)} {
			got := reconcilelimit.Classify(err)
			if got.Class != tt.class || got.After != tt.after || got.Err == nil || got.Err.Error() != err.Error() {
				t.Errorf("%s (%s): %v after %v, want %v after %v", name, tt.reason, got.Class, got.After, tt.class, tt.after)
			}
		}
	}
}

// TestTerminalErrorWithClassify: controller-runtime does not requeue a TerminalError, whatever a classifier takes it for. So
// nothing is remembered about it, and it does not count as a failure.
func TestTerminalErrorWithClassify(t *testing.T) {
	t.Parallel()
	for class := ratelimit.Transient; class <= ratelimit.Terminal; class++ {
		b := newBackoff(t, time.Minute, time.Hour)
		r, limiter := reconcilelimit.Wrap(run(func(context.Context, request) (result, error) {
			return result{}, fmt.Errorf("spec: %w", reconcile.TerminalError(errBoom))
		}), b, reconcilelimit.WithClassify[request](func(error) ratelimit.Error { return ratelimit.Error{Class: class} }))
		b.Observe(named("a"), errBoom)
		if _, err := r.Reconcile(t.Context(), named("a")); err == nil || b.Len() != 0 || limiter.NumRequeues(named("a")) != 0 {
			t.Errorf("taken for %v: %v, %d keys are remembered", class, err, b.Len())
		}
	}
}
