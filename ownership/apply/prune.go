// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/ashlar-go/ashlar/ownership"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// prune deletes exactly the incarnation and the version the decision saw. When that has moved on, a live read decides
// whether it still is a member; the third try carries the uid alone, because a busy status must not keep it alive.
func (a *Applier) prune(ctx context.Context, plan ownership.Plan, d ownership.Decision) ownership.Decision {
	uid, rv := d.UID, d.ResourceVersion
	for try := 1; ; try++ {
		pre := client.Preconditions{UID: &uid, ResourceVersion: &rv}
		if try == tries {
			pre.ResourceVersion = nil
		}
		err := a.c.Delete(ctx, bare(d.Ref), pre, client.PropagationPolicy(a.propagation))
		switch {
		case err == nil:
			a.mem.markDeleted(uid)
			return d
		case apierrors.IsNotFound(err):
			d.Why += "; it was gone already"
			return d
		case !apierrors.IsConflict(err) || try == tries:
			d.Err = fmt.Errorf("%s: %w", verbOf(d), err)
			return d
		}
		o, gerr := a.get(ctx, a.live, d.Ref)
		switch {
		case gerr != nil:
			d.Err = fmt.Errorf("%s: %w", verbOf(d), gerr)
			return d
		case o == nil:
			d.Why += "; it was gone already"
			return d
		case o.GetUID() != uid:
			d.Verb, d.Why, d.Object = ownership.Conflict, "created anew since it was seen: the new one is left alone", o
			return d
		case o.GetDeletionTimestamp() != nil:
			d.Verb, d.Why, d.Object = ownership.Wait, "terminating", o
			return d
		case !a.set.Claimed(plan.Owner, o):
			d.Verb, d.Why, d.Object = ownership.Keep, "no longer ours", o
			return d
		}
		rv = o.GetResourceVersion()
	}
}

// release removes exactly our claim, by a JSON Patch that tests the incarnation and each value it removes, so that
// other owners' references keep their places. An apply could not do it: leaving the rest of the object out of the
// document would remove the rest of the object.
func (a *Applier) release(ctx context.Context, plan ownership.Plan, d ownership.Decision) ownership.Decision {
	o, ok := d.Object.(client.Object)
	for try := 1; ok; try++ {
		ops := a.releaseOps(plan.Owner, o)
		if len(ops) == 0 {
			return d
		}
		body, err := json.Marshal(append([]op{{"test", "/metadata/uid", string(d.UID)}}, ops...))
		if err == nil {
			err = a.c.Patch(ctx, bare(d.Ref), client.RawPatch(types.JSONPatchType, body), client.FieldOwner(a.set.Manager()))
		}
		switch {
		case err == nil:
			a.mem.forget(d.UID)
			return d
		case apierrors.IsNotFound(err):
			d.Why += "; it was gone already"
			return d
		case !apierrors.IsInvalid(err) || try == tries:
			d.Err = fmt.Errorf("%s: %w", verbOf(d), err)
			return d
		}
		if o, err = a.get(ctx, a.live, d.Ref); err != nil {
			d.Err = fmt.Errorf("%s: %w", verbOf(d), err)
			return d
		}
		if o == nil || o.GetUID() != d.UID {
			d.Why += "; it was gone already"
			return d
		}
	}
	d.Err = fmt.Errorf("%s: the decision holds %T instead of the live object", verbOf(d), d.Object)
	return d
}

type op struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// releaseOps tests and removes each part of our claim, list entries from the end so that indexes stay right.
func (a *Applier) releaseOps(owner ownership.Object, o client.Object) []op {
	var ops []op
	uid := string(owner.GetUID())
	refs := o.GetOwnerReferences()
	for i := len(refs) - 1; i >= 0; i-- {
		if string(refs[i].UID) == uid {
			path := fmt.Sprintf("/metadata/ownerReferences/%d", i)
			ops = append(ops, op{"test", path + "/uid", uid}, op{Op: "remove", Path: path})
		}
	}
	claim, notes := a.set.Claim(owner)
	for k, v := range claim {
		if o.GetLabels()[k] == v {
			ops = append(ops, op{"test", "/metadata/labels/" + escape(k), v}, op{Op: "remove", Path: "/metadata/labels/" + escape(k)})
		}
	}
	if len(ops) == 0 {
		return nil
	}
	for k, v := range notes {
		if o.GetAnnotations()[k] == v {
			path := "/metadata/annotations/" + escape(k)
			ops = append(ops, op{"test", path, v}, op{Op: "remove", Path: path})
		}
	}
	return ops
}

// escape a JSON Pointer token (RFC 6901).
func escape(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "~", "~0"), "/", "~1")
}

// bare names an object without content, for requests that send none.
func bare(ref ownership.Ref) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(ref.GroupVersionKind)
	u.SetNamespace(ref.Namespace)
	u.SetName(ref.Name)
	return u
}
