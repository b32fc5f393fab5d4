// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-go/ashlar/ownership/apply"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestSettle sends five events of children within a burst through client-go's own queue and counts how often their
// owner comes out of it.
func TestSettle(t *testing.T) {
	t.Parallel()
	passes := func(t *testing.T, settle time.Duration) (n int, first time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, true)
			a, err := apply.New(s.cache, s.live(), newSet(t), apply.WithSettle(settle))
			if err != nil {
				t.Fatal(err)
			}
			q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
			start, h := time.Now(), a.Handler()
			go func() {
				for i := range 5 {
					c := native(configMap(fmt.Sprint("c", i)), "example.com/v1", "Database", "orders")
					h.Update(t.Context(), event.UpdateEvent{ObjectOld: c, ObjectNew: c}, q)
					time.Sleep(30 * time.Millisecond)
				}
				time.Sleep(time.Second)
				q.ShutDown()
			}()
			for {
				item, down := q.Get()
				if down {
					return
				}
				if n++; n == 1 {
					first = time.Since(start)
				}
				q.Done(item)
			}
		})
		return n, first
	}
	if n, first := passes(t, 0); n != 5 || first != 0 {
		t.Errorf("without settling: %d passes, the first after %v, want 5 and at once", n, first)
	}
	if n, first := passes(t, 200*time.Millisecond); n != 1 || first != 200*time.Millisecond {
		t.Errorf("settling for 200 ms: %d passes, the first after %v, want 1 after 200ms", n, first)
	}
}
