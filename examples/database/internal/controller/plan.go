// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"io"

	"sigs.k8s.io/controller-runtime/pkg/client"

	dbv1 "github.com/ashlar-go/ashlar/examples/database/api/v1"
	"github.com/ashlar-go/ashlar/ownership"
)

// Plan prints what a pass over every Database would do. It reads the cache and
// writes nothing: the plans it prints are the ones that Reconcile carries out.
func (r *Reconciler) Plan(ctx context.Context, w io.Writer) error {
	list := &dbv1.DatabaseList{}
	if err := r.List(ctx, list); err != nil {
		return err
	}
	var errs []error
	for i := range list.Items {
		errs = append(errs, r.plan(ctx, w, &list.Items[i]))
	}
	return errors.Join(errs...)
}

func (r *Reconciler) plan(ctx context.Context, w io.Writer, db *dbv1.Database) error {
	fmt.Fprintf(w, "Database %s/%s\n", db.Namespace, db.Name)
	fmt.Fprintf(w, "  finalizer: %s\n", r.finalizer.Plan(db, r.now()))
	if db.DeletionTimestamp != nil {
		return nil // what a step does depends on how far the steps before it are
	}
	if refusal := unsupported(db.Spec.Version); refusal != "" {
		fmt.Fprintf(w, "  refused: %s\n", refusal)
		return nil
	}
	claimable := db.DeepCopy() // a plan for after the finalizer is stored
	if !hasFinalizer(claimable) {
		claimable.Finalizers = append(claimable.Finalizers, Finalizer)
	}
	plan, err := r.children.Plan(ctx, claimable, r.desired(db), ownership.Policy{})
	if err != nil {
		return fmt.Errorf("plan the children of Database %s/%s: %w", db.Namespace, db.Name, err)
	}
	switch taken, err := r.taken(ctx, db, plan); {
	case err != nil:
		return err
	case taken != "":
		fmt.Fprintf(w, "  refused: %s\n", taken)
		return nil
	}
	for _, d := range plan.Decisions {
		fmt.Fprintf(w, "  %s %s: %s\n", d.Verb, d.Ref, d.Why)
	}
	return nil
}

func hasFinalizer(obj client.Object) bool {
	for _, f := range obj.GetFinalizers() {
		if f == Finalizer {
			return true
		}
	}
	return false
}
