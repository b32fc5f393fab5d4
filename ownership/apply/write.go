// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/ashlar-go/ashlar/ownership"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrForbiddenReference is matched by errors about an owner reference that the OwnerReferencesPermissionEnforcement
// admission plugin refused; the text names the missing RBAC rule.
var ErrForbiddenReference = errors.New("admission refused the owner reference")

// write sends one apply and, when the world moved on, reads the child live, plans it anew and tries again.
func (a *Applier) write(ctx context.Context, plan ownership.Plan, d ownership.Decision) ownership.Decision {
	for try := 1; ; try++ {
		reply, err := a.send(ctx, d, d.Verb == ownership.Update)
		if d.Verb == ownership.Adopt && a.onlyOurKeys(plan.Owner, err) {
			reply, err = a.send(ctx, d, true)
		}
		if err == nil {
			return a.written(plan, d, reply)
		}
		if d.Verb == ownership.Adopt && fieldConflict(err) {
			why := "another field manager disagrees: " + err.Error()
			a.mem.markRefused(d, why)
			d.Verb, d.Why = ownership.Conflict, why
			d.Evidence, d.Object = ownership.Evidence{}, nil
			return d
		}
		if !movedOn(err) {
			d.Err = fmt.Errorf("%s: %w", verbOf(d), err)
			return d
		}
		next, rerr := a.replan(ctx, plan, d)
		if rerr != nil {
			d.Err = fmt.Errorf("%s: %w", verbOf(d), errors.Join(err, rerr))
			return d
		}
		if next.Verb == ownership.Keep && next.Evidence.Hash != "" {
			a.mem.remember(next.UID, next.Evidence)
		}
		if !next.Verb.Writes() {
			return next
		}
		if try == tries && apierrors.IsInvalid(err) {
			d.Err = fmt.Errorf("%s: %w", verbOf(d), err) // not a race: the server refuses the document each time
			return d
		}
		if try == tries {
			next.Verb, next.Evidence, next.Object = ownership.Wait, ownership.Evidence{}, nil
			next.Why = fmt.Sprintf("busy: changed by others during %d tries", tries)
			return next
		}
		if next.Verb == ownership.Adopt || (try == tries-1 && next.Verb == ownership.Update) {
			// Either write is safe only for an owner that is alive: an adopted child, or one whose reference we would put
			// back, is collected with a terminating owner.
			why, lerr := a.notLive(ctx, plan.Owner)
			if lerr != nil || why != "" {
				next.Verb, next.Why = ownership.Wait, "not written: "+why
				next.Err, next.Evidence, next.Object = lerr, ownership.Evidence{}, nil
				return next
			}
			if next.Verb == ownership.Update {
				next = withoutVersion(next)
			}
		}
		d = next
	}
}

// send applies the document of a decision and returns what the server stored.
func (a *Applier) send(ctx context.Context, d ownership.Decision, force bool) (*unstructured.Unstructured, error) {
	doc, ok := d.Object.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("the decision holds %T instead of a document", d.Object)
	}
	opts := []client.ApplyOption{client.FieldOwner(a.set.Manager())}
	if force {
		opts = append(opts, client.ForceOwnership)
	}
	body := &unstructured.Unstructured{Object: maps.Clone(doc.Object)} // the reply replaces the content
	blocking := !a.nonBlocking.Load()
	if !blocking {
		body.Object = withoutBlocking(doc.Object)
	}
	err := a.c.Apply(ctx, client.ApplyConfigurationFromUnstructured(body), opts...)
	if !apierrors.IsForbidden(err) {
		return body, err
	}
	switch {
	case blocking && strings.Contains(err.Error(), "cannot set blockOwnerDeletion"):
		body = &unstructured.Unstructured{Object: withoutBlocking(doc.Object)}
		again := a.c.Apply(ctx, client.ApplyConfigurationFromUnstructured(body), opts...)
		if again == nil {
			a.nonBlocking.Store(true) // the right is missing for good: spare the next child the refusal
			return body, nil
		}
		return nil, fmt.Errorf("%w, with blockOwnerDeletion (needs update on %s) and without: %w",
			ErrForbiddenReference, a.finalizersResource(), again)
	case strings.Contains(err.Error(), "cannot set an ownerRef"):
		return nil, fmt.Errorf("%w (needs delete on %s): %w", ErrForbiddenReference, a.resource(d.Ref), err)
	}
	return nil, err
}

