// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ashlar-go/ashlar/ownership"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Apply carries a plan out, declared objects first. Nothing is pruned in a pass in which a declared object could not be
// applied, whether for an error, a conflict or a wait; a delete that fails stops no other one and is found again by its
// claim. The error joins what went wrong; conflicts and waits are decisions, not errors.
//
// Requests: see Sync. Verbs on the declared kinds: create and patch for applies, delete, and get on the live reader;
// get on the owner before an adoption.
func (a *Applier) Apply(ctx context.Context, plan ownership.Plan) (Result, error) {
	if plan.Owner == nil {
		return Result{}, errors.New("apply plan: it has no owner, make it with Plan")
	}
	owner, ok := plan.Owner.(client.Object)
	if !ok {
		return Result{}, fmt.Errorf("apply plan: owner of type %T is not a client.Object", plan.Owner)
	}
	res := a.newResult(owner)
	out := make([]ownership.Decision, len(plan.Decisions))
	copy(out, plan.Decisions)

	var err error
	if plan.Owner, err = a.record(ctx, plan.Owner, func() (ownership.Object, error) { return a.set.RecordBefore(plan) }, &res); err != nil {
		return res, err
	}
	if err := a.allowAdoption(ctx, owner, out); err != nil {
		return res, err
	}
	declared := 0
	for declared < len(out) && out[declared].Desired {
		declared++
	}
	blocked := ""
	for from := 0; from < declared; {
		to := from
		for to < declared && out[to].Ref.GroupVersionKind == out[from].Ref.GroupVersionKind {
			to++
		}
		a.each(ctx, plan, out[from:to])
		from = to
	}
	for _, d := range out[:declared] {
		if blocked == "" && !applied(d) {
			blocked = d.Ref.String()
		}
	}
	if blocked != "" {
		for i := declared; i < len(out); i++ {
			if out[i].Verb == ownership.Prune {
				out[i].Verb = ownership.Keep
				out[i].Why = "not pruned: " + blocked + " could not be applied in this pass"
			}
		}
	}
	a.each(ctx, plan, out[declared:])

	var errs []error
	for i := range out {
		if out[i].Err != nil {
			errs = append(errs, out[i].Err)
		}
	}
	res.fill(out)
	plan.Decisions = out
	if _, err := a.record(ctx, plan.Owner, func() (ownership.Object, error) { return a.set.RecordAfter(plan) }, &res); err != nil {
		errs = append(errs, err)
	}
	return res, errors.Join(errs...)
}

// record applies a document about the owner, unforced first: somebody else's value is looked at once by the server,
// then overruled, because the record is ours by its tooling annotation. It returns the owner as it is afterwards.
func (a *Applier) record(ctx context.Context, owner ownership.Object, make func() (ownership.Object, error), res *Result) (ownership.Object, error) {
	doc, err := make()
	if err != nil || doc == nil {
		return owner, err
	}
	u, ok := doc.(*unstructured.Unstructured)
	if !ok {
		return owner, fmt.Errorf("record ApplySet on %s: document of type %T", a.ownerRef(owner), doc)
	}
	opts := []client.ApplyOption{client.FieldOwner(a.set.RecordManager())}
	body := u.DeepCopy()
	err = a.c.Apply(ctx, client.ApplyConfigurationFromUnstructured(body), opts...)
	if fieldConflict(err) {
		body = u.DeepCopy()
		err = a.c.Apply(ctx, client.ApplyConfigurationFromUnstructured(body), append(opts, client.ForceOwnership)...)
	}
	if err != nil {
		return owner, fmt.Errorf("record ApplySet on %s: %w", a.ownerRef(owner), err)
	}
	res.Owner = a.typed(body)
	return res.Owner, nil
}

// applied says that a declared object is on the server as declared.
func applied(d ownership.Decision) bool {
	if d.Err != nil {
		return false
	}
	switch d.Verb {
	case ownership.Keep, ownership.Create, ownership.Update, ownership.Adopt:
		return d.Evidence.Hash != ""
	case ownership.Release, ownership.Prune, ownership.Conflict, ownership.Wait:
		return false
	}
	return false
}

