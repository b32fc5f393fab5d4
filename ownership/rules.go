// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Rules prints the RBAC rules an executor of this set needs, as the YAML of a Role's or ClusterRole's rules, and
// nothing more: of each kind its Verbs, get on the owner before an adoption, patch on it for the record of an ApplySet,
// and update on the owner's finalizers where blocking references are used and the OwnerReferencesPermissionEnforcement
// plugin is on. Resource names are English plurals unless Kind.Resource says otherwise.
func (s *Set) Rules() string {
	type rule struct{ group, verbs, resource string }
	rules := make([]rule, 0, len(s.kinds)+2)
	native := false
	for _, k := range s.kinds {
		rules = append(rules, rule{k.Group, strings.Join(k.Verbs(), ", "), k.Plural()})
		native = native || !s.neverNative(k)
	}
	owner := Kind{GroupVersionKind: s.owner}.Plural()
	if s.usesApplySet() {
		rules = append(rules, rule{s.owner.Group, "get, patch", owner})
	} else {
		rules = append(rules, rule{s.owner.Group, "get", owner})
	}
	if native {
		rules = append(rules, rule{s.owner.Group, "update", owner + "/finalizers"})
	}
	slices.SortFunc(rules, func(a, b rule) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.verbs, b.verbs), cmp.Compare(a.resource, b.resource))
	})
	var b strings.Builder
	for i := 0; i < len(rules); {
		j := i
		var resources []string
		for ; j < len(rules) && rules[j].group == rules[i].group && rules[j].verbs == rules[i].verbs; j++ {
			if j == i || rules[j].resource != rules[j-1].resource {
				resources = append(resources, rules[j].resource)
			}
		}
		fmt.Fprintf(&b, "- apiGroups: [%q]\n  resources: [%s]\n  verbs: [%s]\n", rules[i].group, strings.Join(resources, ", "), rules[i].verbs)
		i = j
	}
	return b.String()
}
