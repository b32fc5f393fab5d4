// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	dbv1 "github.com/ashlar-go/ashlar/examples/database/api/v1"
)

// TestRestartDoesNotStampede: after a start with a thousand Databases that are
// well the first passes are spread over calmStart, and one that is not well
// does not wait.
func TestRestartDoesNotStampede(t *testing.T) {
	const many = 1000
	objs := make([]client.Object, 0, many+1)
	for i := range many {
		objs = append(objs, database(func(db *dbv1.Database) {
			db.Name = fmt.Sprint("well-", i)
			db.Generation = 1
			db.Status.ObservedGeneration = 1
			db.Status.Conditions = []metav1.Condition{{Type: Ready, Status: metav1.ConditionTrue, Reason: "AllGood"}}
		}))
	}
	objs = append(objs, database(func(db *dbv1.Database) { db.Name = "changed" }))
	r := reconciler(t, false, objs...)
	// A pass is known by the write it begins with.
	r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return errors.New("a pass")
		},
	})
	synctest.Test(t, func(t *testing.T) {
		limited, _, err := r.limited()
		if err != nil {
			t.Fatal(err)
		}
		due := map[time.Duration][]string{0: {"changed"}}
		for i := range many {
			due[0] = append(due[0], fmt.Sprint("well-", i))
		}
		const tick = 100 * time.Millisecond
		passes := 0
		for at := time.Duration(0); at <= calmStart+tick; at += tick {
			now := 0
			for _, name := range due[at] {
				res, err := limited.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "shop", Name: name}})
				switch {
				case err != nil:
					now++
				case name == "changed":
					t.Errorf("a changed Database waits for %v", res.RequeueAfter)
				case res.RequeueAfter <= 0 || res.RequeueAfter > calmStart:
					t.Fatalf("%s: neither a pass nor a wait: %v", name, res)
				default:
					next := (at + res.RequeueAfter + tick - 1).Truncate(tick)
					due[next] = append(due[next], name)
				}
			}
			if even := many * int(tick) / int(calmStart); now > 2*even {
				t.Errorf("%d passes within %v, %d would be even", now, tick, even)
			}
			passes += now
			time.Sleep(tick)
		}
		if passes != many+1 {
			t.Errorf("%d of %d Databases had their first pass", passes, many+1)
		}
	})
}

// TestCurves: each kind of failure waits by a curve of its own.
func TestCurves(t *testing.T) {
	t.Parallel()
	key := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(database())}
	for name, tt := range map[string]struct {
		reason    string
		err       error // of the write that a pass begins with
		low, high time.Duration
	}{
		"transient": {"tried again soon", errors.New("connection refused"), 75 * time.Millisecond, 150 * time.Millisecond},
		"throttled": {"for as long as the server asks", apierrors.NewTooManyRequests("busy", 40), 40 * time.Second, 48 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := reconciler(t, false, database())
			r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
				Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
					return tt.err
				},
			})
			limited, limiter, err := r.limited()
			if err != nil {
				t.Fatal(err)
			}
			before := time.Now()
			if _, err := limited.Reconcile(t.Context(), key); !errors.Is(err, tt.err) {
				t.Fatalf("%v, want %v", err, tt.err)
			}
			wait, passed := limiter.When(key), time.Since(before)
			if wait > tt.high || wait+passed+time.Millisecond < tt.low {
				t.Errorf("%s: %v, want %v to %v", tt.reason, wait, tt.low, tt.high)
			}
		})
	}
}

// TestWaitingIsNoFailure: a Database whose pods are not there yet comes again by
// the curve for waiting, and nothing is counted.
func TestWaitingIsNoFailure(t *testing.T) {
	t.Parallel()
	key := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(database())}
	limited, limiter, err := reconciler(t, false, database()).limited()
	if err != nil {
		t.Fatal(err)
	}
	var res reconcile.Result
	for range 3 { // the finalizer, the children, their state
		if res, err = limited.Reconcile(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	if n := limiter.NumRequeues(key); n != 0 || res.RequeueAfter < 7*time.Second || res.RequeueAfter > 15*time.Second {
		t.Errorf("again after %v, %d failures", res.RequeueAfter, n)
	}
}
