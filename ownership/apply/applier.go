// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ashlar-go/ashlar/ownership"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	maxRemembered = 100_000
	// tries of one write before it is put off: the cached view, a live view, and a last one without resourceVersion.
	tries = 3
	// How soon to look again. Nothing but time tells us that a foreign object is gone, because its events are not
	// mapped to our owner; a member's end arrives as an event, so its wait is a safety net.
	conflictAfter = time.Minute
	waitAfter     = 10 * time.Second
	contendAfter  = 2 * time.Second
	// How old a child must be at the deletion of its owner for its reference to prove that nothing was orphaned.
	collectorLag = 10 * time.Second
)

// Applier finds the children of one owner kind and carries plans out. It is safe for concurrent use; make one per set
// and process, so that its memory of former writes serves every reconcile.
type Applier struct {
	c     client.Client
	live  client.Reader
	set   *ownership.Set
	kinds []ownership.Kind
	mem   *memory
	types sync.Map // reflect.Type to schema.GroupVersionKind

	parallel    int
	settle      time.Duration
	pace        pace
	propagation metav1.DeletionPropagation
	observe     func(Event)
	now         func() time.Time
	sweepDelete bool

	indexed     atomic.Bool
	nonBlocking atomic.Bool // admission refused blockOwnerDeletion once
}

// New makes an Applier for a set. c reads children from its cache and writes; live is an uncached reader
// (mgr.GetAPIReader()) for the few reads that must be right: after a conflict, before an adoption, and at the end of a
// teardown. New sends nothing.
func New(c client.Client, live client.Reader, s *ownership.Set, opts ...Option) (*Applier, error) {
	if c == nil || live == nil || s == nil {
		return nil, errors.New("new applier: client, live reader and set are required")
	}
	a := &Applier{c: c, live: live, set: s, kinds: s.Kinds(), mem: newMemory(maxRemembered),
		parallel: 8, propagation: metav1.DeletePropagationBackground, now: time.Now}
	for _, o := range opts {
		if o != nil {
			o.applyApplier(a)
		}
	}
	if a.parallel < 1 {
		return nil, fmt.Errorf("new applier for set %q: WithParallel(%d): at least 1", s.Name(), a.parallel)
	}
	if a.settle < 0 {
		return nil, fmt.Errorf("new applier for set %q: WithSettle(%v): at least 0", s.Name(), a.settle)
	}
	switch a.propagation {
	case metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan:
	default:
		return nil, fmt.Errorf("new applier for set %q: WithPropagation(%q): unknown policy", s.Name(), a.propagation)
	}
	return a, nil
}

// Plan reads the children from the cache and decides; it writes nothing. desired may be typed objects with an empty
// TypeMeta: the client's scheme knows their kind. None of the arguments is changed.
//
// A *ownership.PruneError comes with a usable plan; every other error with an empty one. Requests: none with a warm
// cache. Verbs on the declared kinds: get, list and watch, for the cache.
func (a *Applier) Plan(ctx context.Context, owner client.Object, desired []client.Object, p ownership.Policy) (ownership.Plan, error) {
	live, err := a.read(ctx, owner, desired)
	if err != nil {
		return ownership.Plan{}, err
	}
	objs := make([]ownership.Object, len(desired))
	for i, d := range desired {
		objs[i] = d
	}
	plan, err := a.set.Plan(owner, objs, live, p, a.planOptions()...)
	a.skipDeleted(plan)
	return plan, err
}

// Sync is Plan followed by Apply. When the plan is refused in part (*ownership.PruneError), the rest is carried out
// and the error is returned beside the result.
//
// Requests: none when nothing changed, one apply per changed child and one delete per pruned child; one live read of
// the owner when something is adopted; after a conflict one live read and one more write, at most twice per child.
func (a *Applier) Sync(ctx context.Context, owner client.Object, desired []client.Object, p ownership.Policy) (Result, error) {
	plan, refused := a.Plan(ctx, owner, desired, p)
	if refused != nil && !errors.Is(refused, ownership.ErrPruneRefused) {
		return a.newResult(owner), refused
	}
	res, err := a.Apply(ctx, plan)
	return res, errors.Join(refused, err)
}

