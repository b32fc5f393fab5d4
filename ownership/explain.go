// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Explain describes, for humans, how live objects stand towards owner: one line per object of a declared kind that is
// related to it or controlled by a namesake, sorted by kind, namespace and name. It decides nothing.
func (s *Set) Explain(owner Object, live []Object, opts ...PlanOption) string {
	p, err := s.newPlanner(owner, live, opts)
	if err != nil {
		return err.Error() + "\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s (uid %s), set %q, field manager %q", p.owner.ref, p.owner.uid, s.name, s.manager)
	switch {
	case s.finalizer == "":
	case p.hasFinalizer:
		fmt.Fprintf(&b, ", holds finalizer %s", s.finalizer)
	default:
		fmt.Fprintf(&b, ", lacks finalizer %s", s.finalizer)
	}
	if p.terminating {
		b.WriteString(", terminating")
		if orphaned, known := s.orphaned(owner, p); known && orphaned {
			b.WriteString(", children are left behind")
		}
	}
	b.WriteByte('\n')
	lines := make([]*member, 0, len(p.members))
	for i := range p.members {
		if h := p.members[i].hold; h.ours() || h.note || h.former {
			lines = append(lines, &p.members[i])
		}
	}
	slices.SortFunc(lines, func(a, b *member) int {
		return cmp.Or(cmp.Compare(a.key.kind, b.key.kind), cmp.Compare(a.key.ns, b.key.ns), cmp.Compare(a.key.name, b.key.name))
	})
	for _, m := range lines {
		fmt.Fprintf(&b, "  %s: %s", p.refOf(m.key), m.hold.sentence())
		if m.obj.GetDeletionTimestamp() != nil {
			b.WriteString(", terminating")
		}
		b.WriteByte('\n')
	}
	if len(lines) == 0 {
		b.WriteString("  no children\n")
	}
	return b.String()
}

func (h hold) sentence() string {
	var carriers []string
	if h.native {
		carriers = append(carriers, "owner reference")
	}
	if h.label {
		carriers = append(carriers, "label")
	}
	ours := "ours by " + strings.Join(carriers, " and ")
	switch {
	case h.foreign && h.ours():
		return fmt.Sprintf("%s, but controlled by %s (uid %s)", ours, h.holder, h.holderUID)
	case h.former:
		return fmt.Sprintf("left behind by a former owner of the same name (uid %s)", h.holderUID)
	case h.foreign:
		return fmt.Sprintf("was ours, now controlled by %s (uid %s)", h.holder, h.holderUID)
	case h.ours() && h.native && !h.current:
		return ours + ", the reference needs an update"
	case h.ours():
		return ours
	}
	return "was ours, its owner reference is gone"
}
