// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

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
// Either owner may be the parent of another tool's ApplySet (kubectl apply --applyset), of the set's owner kind: from it,
// a child gets our claim; to it, it keeps nothing but the label of the new ApplySet, whose tool prunes it from then on if
// it manages the kind. Neither tool touches a parent of the other, so this is the only way a member changes hands.
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

// moveOps tests and replaces every part of from's claim in place. For another tool nothing but the ApplySet label is
// left, and what another tool had gets our label.
func (a *Applier) moveOps(from, to client.Object, o client.Object) ([]op, error) {
	leaves, comes := a.set.ForeignTool(to) != "", a.set.ForeignTool(from) != ""
	ops, err := a.moveRefs(from, to, o, leaves)
	if err != nil {
		return nil, err
	}
	const part = "applyset.kubernetes.io/part-of"
	if id := ownership.ApplySetID(a.ownerRef(from)); o.GetLabels()[part] == id {
		path := "/metadata/labels/" + escape(part)
		ops = append(ops, op{"test", path, id}, op{"replace", path, ownership.ApplySetID(a.ownerRef(to))})
	} else if leaves {
		return nil, fmt.Errorf("%s manages an ApplySet, and the child is in none", a.set.ForeignTool(to))
	}
	was := string(from.GetUID())
	labels, notes := a.set.Claim(to)
	for k, v := range labels {
		path := "/metadata/labels/" + escape(k)
		switch have := o.GetLabels()[k]; {
		case have != was && !comes:
			continue
		case leaves:
			ops = append(ops, op{"test", path, was}, op{Op: "remove", Path: path})
			continue
		case !hasFinalizer(to, a.set.Finalizer()):
			return nil, fmt.Errorf("%w: %s lacks %s", ownership.ErrNoFinalizer, a.ownerRef(to), a.set.Finalizer())
		case have == was:
			ops = append(ops, op{"test", path, was}, op{"replace", path, v})
		default:
			ops = append(ops, op{"add", path, v})
		}
	}
	if comes && len(o.GetAnnotations()) == 0 {
		ops = append(ops, op{"test", "/metadata/annotations", json.RawMessage("null")}, op{"add", "/metadata/annotations", map[string]string{}})
	}
	for k, v := range notes {
		path := "/metadata/annotations/" + escape(k)
		switch has := o.GetAnnotations()[k] != ""; {
		case leaves && has:
			ops = append(ops, op{Op: "remove", Path: path})
		case leaves:
		case has:
			ops = append(ops, op{"replace", path, v})
		case comes:
			ops = append(ops, op{"add", path, v})
		}
	}
	return ops, nil
}

func (a *Applier) moveRefs(from, to client.Object, o client.Object, leaves bool) (ops []op, err error) {
	was := string(from.GetUID())
	for i, r := range slices.Backward(o.GetOwnerReferences()) {
		if string(r.UID) != was {
			continue
		}
		path := fmt.Sprintf("/metadata/ownerReferences/%d", i)
		ops = append(ops, op{"test", path + "/uid", was})
		switch {
		case leaves:
			ops = append(ops, op{Op: "remove", Path: path})
		case !a.set.ClusterOwner() && to.GetNamespace() != o.GetNamespace():
			return nil, fmt.Errorf("%w: %s is in another namespace", ownership.ErrIllegalReference, a.ownerRef(to))
		default:
			r.APIVersion, r.Kind = a.set.Owner().ToAPIVersionAndKind()
			r.Name, r.UID = to.GetName(), to.GetUID()
			ops = append(ops, op{"replace", path, r})
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
