// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Teardown plans the removal of every claimed member of the named kinds (all declared kinds when none is named), for
// the cleanup of a terminating owner. Budget and protected kinds of a Policy do not apply: naming the kind is the
// permission. Members whose claim is somebody else's are Conflict, terminating ones Wait. When no kind is named, kinds
// with NeededByCleanup wait until the others are gone.
//
// When the owner is being orphaned (see Orphaned), members are released instead of deleted, except kinds with
// NeededByCleanup, which exist for the cleanup alone.
//
// An empty plan with no decisions means that nothing is left.
func (s *Set) Teardown(owner Object, live []Object, kinds []schema.GroupKind, opts ...PlanOption) (Plan, error) {
	for _, gk := range kinds {
		if _, ok := s.byKind[gk]; !ok {
			return Plan{}, fmt.Errorf("tear down %s of %s: %w in set %q", gk, s.identify(owner).ref, ErrUndeclared, s.name)
		}
	}
	p, err := s.newPlanner(owner, live, opts)
	if err != nil {
		return Plan{}, err
	}
	orphaned, _ := s.orphaned(owner, p)
	plan := Plan{Owner: owner, Teardown: true}
	order := make([]*member, 0, len(p.members))
	for i := range p.members {
		m := &p.members[i]
		if m.hold.ours() && (len(kinds) == 0 || slices.Contains(kinds, s.kinds[m.key.kind].GroupKind())) {
			order = append(order, m)
		}
	}
	slices.SortFunc(order, func(a, b *member) int {
		return cmp.Or(-cmp.Compare(a.key.kind, b.key.kind), cmp.Compare(a.key.ns, b.key.ns), cmp.Compare(a.key.name, b.key.name))
	})
	others := slices.ContainsFunc(order, func(m *member) bool { return !s.kinds[m.key.kind].NeededByCleanup })
	for _, m := range order {
		var d Decision
		switch {
		case m.obj.GetDeletionTimestamp() != nil:
			d = p.found(Wait, m, "terminating")
		case m.hold.foreign:
			d = p.found(Conflict, m, fmt.Sprintf("carries our claim but is controlled by %s (uid %s)",
				m.hold.holder, m.hold.holderUID))
		case orphaned && !s.kinds[m.key.kind].NeededByCleanup:
			d = p.found(Release, m, "the owner is deleted with its children left behind")
		case len(kinds) == 0 && others && s.kinds[m.key.kind].NeededByCleanup:
			d = p.found(Wait, m, "needed until the other members are gone")
		default:
			d = p.found(Prune, m, "the owner is being cleaned up")
		}
		plan.Decisions = append(plan.Decisions, d)
	}
	return plan, nil
}

// Orphaned says whether a terminating owner is being deleted with its children left behind (kubectl delete
// --cascade=orphan), and whether that is known at all. The server strips native references before the first read after
// the deletion and drops the orphan finalizer seconds later, so the children are the evidence: a child of a native
// kind that names the owner in our annotation and has lost the reference was orphaned; one that still has it was not.
// Without either, or on an owner that is not terminating, known is false.
func (s *Set) Orphaned(owner Object, live []Object, opts ...PlanOption) (orphaned, known bool) {
	p, err := s.newPlanner(owner, live, opts)
	if err != nil {
		return false, false
	}
	return s.orphaned(owner, p)
}

func (s *Set) orphaned(owner Object, p *planner) (orphaned, known bool) {
	if !p.terminating {
		return false, false
	}
	for _, f := range owner.GetFinalizers() {
		switch f {
		case orphanGC:
			return true, true
		case foregroundGC:
			return false, true
		}
	}
	for i := range p.members {
		m := &p.members[i]
		switch {
		case m.hold.native:
			known = true
		case m.hold.note && !m.hold.ours() && !m.hold.foreign && !s.neverNative(s.kinds[m.key.kind]):
			return true, true
		}
	}
	return false, known
}
