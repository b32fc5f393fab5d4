// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	dbv1 "github.com/ashlar-go/ashlar/examples/database/api/v1"
	"github.com/ashlar-go/ashlar/ratelimit"
	"github.com/ashlar-go/ashlar/ratelimit/reconcilelimit"
)

// errNotReady says that nothing failed and that the Database is not ready. What
// it waits for is mostly said by an event; looking again is for what nobody says.
var errNotReady = &ratelimit.Error{Class: ratelimit.Waiting, Err: errors.New("the Database is not ready yet")}

// calmStart is how long after a start Databases that are well may wait for their
// first pass, so that a thousand of them do not come at once. What they lose
// meanwhile is seen that much later.
const calmStart = 3 * time.Second

// limited gives each kind of failure a curve of its own: what fails is tried ten
// times in the first minute and once in five minutes after an hour, a throttling
// API server is left alone for as long as it asks, what waits is looked at now and then.
func (r *Reconciler) limited() (reconcile.Reconciler, workqueue.TypedRateLimiter[reconcile.Request], error) {
	backoff, err := ratelimit.New[reconcile.Request](ratelimit.Exp(150*time.Millisecond, 5*time.Minute),
		ratelimit.WithClass(ratelimit.Waiting, ratelimit.Exp(15*time.Second, 5*time.Minute)),
		ratelimit.WithEarlyRuns(10, 2*time.Second)) // events of children that come up
	if err != nil {
		return nil, nil, err
	}
	limited, limiter := reconcilelimit.Wrap(r, backoff,
		reconcilelimit.WithGates(ratelimit.Smear(calmStart, r.urgent)), reconcilelimit.WithGeneration(r.generation))
	return limited, limiter, nil
}

// urgent reports whether a Database has something to do after a start: all but the ones that are well.
func (r *Reconciler) urgent(req reconcile.Request) bool {
	db := &dbv1.Database{}
	return r.Get(context.Background(), req.NamespacedName, db) != nil || !db.DeletionTimestamp.IsZero() ||
		db.Status.ObservedGeneration != db.Generation || !apimeta.IsStatusConditionTrue(db.Status.Conditions, Ready)
}

// generation is that of the cached Database; a new one clears what is remembered of failures.
func (r *Reconciler) generation(req reconcile.Request) (int64, bool) {
	db := &dbv1.Database{}
	err := r.Get(context.Background(), req.NamespacedName, db)
	return db.Generation, err == nil
}