// Teardown deletes the claimed members of the named kinds, all declared kinds when none is named, and reports until
// they are gone: res.Done() answers a cleanup step. See (*ownership.Set).Teardown for what is deleted and what is
// released. Objects that carry the claim without ever having been applied, such as volumes from a claimed template,
// are members like any other.
//
// When the cache shows nothing, one live list per label-carried kind confirms it, because a child that is not in the
// cache yet would be leaked with the owner's finalizer.
//
// A native child that names the owner and has lost its reference is taken for one that was orphaned, also when somebody
// stripped it by hand, unless another one that is older than the deletion still has its reference on the server: leaving
// too much behind can be mended.
//
// Requests: one delete per member, none for terminating ones, and the confirming lists; one live read of a natively
// claimed sibling before members are deleted or released, because only the children tell an orphaned owner from another,
// and the cache may be behind.
func (a *Applier) Teardown(ctx context.Context, owner client.Object, kinds ...schema.GroupKind) (Result, error) {
	live, err := a.read(ctx, owner, nil)
	if err != nil {
		return a.newResult(owner), err
	}
	plan, err := a.set.Teardown(owner, live, kinds, a.planOptions()...)
	if err != nil {
		return a.newResult(owner), err
	}
	if i := a.evidence(owner, plan, live); i >= 0 {
		// The cache of the children may be older than the cache of the owner: look at one sibling as it is now.
		now, err := a.get(ctx, a.live, a.refOf(live[i]))
		if err != nil {
			return a.newResult(owner), err
		}
		if now != nil {
			live[i] = now
			if refersTo(now, owner) && known(now, owner) {
				// The collector strips every reference before its finalizer goes, so nothing was orphaned: those who
				// lost theirs did so by hand.
				live = slices.DeleteFunc(live, func(o ownership.Object) bool {
					return !a.set.Claimed(owner, o) && !slices.Contains(a.set.Claimants(o), string(owner.GetUID()))
				})
			}
			if plan, err = a.set.Teardown(owner, live, kinds, a.planOptions()...); err != nil {
				return a.newResult(owner), err
			}
		}
	}
	if len(plan.Decisions) == 0 {
		unseen, err := a.unseen(ctx, owner, kinds)
		if err != nil {
			return a.newResult(owner), err
		}
		plan.Decisions = unseen
	}
	a.skipDeleted(plan)
	res, err := a.Apply(ctx, plan)
	res.torn = true
	return res, err
}

// evidence is the index of the oldest natively claimed child, which would show whether the owner is orphaned, or -1 when
// nothing depends on it or the owner says it itself.
func (a *Applier) evidence(owner client.Object, plan ownership.Plan, live []ownership.Object) int {
	if owner.GetDeletionTimestamp() == nil || slices.Contains(owner.GetFinalizers(), metav1.FinalizerDeleteDependents) ||
		slices.Contains(owner.GetFinalizers(), metav1.FinalizerOrphanDependents) {
		return -1
	}
	matters := slices.ContainsFunc(plan.Decisions, func(d ownership.Decision) bool {
		return d.Verb == ownership.Release || d.Verb == ownership.Prune && !a.kindFor(d.Ref.GroupVersionKind).NeededByCleanup
	})
	if !matters {
		return -1
	}
	oldest := -1
	for i, o := range live {
		if refersTo(o, owner) && (oldest < 0 || o.GetCreationTimestamp().Time.Before(live[oldest].GetCreationTimestamp().Time)) {
			oldest = i
		}
	}
	return oldest
}

func refersTo(o, owner ownership.Object) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == owner.GetUID() })
}

// known says that the collector must have known the child when the owner was deleted: its view of the cluster lags, and
// it misses what was created a moment before.
func known(o, owner ownership.Object) bool {
	return o.GetCreationTimestamp().Add(collectorLag).Before(owner.GetDeletionTimestamp().Time)
}

func (a *Applier) kindFor(gvk schema.GroupVersionKind) ownership.Kind {
	for _, k := range a.kinds {
		if k.GroupVersionKind == gvk {
			return k
		}
	}
	return ownership.Kind{}
}

// refOf names an object that read returned, whose kind is therefore declared and known.
func (a *Applier) refOf(o ownership.Object) ownership.Ref {
	gvk, _ := a.kindOf(o)
	return ownership.Ref{GroupVersionKind: gvk, Namespace: o.GetNamespace(), Name: o.GetName()}
}

func (a *Applier) planOptions() []ownership.PlanOption {
	return []ownership.PlanOption{ownership.Remembering(a.mem.recall), ownership.KindOf(a.kindOf)}
}

// kindOf asks the client's scheme once per Go type.
func (a *Applier) kindOf(o ownership.Object) (schema.GroupVersionKind, error) {
	if gvk := o.GetObjectKind().GroupVersionKind(); !gvk.Empty() {
		return gvk, nil
	}
	t := reflect.TypeOf(o)
	if gvk, ok := a.types.Load(t); ok {
		return gvk.(schema.GroupVersionKind), nil
	}
	gvk, err := a.c.GroupVersionKindFor(o)
	if err != nil {
		return gvk, fmt.Errorf("find the kind of %T %s/%s: %w", o, o.GetNamespace(), o.GetName(), err)
	}
	a.types.Store(t, gvk)
	return gvk, nil
}

// skipDeleted turns a Prune whose delete the server has already accepted into Wait: the cache is behind. The uid never
// comes back, so this needs no expiry.
func (a *Applier) skipDeleted(plan ownership.Plan) {
	for i := range plan.Decisions {
		d := &plan.Decisions[i]
		if d.Verb == ownership.Prune && a.mem.isDeleted(d.UID) {
			d.Verb, d.Why = ownership.Wait, "deleted a moment ago, the cache has not seen it yet"
		}
	}
}
