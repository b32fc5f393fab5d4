// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconcilelimit_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/ashlar-go/ashlar/ratelimit"
)

var errBoom = errors.New("boom")

type (
	request = reconcile.Request
	result  = reconcile.Result
	run     = reconcile.TypedFunc[request]
)

func named(name string) request {
	var r request
	r.Namespace, r.Name = "default", name
	return r
}

func newBackoff(t testing.TB, base, longest time.Duration, opts ...ratelimit.Option) *ratelimit.Backoff[request] {
	t.Helper()
	b, err := ratelimit.New[request](ratelimit.Exp(base, longest), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// start plays controller-runtime's controller on its priority queue, or on the classic one, in the bubble of the test,
// and returns what an event source calls. The integration tests run the real one, which wants a manager.
func start(t *testing.T, priority bool, workers int, r reconcile.Reconciler, limiter workqueue.TypedRateLimiter[request]) (trigger func(request)) {
	t.Helper()
	var queue workqueue.TypedRateLimitingInterface[request] = workqueue.NewTypedRateLimitingQueue(limiter)
	if priority {
		queue.ShutDown()
		queue = priorityqueue.New("", func(o *priorityqueue.Opts[request]) { o.RateLimiter = limiter }) // no name: no metrics
	}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				key, shutdown := queue.Get()
				if shutdown {
					return
				}
				touch()
				handle(queue, r, key)
				queue.Done(key)
			}
		})
	}
	t.Cleanup(func() {
		queue.ShutDown()
		wg.Wait()
		time.Sleep(time.Minute) // the loops of the queues look for the end only now and then
	})
	synctest.Wait()
	return queue.Add
}

// handle does what reconcileHandler of controller-runtime 0.25 does.
func handle(queue workqueue.TypedRateLimitingInterface[request], r reconcile.Reconciler, key request) {
	res, err := func() (_ result, err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v [recovered]", p)
			}
		}()
		return r.Reconcile(context.Background(), key)
	}()
	switch {
	case errors.Is(err, reconcile.TerminalError(nil)):
	case err != nil:
		queue.AddRateLimited(key)
	case res.RequeueAfter > 0:
		queue.Forget(key)
		queue.AddAfter(key, res.RequeueAfter)
	//lint:ignore SA1019 reconcilers still return it
	case res.Requeue:
		queue.AddRateLimited(key)
	default:
		queue.Forget(key)
	}
}

// onBoth runs a test with the priority queue and with the classic one.
func onBoth(t *testing.T, test func(t *testing.T, priority bool)) {
	for name, priority := range map[string]bool{"priority queue": true, "classic queue": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, priority) })
		})
	}
}

// sleep lets the others work, and returns when all of them are at rest.
func sleep(d time.Duration) {
	touch()
	time.Sleep(d)
	synctest.Wait()
}

// fence orders, for the race detector, what a test did before it slept and what runs when a timer ends: there is no
// other order between them than time.
var fence sync.Mutex

func touch() {
	fence.Lock()
	defer fence.Unlock()
}
