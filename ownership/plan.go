// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Verb is what a plan does with one object.
type Verb int

const (
	// Keep writes nothing: the object is as declared, or must not be touched; Why says which.
	Keep Verb = iota
	// Create applies an object that does not exist. The request cannot hit an existing one.
	Create
	// Update applies to a member of ours that differs from what is declared.
	Update
	// Adopt applies to an existing object nobody controls, without force over anything but the keys of this set.
	Adopt
	// Release removes exactly our claim and leaves the object alive.
	Release
	// Prune deletes a member that is not declared any more.
	Prune
	// Conflict writes nothing: somebody else holds the name, and Why says who.
	Conflict
	// Wait writes nothing: an object of the name is on its way out.
	Wait
)

// String is the name of the constant.
func (v Verb) String() string {
	if v < Keep || v > Wait {
		return fmt.Sprintf("Verb(%d)", int(v))
	}
	return [...]string{"Keep", "Create", "Update", "Adopt", "Release", "Prune", "Conflict", "Wait"}[v]
}

// Writes reports whether carrying the verb out sends a write.
func (v Verb) Writes() bool {
	switch v {
	case Create, Update, Adopt, Release, Prune:
		return true
	case Keep, Conflict, Wait:
		return false
	}
	return false
}

// Decision is what a plan does with one object, and why.
type Decision struct {
	Verb Verb // what is done
	Ref  Ref  // with which object
	// UID and ResourceVersion of the live object the decision was made on; empty for Create.
	UID             types.UID
	ResourceVersion string
	// Why is one sentence for humans.
	Why string
	// Object is the document Apply sends, for Create, Update and Adopt. Otherwise it is the live object if there is one.
	// It is read-only: parts of it are shared with the caller's objects and with the cache.
	Object Object
	// Desired says that the object is declared now, as opposed to found.
	Desired bool
	// Evidence to remember once the decision has been carried out; only of declared objects.
	Evidence Evidence
	// Err is set by an executor whose request failed.
	Err error
}

// String reads "Update ConfigMap a/b: .data.x differs".
func (d Decision) String() string {
	s := d.Verb.String() + " " + d.Ref.String() + ": " + d.Why
	if d.Err != nil {
		s += ": " + d.Err.Error()
	}
	return s
}

// Plan is what a pass will do: first the declared objects in the caller's order, then the rest, kinds in reverse
// declaration order and names ascending, so that equal input gives an equal plan.
type Plan struct {
	// Owner and Policy the plan was made for; an executor re-plans single objects with them after a conflict.
	Owner  Object
	Policy Policy
	// Teardown says that the plan comes from (*Set).Teardown.
	Teardown bool
	// Decisions in the order they are carried out.
	Decisions []Decision
}

// Empty reports whether carrying the plan out sends no write.
func (p Plan) Empty() bool {
	return !slices.ContainsFunc(p.Decisions, func(d Decision) bool { return d.Verb.Writes() })
}

