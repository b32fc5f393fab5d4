// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconcilelimit_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/ratelimit"
	"github.com/ashlar-go/ashlar/ratelimit/reconcilelimit"
)

// TestRequeueIsAnAnswer: a reconciler that asks to be called again without an error is rate limited, but its remote has
// answered: its breaker stays closed, as it does for a RequeueAfter.
func TestRequeueIsAnAnswer(t *testing.T) {
	t.Parallel()
	//lint:ignore SA1019 reconcilers still return it
	requeue := result{Requeue: true}
	remotes, err := ratelimit.NewRemotes[string](1000, 100)
	if err != nil {
		t.Fatal(err)
	}
	b := newBackoff(t, time.Minute, time.Hour)
	fails := false
	r, limiter := reconcilelimit.Wrap(run(func(context.Context, request) (result, error) {
		if fails {
			return result{}, errBoom
		}
		return requeue, nil
	}), b, reconcilelimit.WithGates(ratelimit.PerRemote(remotes, func(request) string { return "remote" })))
	for i := range 20 {
		if res, err := r.Reconcile(t.Context(), named(fmt.Sprint(i))); err != nil || res != requeue {
			t.Fatalf("run %d: %+v, %v", i, res, err)
		}
	}
	if s := remotes.State("remote"); s.Open {
		t.Errorf("the breaker has opened: %+v", s)
	}
	if n := limiter.NumRequeues(named("0")); n != 1 {
		t.Errorf("%d failures are counted for the queue, want 1", n)
	}
	fails = true
	for i := range 5 {
		_, _ = r.Reconcile(t.Context(), named(fmt.Sprint(100+i)))
	}
	if s := remotes.State("remote"); !s.Open {
		t.Error("the breaker does not open for errors")
	}
}
