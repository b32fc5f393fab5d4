// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconcilelimit

import (
	"context"
	"errors"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/ashlar-go/ashlar/ratelimit"
)

// Wrap returns a reconciler that asks b and the gates before r runs and tells b how the run ended, and the limiter that
// the controller must be given with it.
//
// An error of r is retried after what b decides for its class, see [Classify]. Failures of class Waiting become a
// RequeueAfter without an error, because nothing failed; an earlier RequeueAfter of r is kept. Those of class Terminal,
// and those that b gives up, become a reconcile.TerminalError. Other errors, and the results of runs without an error,
// are returned as they are. A run that ends because ctx was cancelled is not counted. Neither r nor b may be nil.
func Wrap[K comparable](r reconcile.TypedReconciler[K], b *ratelimit.Backoff[K], opts ...Option[K]) (reconcile.TypedReconciler[K], workqueue.TypedRateLimiter[K]) {
	w := &limited[K]{inner: r, backoff: b, classify: Classify, gates: []ratelimit.Gate[K]{b}}
	for _, o := range opts {
		o.apply(w)
	}
	return w, b.Observed()
}

type limited[K comparable] struct {
	inner      reconcile.TypedReconciler[K]
	backoff    *ratelimit.Backoff[K]
	gates      []ratelimit.Gate[K] // the first one is the backoff: it says no most often, and charges nothing then
	generation func(K) (int64, bool)
	classify   func(error) ratelimit.Error
}

// gone is the generation of an object that does not exist: its end is a new intent, too.
const gone = -1

// errRequeue is what Result.Requeue without an error counts as.
var errRequeue = errors.New("the reconciler asked for a rate-limited requeue")

// errEnded is what a run counts as that does not return.
var errEnded = errors.New("the reconciler panicked or ended its goroutine")

// Reconcile implements reconcile.TypedReconciler.
func (w *limited[K]) Reconcile(ctx context.Context, key K) (reconcile.Result, error) {
	generation, known := int64(gone), w.generation != nil
	if known {
		if g, ok := w.generation(key); ok {
			generation = g
		}
		w.backoff.Reset(key, generation)
	}
	if wait, ok := w.admit(key); !ok {
		return reconcile.Result{RequeueAfter: wait}, nil
	}

	returned := false
	defer func() {
		if !returned {
			w.observe(key, errEnded, generation, known)
		}
	}()
	result, err := w.inner.Reconcile(ctx, key)
	returned = true

	failure := err
	//lint:ignore SA1019 reconcilers still return it, and it must keep its meaning
	if err == nil && result.RequeueAfter <= 0 && result.Requeue {
		failure = errRequeue
	}
	if failure != nil && errors.Is(failure, context.Canceled) && errors.Is(ctx.Err(), context.Canceled) {
		w.refund(w.gates, key)
		return result, err // the process stops: that is nobody's failure
	}
	d := w.observe(key, failure, generation, known)
	switch {
	case failure == nil || errors.Is(err, reconcile.TerminalError(nil)):
	case !d.Retry():
		err = reconcile.TerminalError(failure)
	case d.Class == ratelimit.Waiting:
		//lint:ignore SA1019 controller-runtime would ask the limiter
		result.Requeue = false
		if result.RequeueAfter <= 0 || result.RequeueAfter > d.Delay {
			result.RequeueAfter = max(d.Delay, shortest)
		}
		err = nil
	}
	return result, err
}

// shortest is the least that is returned as RequeueAfter, for which zero means "not again".
const shortest = time.Millisecond

// admit asks one gate after the other; when one says no, those before it take their yes back.
func (w *limited[K]) admit(key K) (time.Duration, bool) {
	for i, gate := range w.gates {
		if wait, ok := gate.Admit(key); !ok {
			w.refund(w.gates[:i], key)
			return max(wait, shortest), false
		}
	}
	return 0, true
}

func (w *limited[K]) refund(gates []ratelimit.Gate[K], key K) {
	for _, gate := range gates {
		if g, ok := gate.(interface{ Refund(K) }); ok {
			g.Refund(key)
		}
	}
}

// observe tells everybody who wants to know how a run ended.
func (w *limited[K]) observe(key K, err error, generation int64, known bool) ratelimit.Decision {
	var told error // what the gates hear
	if err != nil {
		verdict := w.classify(err)
		if errors.Is(err, reconcile.TerminalError(nil)) {
			verdict.Class = ratelimit.Terminal // it is not requeued, whatever the classifier takes it for
		}
		verdict.Err = err
		if err != errRequeue { //nolint:errorlint // nobody wraps it, and the reconciler has returned no error
			told = &verdict
		}
		err = &verdict
	}
	for _, gate := range w.gates {
		if g, ok := gate.(interface{ Report(K, error) }); ok {
			g.Report(key, told)
		}
	}
	d := w.backoff.Observe(key, err)
	if known && d.Retry() {
		w.backoff.Reset(key, generation) // notes it, now that there is something to note it with
	}
	return d
}