// written turns the reply into the decision's outcome and remembers it.
func (a *Applier) written(plan ownership.Plan, d ownership.Decision, reply *unstructured.Unstructured) ownership.Decision {
	d.UID, d.ResourceVersion = reply.GetUID(), reply.GetResourceVersion()
	e := ownership.Evidence{ResourceVersion: d.ResourceVersion, Hash: d.Evidence.Hash, Quick: d.Evidence.Quick}
	// What the server stored may differ from what was sent, where admission rewrote a list. Planning against the reply
	// finds out, and the print of that state tells later passes that nothing has happened since.
	if p, err := a.set.Plan(plan.Owner, []ownership.Object{d.Object}, []ownership.Object{reply}, ownership.Policy{}); err == nil &&
		p.Decisions[0].Verb == ownership.Update {
		e.Print = p.Decisions[0].Evidence.Print
	}
	d.Evidence = e
	a.mem.remember(d.UID, e)
	d.Object = a.typed(reply)
	return d
}

// replan reads the child live and decides anew.
func (a *Applier) replan(ctx context.Context, plan ownership.Plan, d ownership.Decision) (ownership.Decision, error) {
	o, err := a.get(ctx, a.live, d.Ref)
	if err != nil {
		return d, err
	}
	var live []ownership.Object
	if o != nil {
		live = append(live, o)
	}
	p, err := a.set.Plan(plan.Owner, []ownership.Object{d.Object}, live, ownership.Policy{Adopt: plan.Policy.Adopt}, a.planOptions()...)
	if err != nil {
		return d, err
	}
	next := p.Decisions[0]
	next.Evidence.Quick = d.Evidence.Quick // of the declared object, not of the document that was planned here
	return next, nil
}

// typed converts a reply to the Go type the scheme knows, so that Result.Objects has one type per kind.
func (a *Applier) typed(u *unstructured.Unstructured) client.Object {
	o, err := a.newObject(u.GroupVersionKind())
	if err != nil {
		return u
	}
	if _, ok := o.(*unstructured.Unstructured); ok {
		return u
	}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o) != nil {
		return u
	}
	return o
}

func fieldConflict(err error) bool {
	return apierrors.IsConflict(err) && apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict)
}

// onlyOurKeys says that an unforced apply was refused for nothing but the keys of this set: what an earlier hand-over or
// somebody's hand left there is no declared field that anybody disagrees about, so the adoption may overrule it.
func (a *Applier) onlyOurKeys(owner ownership.Object, err error) bool {
	var st apierrors.APIStatus
	if !fieldConflict(err) || !errors.As(err, &st) || st.Status().Details == nil {
		return false
	}
	labels, notes := a.set.Claim(owner)
	for _, c := range st.Status().Details.Causes {
		label, isLabel := strings.CutPrefix(c.Field, ".metadata.labels.")
		note, isNote := strings.CutPrefix(c.Field, ".metadata.annotations.")
		_, ours := labels[label]
		_, noted := notes[note]
		if !(isLabel && ours || isNote && (noted || note == ownership.AppliedAnnotation)) {
			return false
		}
	}
	return true
}

func withoutVersion(d ownership.Decision) ownership.Decision {
	doc, ok := d.Object.(*unstructured.Unstructured)
	if !ok {
		return d
	}
	out := maps.Clone(doc.Object)
	md, _ := out["metadata"].(map[string]any)
	md = maps.Clone(md)
	delete(md, "resourceVersion")
	out["metadata"] = md
	d.Object = &unstructured.Unstructured{Object: out}
	return d
}

// withoutBlocking copies a document with blockOwnerDeletion off in every owner reference.
func withoutBlocking(doc map[string]any) map[string]any {
	out := maps.Clone(doc)
	md, _ := out["metadata"].(map[string]any)
	refs, ok := md["ownerReferences"].([]any)
	if !ok {
		return out
	}
	md = maps.Clone(md)
	copied := make([]any, len(refs))
	for i, r := range refs {
		copied[i] = r
		if m, ok := r.(map[string]any); ok && m["blockOwnerDeletion"] == true {
			m = maps.Clone(m)
			m["blockOwnerDeletion"] = false
			copied[i] = m
		}
	}
	md["ownerReferences"] = copied
	out["metadata"] = md
	return out
}

func (a *Applier) finalizersResource() string {
	owner := ownership.Kind{GroupVersionKind: a.set.Owner()}
	return owner.Plural() + "/finalizers in group " + quoted(owner.Group)
}

func (a *Applier) resource(ref ownership.Ref) string {
	for _, k := range a.kinds {
		if k.GroupKind() == ref.GroupKind() {
			return k.Plural() + " in group " + quoted(k.Group)
		}
	}
	return ref.Kind
}

func quoted(s string) string { return `"` + s + `"` }