// String has one line per decision.
func (p Plan) String() string {
	var b strings.Builder
	for _, d := range p.Decisions {
		b.WriteString(d.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// Plan decides what to do with declared and live children of owner. It sends nothing, changes none of its arguments,
// and is linear in len(desired) + len(live).
//
// live holds the objects the caller knows about: members, and whatever has the name of a declared object. Objects of
// undeclared kinds and objects without our claim are left alone.
//
// Rules, in order, for a declared object:
//
//  1. None of the name: Create; on a terminating owner only kinds with NeededByCleanup, otherwise Keep.
//  2. One that is terminating: Wait.
//  3. Controlled by somebody else: Conflict. A namesake of the owner with another uid is somebody else; if its claim is
//     native, the garbage collector is about to delete the object: Wait. Policy.Adopt takes such an object over.
//  4. Ours, by uid: Update if the claim or a declared field differs, else Keep.
//  5. Nobody's: Adopt if Policy.Adopt allows, else Conflict. On a terminating owner nothing is adopted, and a child
//     whose native reference is gone (orphan deletion strips it first) is no longer ours: Keep, untouched.
//
// And for a live object that is not declared and carries our claim:
//
//  6. Controlled by somebody else: Conflict. Terminating: Wait. Owner terminating: Keep (see Teardown).
//  7. The same uid as a declared object (one object served by two groups): Keep. A Found or protected kind, or a
//     Namespace that still holds members: Keep.
//  8. Prune, unless the policy refuses: then every Prune becomes Keep and the error is a *PruneError, beside the plan.
//
// Other errors return an empty plan: an undeclared or mismatching kind, a missing name or namespace, a name declared
// twice, ErrIllegalReference, ErrNoFinalizer.
func (s *Set) Plan(owner Object, desired, live []Object, p Policy, opts ...PlanOption) (Plan, error) {
	pl, err := s.newPlanner(owner, live, opts)
	if err != nil {
		return Plan{}, err
	}
	pl.policy = p
	plan := Plan{Owner: owner, Policy: p, Decisions: make([]Decision, 0, len(desired)+4)}
	var errs []error
	for _, d := range desired {
		dec, err := pl.declared(d)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		plan.Decisions = append(plan.Decisions, dec)
	}
	if len(errs) > 0 {
		return Plan{}, errors.Join(errs...)
	}
	rest, refused := pl.rest(len(desired))
	plan.Decisions = append(plan.Decisions, rest...)
	if refused != nil {
		return plan, refused
	}
	return plan, nil
}

type key struct {
	kind     int
	ns, name string
}

type planner struct {
	set          *Set
	recall       func(types.UID) (Evidence, bool)
	kindOf       func(Object) (schema.GroupVersionKind, error)
	policy       Policy
	owner        identity
	terminating  bool
	hasFinalizer bool
	live         map[key]int
	members      []member
}

type member struct {
	obj  Object
	key  key
	hold hold
	want bool // declared
}

func (s *Set) newPlanner(owner Object, live []Object, opts []PlanOption) (*planner, error) {
	p := &planner{set: s}
	for _, o := range opts {
		if o != nil {
			o.applyPlan(p)
		}
	}
	if gvk := owner.GetObjectKind().GroupVersionKind(); !gvk.Empty() && gvk.GroupKind() != s.owner.GroupKind() {
		return nil, fmt.Errorf("plan children of %s %s/%s: owner: the set %q is declared for %s",
			gvk.Kind, owner.GetNamespace(), owner.GetName(), s.name, s.owner.GroupKind())
	}
	p.owner = s.identify(owner)
	switch {
	case p.owner.uid == "":
		return nil, fmt.Errorf("plan children of %s: metadata.uid: empty, read the owner from the server first", p.owner.ref)
	case s.clusterOwner && p.owner.ref.Namespace != "":
		return nil, fmt.Errorf("plan children of %s: metadata.namespace: the set %q is declared WithClusterOwner",
			p.owner.ref, s.name)
	case !s.clusterOwner && p.owner.ref.Namespace == "":
		return nil, fmt.Errorf("plan children of %s: metadata.namespace: empty, declare the set %q WithClusterOwner",
			p.owner.ref, s.name)
	}
	p.terminating = owner.GetDeletionTimestamp() != nil
	p.hasFinalizer = s.finalizer != "" && slices.Contains(owner.GetFinalizers(), s.finalizer)
	p.live = make(map[key]int, len(live))
	p.members = make([]member, 0, len(live))
	for _, l := range live {
		gvk, err := p.gvk(l)
		if err != nil {
			return nil, fmt.Errorf("plan children of %s: %w", p.owner.ref, err)
		}
		i, ok := s.byKind[gvk.GroupKind()]
		if !ok {
			continue
		}
		k := key{kind: i, ns: l.GetNamespace(), name: l.GetName()}
		if _, dup := p.live[k]; dup {
			continue
		}
		p.live[k] = len(p.members)
		p.members = append(p.members, member{obj: l, key: k, hold: s.holdOf(p.owner, l)})
	}
	return p, nil
}

func (p *planner) gvk(o Object) (schema.GroupVersionKind, error) {
	if gvk := o.GetObjectKind().GroupVersionKind(); !gvk.Empty() {
		return gvk, nil
	}
	if p.kindOf == nil {
		return schema.GroupVersionKind{}, fmt.Errorf("%T %s/%s: apiVersion and kind: empty", o, o.GetNamespace(), o.GetName())
	}
	return p.kindOf(o)
}

func (p *planner) refOf(k key) Ref {
	return Ref{GroupVersionKind: p.set.kinds[k.kind].GroupVersionKind, Namespace: k.ns, Name: k.name}
}

// found starts a decision about a live object.
func (p *planner) found(v Verb, m *member, why string) Decision {
	return Decision{Verb: v, Ref: p.refOf(m.key), UID: m.obj.GetUID(), ResourceVersion: m.obj.GetResourceVersion(),
		Why: why, Object: m.obj, Desired: m.want}
}

// sent starts a decision that applies a document.
func sent(v Verb, ref Ref, doc map[string]any, uid types.UID, rv, why string, e Evidence) Decision {
	return Decision{Verb: v, Ref: ref, UID: uid, ResourceVersion: rv, Why: why, Desired: true, Evidence: e,
		Object: &unstructured.Unstructured{Object: doc}}
}
