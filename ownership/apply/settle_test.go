// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-go/ashlar/ownership/apply"
	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestSettle sends five events of children within a burst through client-go's own queue and counts how often their
// owner comes out of it.
func TestSettle(t *testing.T) {
	t.Parallel()
	passes := func(t *testing.T, settle time.Duration) (at []time.Duration) {
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
				at = append(at, time.Since(start))
				q.Done(item)
			}
		})
		return at
	}
	const ms = time.Millisecond
	for settle, want := range map[time.Duration][]time.Duration{
		0:                {0, 30 * ms, 60 * ms, 90 * ms, 120 * ms},
		200 * ms:         {0, 200 * ms}, // the first one at once, the rest together
		50 * ms:          {0, 50 * ms, 100 * ms, 150 * ms},
		time.Millisecond: {0, 30 * ms, 60 * ms, 90 * ms, 120 * ms},
	} {
		if diff := cmp.Diff(want, passes(t, settle)); diff != "" {
			t.Errorf("settling for %v (-want +got):\n%s", settle, diff)
		}
	}
}
