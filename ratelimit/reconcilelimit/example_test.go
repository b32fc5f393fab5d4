// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconcilelimit_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/ashlar-go/ashlar/ratelimit"
	"github.com/ashlar-go/ashlar/ratelimit/reconcilelimit"
)

// Both results go to the controller: the reconciler to Complete, the limiter into controller.Options.
func ExampleWrap() {
	policy := ratelimit.Exp(time.Second, time.Minute)
	policy.Jitter = ratelimit.NoJitter()
	backoff, err := ratelimit.New[reconcile.Request](policy, ratelimit.WithEarlyRuns(1, 10*time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	inner := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{}, errors.New("connection refused")
	})
	r, limiter := reconcilelimit.Wrap[reconcile.Request](inner, backoff)

	key := named("orders")
	for _, what := range []string{"first run", "an event, early", "another event"} {
		res, err := r.Reconcile(context.Background(), key)
		fmt.Printf("%s: error %v, held %t, %d failures\n", what, err, res.RequeueAfter > 0, limiter.NumRequeues(key))
	}
	// Output:
	// first run: error connection refused, held false, 1 failures
	// an event, early: error connection refused, held false, 1 failures
	// another event: error <nil>, held true, 1 failures
}

// Fifty runs a second at most, divided among namespaces.
func ExampleWithGates() {
	backoff, _ := ratelimit.New[reconcile.Request](ratelimit.Exp(time.Second, time.Minute))
	fair, err := ratelimit.Fair(func(r reconcile.Request) string { return r.Namespace }, 50, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	inner := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil })
	r, _ := reconcilelimit.Wrap(inner, backoff, reconcilelimit.WithGates(fair))
	for _, name := range []string{"a", "b"} {
		res, _ := r.Reconcile(context.Background(), named(name))
		fmt.Println(name, "held:", res.RequeueAfter > 0)
	}
	// Output:
	// a held: false
	// b held: true
}

// The generation comes from the cache: client.Get with the manager's client.
func ExampleWithGeneration() {
	backoff, _ := ratelimit.New[reconcile.Request](ratelimit.Exp(time.Hour, time.Hour), ratelimit.WithEarlyRuns(0, time.Second))
	generation := int64(1)
	inner := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{}, errors.New("no quota")
	})
	r, _ := reconcilelimit.Wrap(inner, backoff, reconcilelimit.WithGeneration(func(reconcile.Request) (int64, bool) { return generation, true }))
	for range 3 {
		_, err := r.Reconcile(context.Background(), named("orders"))
		fmt.Println("generation", generation, "ran:", err != nil)
		if err == nil {
			generation++ // somebody edits the spec
		}
	}
	// Output:
	// generation 1 ran: true
	// generation 1 ran: false
	// generation 2 ran: true
}

func ExampleClassify() {
	databases := schema.GroupResource{Group: "db.example.com", Resource: "databases"}
	for _, err := range []error{
		fmt.Errorf("update status: %w", apierrors.NewConflict(databases, "orders", errors.New("stale"))),
		apierrors.NewTooManyRequests("busy", 37),
		&ratelimit.Error{Class: ratelimit.Waiting, Err: errors.New("2 of 3 pods are ready")},
		reconcile.TerminalError(errors.New("no such flavour")),
		errors.New("connection refused"),
	} {
		verdict := reconcilelimit.Classify(err)
		fmt.Println(verdict.Class, verdict.After)
	}
	// Output:
	// Conflict 0s
	// Throttled 37s
	// Waiting 0s
	// Terminal 0s
	// Transient 0s
}

func ExampleWithClassify() {
	backoff, _ := ratelimit.New[reconcile.Request](ratelimit.Exp(time.Second, time.Minute))
	errQuota := errors.New("quota exceeded")
	inner := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{}, errQuota
	})
	r, _ := reconcilelimit.Wrap(inner, backoff, reconcilelimit.WithClassify[reconcile.Request](func(err error) ratelimit.Error {
		if errors.Is(err, errQuota) {
			return ratelimit.Error{Class: ratelimit.Waiting}
		}
		return reconcilelimit.Classify(err)
	}))
	res, err := r.Reconcile(context.Background(), named("orders"))
	fmt.Println(res.RequeueAfter.Round(5*time.Second), err)
	// Output: 10s <nil>
}
