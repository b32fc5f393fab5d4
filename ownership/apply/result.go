// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"fmt"
	"strings"
	"time"

	"github.com/ashlar-go/ashlar/ownership"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Result is what a pass did.
type Result struct {
	// Decisions as they were carried out, in the order of the plan. Their objects are read-only.
	Decisions []ownership.Decision
	// RequeueAfter says when to look again: 0 when events of the children will tell, a minute after a conflict (events
	// of somebody else's object are not mapped to our owner), ten seconds while something is terminating.
	RequeueAfter time.Duration
	// Owner is the fresh owner when its ApplySet record was written, nil otherwise. Pass it on: what writes the owner
	// next needs its resourceVersion.
	Owner client.Object

	generation int64
	kinds      []ownership.Kind
	planned    bool
	torn       bool
}

func (a *Applier) newResult(owner client.Object) Result {
	return Result{generation: owner.GetGeneration(), kinds: a.kinds}
}

func (r *Result) fill(ds []ownership.Decision) {
	r.Decisions, r.planned = ds, true
	for _, d := range ds {
		switch {
		case d.Verb == ownership.Conflict:
			r.soon(conflictAfter)
		case d.Verb == ownership.Wait && strings.HasPrefix(d.Why, "busy"):
			r.soon(contendAfter)
		case d.Verb == ownership.Wait:
			r.soon(waitAfter)
		}
	}
}

// Objects returns the declared children that are on the server as declared, fresh from the reply where something was
// written and from the cache otherwise, in the order they were declared. They are copies, made by this call: the caller
// may change them.
func (r Result) Objects() []client.Object {
	out := make([]client.Object, 0, len(r.Decisions))
	for _, d := range r.Decisions {
		if !d.Desired || !applied(d) {
			continue
		}
		if o, ok := d.Object.(client.Object); ok {
			out = append(out, o.DeepCopyObject().(client.Object))
		}
	}
	return out
}

func (r *Result) soon(d time.Duration) {
	if r.RequeueAfter == 0 || d < r.RequeueAfter {
		r.RequeueAfter = d
	}
}

// Done reports that a Teardown found nothing left to delete, release or wait for. It is false for a pass that sent the
// last delete: the next pass confirms it.
func (r Result) Done() bool { return r.torn && len(r.Decisions) == 0 }

// Reasons of the conditions that Condition returns.
const (
	ReasonApplied     = "Applied"     // True: every declared object is applied and current
	ReasonNoneDesired = "NoneDesired" // True: the kind is declared and none is desired
	ReasonWaiting     = "Waiting"     // False: applied, not current yet, or the name is still taken by a terminating object
	ReasonFailed      = "Failed"      // False: the object itself reports that it cannot become current
	ReasonConflict    = "Conflict"    // False: somebody else holds the name
	ReasonApplyFailed = "ApplyFailed" // False: a request failed
	ReasonNotApplied  = "NotApplied"  // Unknown: the pass ended before anything was decided, or the set has no such kind
)

// Condition sums the declared objects of one kind up: True if every one is applied and, by the rules of kstatus,
// current. kind is a kind ("ConfigMap") or, where two groups share one, "Kind.group". Otherwise the worst object is
// named: a failed request before a conflict, before a failed object, before one that is on its way.
//
// With nothing desired of a declared kind the condition is True with reason NoneDesired, since nothing is missing; of a
// kind the set does not declare, or when the pass ended before it planned, it is Unknown with reason NotApplied.
//
// observedGeneration is the generation of the owner that was passed in. lastTransitionTime is left to whoever stores
// the condition.
func (r Result) Condition(typ, kind string) metav1.Condition {
	c := metav1.Condition{Type: typ, ObservedGeneration: r.generation}
	set := func(s metav1.ConditionStatus, reason, msg string) metav1.Condition {
		c.Status, c.Reason, c.Message = s, reason, msg
		return c
	}
	declared := false
	for _, k := range r.kinds {
		declared = declared || matches(k.GroupVersionKind.Kind, k.Group, kind)
	}
	switch {
	case !declared:
		return set(metav1.ConditionUnknown, ReasonNotApplied, "the set declares no kind "+kind)
	case !r.planned:
		return set(metav1.ConditionUnknown, ReasonNotApplied, "the pass ended before anything was applied")
	}
	n, worst := 0, 0
	reason, msg := "", ""
	note := func(rank int, why, text string) {
		if rank > worst {
			worst, reason, msg = rank, why, text
		}
	}
	for _, d := range r.Decisions {
		if !d.Desired || !matches(d.Ref.Kind, d.Ref.Group, kind) {
			continue
		}
		n++
		switch {
		case d.Err != nil:
			note(4, ReasonApplyFailed, d.Err.Error())
		case d.Verb == ownership.Conflict:
			note(3, ReasonConflict, d.Ref.String()+": "+d.Why)
		case !applied(d):
			note(1, ReasonWaiting, d.Ref.String()+": "+d.Why)
		default:
			switch st, text := current(d.Object, d.Ref.GroupKind()); st {
			case stateFailed:
				note(2, ReasonFailed, d.Ref.String()+": "+text)
			case stateWaiting:
				note(1, ReasonWaiting, d.Ref.String()+": "+text)
			case stateCurrent:
			}
		}
	}
	switch {
	case worst > 0:
		return set(metav1.ConditionFalse, reason, msg)
	case n == 0:
		return set(metav1.ConditionTrue, ReasonNoneDesired, "no "+kind+" is desired")
	}
	return set(metav1.ConditionTrue, ReasonApplied, fmt.Sprintf("%d %s applied and current", n, kind))
}

func matches(kind, group, want string) bool {
	return want == kind || want == kind+"."+group
}
