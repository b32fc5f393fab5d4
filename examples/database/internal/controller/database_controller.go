// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package controller keeps Databases: a ConfigMap, a Service and a StatefulSet
// with volumes for each, and a final backup before they go.
package controller

import (
	"context"
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/ashlar-go/ashlar/conditions"
	dbv1 "github.com/ashlar-go/ashlar/examples/database/api/v1"
	"github.com/ashlar-go/ashlar/finalizers"
	"github.com/ashlar-go/ashlar/ownership"
	"github.com/ashlar-go/ashlar/ownership/apply"
	"github.com/ashlar-go/ashlar/statussync"
)

// Reconcile takes one Database a step further. See setup.go for what it is wired to.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	db := &dbv1.Database{}
	if err := r.Get(ctx, req.NamespacedName, db); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	res, err := r.finalizer.Sync(ctx, r.Client, r.live, db, r.apply)
	if res.Phase == finalizers.Cleaning {
		return r.reportCleanup(ctx, res, err)
	}
	return reconcile.Result{RequeueAfter: res.RequeueAfter}, err
}

// apply brings the children of a live Database about and says how they are.
func (r *Reconciler) apply(ctx context.Context, db *dbv1.Database) (time.Duration, error) {
	pass := r.health.Begin(db.Status.Conditions, db.Generation, nil)
	if refusal := unsupported(db.Spec.Version); refusal != "" {
		pass.False(ConfigReady, "UnsupportedVersion", refusal)
		pass.Stall(ConfigReady) // no retry makes the version supported
		return r.report(ctx, db, pass, nil)
	}
	plan, err := r.children.Plan(ctx, db, r.desired(db), ownership.Policy{})
	if err != nil {
		return 0, err
	}
	if taken, err := r.taken(ctx, db, plan); taken != "" || err != nil {
		pass.False(ConfigReady, apply.ReasonConflict, taken) // half a Database would run with somebody else's configuration
		wait, serr := r.report(ctx, db, pass, nil)
		return soonest(takenAgain, wait), errors.Join(err, serr)
	}

	kids, err := r.children.Apply(ctx, plan)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		err = nil // the status says it, and the Database is about to be deleted as well
	}
	pass.Put(configReady(kids))
	volumes, verr := r.volumesOf(ctx, db)
	pass.Put(storageReady(db, kids, volumes, func() error {
		return r.live.Get(ctx, client.ObjectKey{Name: db.Spec.Storage.Class}, &storagev1.StorageClass{})
	}))
	sts := only[*appsv1.StatefulSet](kids)
	pass.Put(servingReady(db, sts))

	wait, serr := r.report(ctx, db, pass, sts)
	return soonest(kids.RequeueAfter, wait), errors.Join(err, verr, serr)
}

// volumesOf lists what the StatefulSet creates from its template: nobody applies a volume.
func (r *Reconciler) volumesOf(ctx context.Context, db *dbv1.Database) ([]corev1.PersistentVolumeClaim, error) {
	list := &corev1.PersistentVolumeClaimList{}
	claim, _ := r.volumes.set.Claim(db)
	err := r.List(ctx, list, client.InNamespace(db.Namespace), client.MatchingLabels(claim))
	return list.Items, err
}

// report writes the status, if it says anything new, and tells of a transition.
func (r *Reconciler) report(ctx context.Context, db *dbv1.Database, pass *conditions.Pass, sts *appsv1.StatefulSet) (time.Duration, error) {
	if r.chartVersion != "" {
		pass.Put(versionSkew(db, r.chartVersion))
	}
	done, err := pass.Done(r.now())
	out, serr := r.status.Sync(ctx, db, statussync.Desired[Status]{
		Generation: db.Generation, Conditions: done.Conditions, Status: statusOf(db, done.Conditions, sts),
	})
	if out.Outcome == statussync.Written {
		r.tell(db, apimeta.FindStatusCondition(done.Conditions, Ready))
	}
	if err = errors.Join(err, serr); err == nil && !apimeta.IsStatusConditionTrue(done.Conditions, Ready) {
		err = errNotReady
	}
	return soonest(done.RequeueAfter, out.RequeueAfter), err
}

// reportCleanup says in the status what the cleanup waits for.
func (r *Reconciler) reportCleanup(ctx context.Context, res finalizers.Result[*dbv1.Database], err error) (reconcile.Result, error) {
	db := res.Object
	pass := r.health.Begin(db.Status.Conditions, db.Generation, nil)
	pass.False(ConfigReady, "Deleting", cleanupMessage(res.Progress))
	wait, serr := r.report(ctx, db, pass, nil)
	return reconcile.Result{RequeueAfter: soonest(res.RequeueAfter, wait)}, errors.Join(err, serr)
}

// only returns the child of one type, as the server returned it or the cache holds it.
func only[T client.Object](kids apply.Result) (none T) {
	for _, obj := range kids.Objects() {
		if child, ok := obj.(T); ok {
			return child
		}
	}
	return none
}

// soonest is the earliest of the times at which something is due; 0 is never.
func soonest(times ...time.Duration) (first time.Duration) {
	for _, t := range times {
		if t > 0 && (first == 0 || t < first) {
			first = t
		}
	}
	return first
}
