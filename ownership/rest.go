// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// rest decides about live objects that are not declared: rules 6 to 8 of Plan.
func (p *planner) rest(desired int) ([]Decision, error) {
	kept := make(map[types.UID]bool, desired)
	inUse := map[string]bool{}
	alive := 0
	var left []*member
	for i := range p.members {
		m := &p.members[i]
		if m.want {
			inUse[m.key.ns] = true
		}
		if m.obj == nil {
			continue
		}
		ours := m.hold.ours() && !m.hold.foreign
		if ours {
			inUse[m.key.ns] = true
			if m.obj.GetDeletionTimestamp() == nil {
				alive++
			}
		}
		if m.want {
			kept[m.obj.GetUID()] = true
		} else if m.hold.ours() {
			left = append(left, m)
		}
	}
	slices.SortFunc(left, func(a, b *member) int {
		return cmp.Or(-cmp.Compare(a.key.kind, b.key.kind), cmp.Compare(a.key.ns, b.key.ns), cmp.Compare(a.key.name, b.key.name))
	})
	out := make([]Decision, 0, len(left))
	var prunes []int
	for _, m := range left {
		d := p.undeclaredMember(m, kept, inUse)
		if d.Verb == Prune {
			prunes = append(prunes, len(out))
		}
		out = append(out, d)
	}
	rule := p.policy.refuses(len(prunes), alive, desired)
	if rule == "" {
		return out, nil
	}
	refused := &PruneError{Owner: p.owner.ref, Members: alive, Rule: rule}
	for _, i := range prunes {
		out[i].Verb, out[i].Why = Keep, "prune refused: "+rule
		refused.Refused = append(refused.Refused, out[i].Ref)
	}
	return out, refused
}

func (p *planner) undeclaredMember(m *member, kept map[types.UID]bool, inUse map[string]bool) Decision {
	gvk := p.set.kinds[m.key.kind].GroupVersionKind
	switch {
	case m.hold.foreign:
		return p.found(Conflict, m, fmt.Sprintf("carries our claim but is controlled by %s (uid %s)",
			m.hold.holder, m.hold.holderUID))
	case m.obj.GetDeletionTimestamp() != nil:
		return p.found(Wait, m, "terminating")
	case p.terminating:
		return p.found(Keep, m, "not declared, but only a teardown removes children of a terminating owner")
	case kept[m.obj.GetUID()]:
		return p.found(Keep, m, "the same object is declared under another group")
	case p.set.kinds[m.key.kind].Found:
		return p.found(Keep, m, "others create it, only a teardown removes it")
	case p.policy.protects(gvk.GroupKind()):
		return p.found(Keep, m, "protected kind")
	case gvk.Group == "" && gvk.Kind == "Namespace" && inUse[m.key.name]:
		return p.found(Keep, m, "members still live in the namespace")
	}
	return p.found(Prune, m, "not declared any more")
}