// each carries decisions out, a.parallel at a time, and returns when all are done.
func (a *Applier) each(ctx context.Context, plan ownership.Plan, ds []ownership.Decision) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, a.parallel)
	for i := range ds {
		d := &ds[i]
		if d.Verb == ownership.Keep && d.Evidence.Hash != "" {
			a.mem.remember(d.UID, d.Evidence)
		}
		if !d.Verb.Writes() {
			continue
		}
		if err := ctx.Err(); err != nil {
			d.Err = fmt.Errorf("%s: %w", verbOf(*d), err)
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			*d = a.carry(ctx, plan, *d)
			if a.observe != nil && (d.Verb.Writes() || d.Err != nil) {
				a.observe(Event{Owner: a.ownerRef(plan.Owner), Decision: *d})
			}
		})
	}
	wg.Wait()
}

func (a *Applier) carry(ctx context.Context, plan ownership.Plan, d ownership.Decision) ownership.Decision {
	switch d.Verb {
	case ownership.Create, ownership.Update, ownership.Adopt:
		return a.write(ctx, plan, d)
	case ownership.Prune:
		return a.prune(ctx, plan, d)
	case ownership.Release:
		return a.release(ctx, plan, d)
	case ownership.Keep, ownership.Conflict, ownership.Wait:
		return d
	}
	return d
}

// allowAdoption reads the owner live, once per pass, before the first adoption: a cached owner may be terminating or
// re-created on the server, and what it adopts then is collected with it.
func (a *Applier) allowAdoption(ctx context.Context, owner client.Object, ds []ownership.Decision) error {
	checked, why := false, ""
	for i := range ds {
		d := &ds[i]
		if d.Verb != ownership.Adopt {
			continue
		}
		if why := a.mem.refusedBefore(*d); why != "" {
			d.Verb, d.Why, d.Evidence, d.Object = ownership.Conflict, why, ownership.Evidence{}, nil
			continue
		}
		if !checked {
			var err error
			if why, err = a.notLive(ctx, owner); err != nil {
				return err
			}
			checked = true
		}
		if why != "" {
			d.Verb, d.Why, d.Evidence, d.Object = ownership.Keep, "not adopted: "+why, ownership.Evidence{}, nil
		}
	}
	return nil
}

// notLive says why the owner must not take anything, or "".
func (a *Applier) notLive(ctx context.Context, owner ownership.Object) (string, error) {
	ref := a.ownerRef(owner)
	o, err := a.get(ctx, a.live, ref)
	switch {
	case err != nil:
		return "", fmt.Errorf("check the owner: %w", err)
	case o == nil:
		return "the owner is gone", nil
	case o.GetUID() != owner.GetUID():
		return "the owner was created anew", nil
	case o.GetDeletionTimestamp() != nil:
		return "the owner is being deleted", nil
	}
	return "", nil
}

func (a *Applier) ownerRef(owner ownership.Object) ownership.Ref {
	return ownership.Ref{GroupVersionKind: a.set.Owner(), Namespace: owner.GetNamespace(), Name: owner.GetName()}
}

func verbOf(d ownership.Decision) string {
	switch d.Verb {
	case ownership.Create:
		return "create " + d.Ref.String()
	case ownership.Update:
		return "update " + d.Ref.String()
	case ownership.Adopt:
		return "adopt " + d.Ref.String()
	case ownership.Release:
		return "release " + d.Ref.String()
	case ownership.Prune:
		return "delete " + d.Ref.String()
	case ownership.Keep, ownership.Conflict, ownership.Wait:
		return "keep " + d.Ref.String()
	}
	return d.Ref.String()
}

// movedOn says that an error means another incarnation or another version than the one the write was decided on.
func movedOn(err error) bool {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return true
	}
	if !apierrors.IsInvalid(err) {
		return false
	}
	var st apierrors.APIStatus
	if !errors.As(err, &st) || st.Status().Details == nil {
		return false
	}
	for _, c := range st.Status().Details.Causes {
		switch c.Field {
		case "metadata.uid", "metadata.ownerReferences": // another incarnation; a second controller
			return true
		}
	}
	return false
}
