// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/ownership"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// HandOver moves the claims on named members from one owner to another of the same set, for example when a resource is
// split or renamed. Without it the old owner would prune what the new one declares. Each move is one JSON Patch that
// tests the incarnation and every value it replaces, so a child always has exactly one owner and the garbage collector
// never finds it unowned. The new owner is read live first: it must exist under its uid, not be terminating, and carry
// the set's finalizer where a claim is not native. Native claims move within a namespace only.
//
// A child that is to's already is left as it is, one that is neither's is a Conflict in the result. Declare the children
// for to, and no longer for from, in the passes that follow.
//
// Requests: one live read of to, one live read and one patch per child. Verbs: get and patch on the children.
func (a *Applier) HandOver(ctx context.Context, from, to client.Object, members ...ownership.Ref) (Result, error) {
	res := a.newResult(to)
	if from.GetUID() == "" || to.GetUID() == "" {
		return res, fmt.Errorf("hand over from %s to %s: metadata.uid: empty", a.ownerRef(from), a.ownerRef(to))
	}
	why, err := a.notLive(ctx, to)
	if err == nil && why != "" {
		err = fmt.Errorf("hand over to %s: %s", a.ownerRef(to), why)
	}
	if err != nil {
		return res, err
	}
	var errs []error
	out := make([]ownership.Decision, 0, len(members))
	for _, ref := range members {
		d := a.handOver(ctx, from, to, ref)
		if d.Err != nil {
			errs = append(errs, d.Err)
		}
		out = append(out, d)
	}
	res.fill(out)
	return res, errors.Join(errs...)
}

func (a *Applier) handOver(ctx context.Context, from, to client.Object, ref ownership.Ref) ownership.Decision {
	d := ownership.Decision{Ref: ref}
	o, err := a.get(ctx, a.live, ref)
	if err != nil {
		d.Err = err
		return d
	}
	if o == nil {
		d.Verb, d.Why = ownership.Wait, "does not exist"
		return d
	}
	d.UID, d.ResourceVersion, d.Object = o.GetUID(), o.GetResourceVersion(), o
	switch {
	case a.set.Claimed(to, o):
		d.Verb, d.Why = ownership.Keep, "is the new owner's already"
		return d
	case o.GetDeletionTimestamp() != nil:
		d.Verb, d.Why = ownership.Wait, "terminating"
		return d
	case !a.set.Claimed(from, o):
		d.Verb, d.Why = ownership.Conflict, "is not "+a.ownerRef(from).String()+"'s to give"
		return d
	}
	ops, err := a.moveOps(from, to, o)
	if err != nil {
		d.Err = fmt.Errorf("hand over %s: %w", ref, err)
		return d
	}
	body, err := json.Marshal(append([]op{{"test", "/metadata/uid", string(d.UID)}}, ops...))
	if err == nil {
		err = a.c.Patch(ctx, bare(ref), client.RawPatch(types.JSONPatchType, body), client.FieldOwner(a.set.Manager()))
	}
	switch {
	case apierrors.IsInvalid(err):
		d.Verb, d.Why = ownership.Conflict, "changed while it was handed over; try again"
	case err != nil:
		d.Err = fmt.Errorf("hand over %s: %w", ref, err)
	default:
		a.mem.forget(d.UID)
		d.Verb, d.Why = ownership.Update, "handed over to "+a.ownerRef(to).String()
	}
	return d
}

// moveOps tests and replaces every part of from's claim in place.
func (a *Applier) moveOps(from, to client.Object, o client.Object) ([]op, error) {
	var ops []op
	was := string(from.GetUID())
	for i, r := range o.GetOwnerReferences() {
		if string(r.UID) != was {
			continue
		}
		if !a.set.ClusterOwner() && to.GetNamespace() != o.GetNamespace() {
			return nil, fmt.Errorf("%w: %s is in another namespace", ownership.ErrIllegalReference, a.ownerRef(to))
		}
		path := fmt.Sprintf("/metadata/ownerReferences/%d", i)
		r.APIVersion, r.Kind = a.set.Owner().ToAPIVersionAndKind()
		r.Name, r.UID = to.GetName(), to.GetUID()
		ops = append(ops, op{"test", path + "/uid", was}, op{"replace", path, r})
	}
	wasLabels, _ := a.set.Claim(from)
	labels, notes := a.set.Claim(to)
	for k, v := range labels {
		if o.GetLabels()[k] != wasLabels[k] {
			continue
		}
		if !hasFinalizer(to, a.set.Finalizer()) {
			return nil, fmt.Errorf("%w: %s lacks %s", ownership.ErrNoFinalizer, a.ownerRef(to), a.set.Finalizer())
		}
		path := "/metadata/labels/" + escape(k)
		ops = append(ops, op{"test", path, was}, op{"replace", path, v})
	}
	const part = "applyset.kubernetes.io/part-of"
	if id := ownership.ApplySetID(a.ownerRef(from)); o.GetLabels()[part] == id {
		path := "/metadata/labels/" + escape(part)
		ops = append(ops, op{"test", path, id}, op{"replace", path, ownership.ApplySetID(a.ownerRef(to))})
	}
	for k, v := range notes {
		if o.GetAnnotations()[k] != "" {
			ops = append(ops, op{"replace", "/metadata/annotations/" + escape(k), v})
		}
	}
	return ops, nil
}

func hasFinalizer(o client.Object, name string) bool {
	for _, f := range o.GetFinalizers() {
		if f == name {
			return true
		}
	}
	return false
}
