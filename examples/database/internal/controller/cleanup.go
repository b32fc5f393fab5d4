// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dbv1 "github.com/ashlar-go/ashlar/examples/database/api/v1"
	"github.com/ashlar-go/ashlar/finalizers"
	"github.com/ashlar-go/ashlar/ownership"
	"github.com/ashlar-go/ashlar/ownership/apply"
)

type deletion = finalizers.Deletion[*dbv1.Database]

// steps is the cleanup, in order: what the user asked for, a backup while the
// volumes are there, then the pods, then the volumes, which the API server keeps
// as long as a pod uses them.
func (r *Reconciler) steps() []finalizers.Step[*dbv1.Database] {
	return []finalizers.Step[*dbv1.Database]{
		{Name: "evidence", Do: r.evidence},
		{Name: "backup", Do: unlessOrphaned(r.backup), After: []string{"evidence"}, Deadline: time.Hour, InTerminatingNamespace: finalizers.Skip},
		{Name: "stop", Do: unlessOrphaned(r.stop), After: []string{"backup"}},
		{Name: "volumes", Do: unlessOrphaned(r.drop), After: []string{"stop"}},
	}
}

// evidence finds out whether the user asked to keep the children. The Database
// itself shows that for a moment only; afterwards it shows in a native child from
// which the garbage collector took our reference. That must not come from the
// cache: the one of Databases may already show the orphan finalizer gone while
// that of the children still shows our reference. The answer is stored before the
// next step starts, so that it is asked once and holds until the end.
func (r *Reconciler) evidence(ctx context.Context, d deletion) finalizers.Outcome {
	if d.Policy != "" {
		return finalizers.Done()
	}
	for _, kind := range []string{"ConfigMap", "Service"} {
		sibling := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kind}}
		switch err := r.live.Get(ctx, client.ObjectKeyFromObject(d.Object), sibling); {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return finalizers.Retry(fmt.Errorf("look for orphaned children: %w", err))
		}
		if orphaned, known := r.children.set.Orphaned(d.Object, []ownership.Object{sibling}); known {
			if orphaned {
				return finalizers.Done().Under(metav1.DeletePropagationOrphan)
			}
			break
		}
	}
	return finalizers.Done()
}

// unlessOrphaned turns a step into nothing when the user asked to keep the children.
func unlessOrphaned(do func(context.Context, deletion) finalizers.Outcome) func(context.Context, deletion) finalizers.Outcome {
	return func(ctx context.Context, d deletion) finalizers.Outcome {
		if d.Policy == metav1.DeletePropagationOrphan {
			return finalizers.Done()
		}
		return do(ctx, d)
	}
}

// backup runs a Job that reads every volume. It is tried even when no volume is
// left to read, unless there never was one: in a namespace that is going away the
// volumes may have gone first, and only the refused Job says that there is no backup.
func (r *Reconciler) backup(ctx context.Context, d deletion) finalizers.Outcome {
	db, job := d.Object, &batchv1.Job{}
	err := r.live.Get(ctx, client.ObjectKey{Namespace: db.Namespace, Name: backupName(db)}, job)
	if client.IgnoreNotFound(err) != nil {
		return finalizers.Retry(err)
	}
	if err != nil || !r.cleanup.set.Claimed(db, job) {
		volumes, err := r.withData(ctx, db)
		if err != nil {
			return finalizers.Retry(err)
		}
		if len(volumes) == 0 && db.Status.Version == nil {
			return finalizers.Done()
		}
		res, err := r.cleanup.Sync(ctx, db, []client.Object{backupJob(db, volumes)}, ownership.Policy{})
		if err != nil {
			return finalizers.Retry(err)
		}
		if job = only[*batchv1.Job](res); job == nil {
			return finalizers.Stuck(fmt.Errorf("no final backup is made: %s", res.Condition("Backup", "Job").Message)) // the name is taken
		}
	}
	for _, c := range job.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == batchv1.JobComplete:
			return finalizers.Done()
		case c.Type == batchv1.JobFailed:
			return finalizers.Stuck(fmt.Errorf("the final backup, Job %s, failed: %s: delete the Job to try again", job.Name, c.Message))
		}
	}
	return finalizers.BlockedBy(finalizers.Ref{APIVersion: "batch/v1", Kind: "Job", Namespace: job.Namespace, Name: job.Name})
}

// withData lists the volumes that have something on them. They are read live,
// because an old cache shows a volume as not bound that has data by now.
func (r *Reconciler) withData(ctx context.Context, db *dbv1.Database) ([]corev1.PersistentVolumeClaim, error) {
	list := &corev1.PersistentVolumeClaimList{}
	claim, _ := r.volumes.set.Claim(db)
	if err := r.live.List(ctx, list, client.InNamespace(db.Namespace), client.MatchingLabels(claim)); err != nil {
		return nil, fmt.Errorf("list the volumes of Database %s/%s: %w", db.Namespace, db.Name, err)
	}
	kept := slices.DeleteFunc(list.Items, func(v corev1.PersistentVolumeClaim) bool { return v.Status.Phase != corev1.ClaimBound })
	slices.SortFunc(kept, func(a, b corev1.PersistentVolumeClaim) int { return cmp.Compare(a.Name, b.Name) })
	return kept, nil
}

// stop removes the StatefulSet and waits for its pods.
func (r *Reconciler) stop(ctx context.Context, d deletion) finalizers.Outcome {
	db := d.Object
	if out, done := drained(r.children.Teardown(ctx, db, schema.GroupKind{Group: "apps", Kind: "StatefulSet"})); !done {
		return out
	}
	pods := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	err := r.live.List(ctx, pods, client.InNamespace(db.Namespace), client.MatchingLabels(selector(db)), client.Limit(1))
	switch {
	case err != nil:
		return finalizers.Retry(fmt.Errorf("list the pods of Database %s/%s: %w", db.Namespace, db.Name, err))
	case len(pods.Items) > 0:
		return finalizers.Wait(time.Second) // pods are not watched
	}
	return finalizers.Done()
}

// drop removes the volumes and the backup Job, whose pods would keep them. The
// Job goes last: until then it is the proof that the backup was made.
func (r *Reconciler) drop(ctx context.Context, d deletion) finalizers.Outcome {
	volumes, first := drained(r.volumes.Teardown(ctx, d.Object))
	job, second := drained(r.cleanup.Teardown(ctx, d.Object))
	switch {
	case !first:
		return volumes
	case !second:
		return job
	}
	return finalizers.Done()
}

// drained turns the result of a teardown into an outcome.
func drained(res apply.Result, err error) (finalizers.Outcome, bool) {
	switch {
	case err != nil:
		return finalizers.Retry(err), false
	case res.Done():
		return finalizers.Done(), true
	}
	first := res.Decisions[0]
	if first.Verb == ownership.Conflict {
		return finalizers.Stuck(errors.New(first.String())), false
	}
	return finalizers.BlockedBy(finalizers.Ref{
		APIVersion: first.Ref.GroupVersion().String(), Kind: first.Ref.Kind,
		Namespace: first.Ref.Namespace, Name: first.Ref.Name,
	}), false
}

// cleanupMessage says what a cleanup waits for, with the reason where there is one.
func cleanupMessage(p finalizers.Progress) string {
	if err := p.Err(); err != nil {
		return strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return p.String()
}
