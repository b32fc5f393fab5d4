// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Policy says how far a plan may go. The zero value has no cap, adopts nothing, refuses to delete the last members of
// an emptied set, and protects Namespaces, CustomResourceDefinitions, PersistentVolumes and PersistentVolumeClaims.
type Policy struct {
	// Free deletions are never counted against Percent.
	Free int
	// Max deletions of one plan. 0: no cap.
	Max int
	// Percent of the living members that one plan may delete, beyond Free. 0: no cap.
	Percent int
	// AllowEmpty permits deleting every member because the desired set is empty.
	AllowEmpty bool
	// Adopt takes over existing objects that nobody controls, if no other field manager disagrees with a declared field.
	Adopt bool
	// Protect lists kinds that are never pruned. nil: the four kinds named above; empty but not nil: none. A Teardown
	// of a declared kind overrides it.
	Protect []schema.GroupKind
}

func (p Policy) protects(gk schema.GroupKind) bool {
	if p.Protect != nil {
		return slices.Contains(p.Protect, gk)
	}
	switch gk {
	case schema.GroupKind{Kind: "Namespace"},
		schema.GroupKind{Kind: "PersistentVolume"},
		schema.GroupKind{Kind: "PersistentVolumeClaim"},
		schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:
		return true
	}
	return false
}

// refuses names the rule that n deletions out of members break, or "".
func (p Policy) refuses(n, members, desired int) string {
	switch {
	case n == 0:
		return ""
	case desired == 0 && !p.AllowEmpty:
		return "the desired set is empty and Policy.AllowEmpty is not set"
	case p.Max > 0 && n > p.Max:
		return fmt.Sprintf("%d deletions exceed Policy.Max %d", n, p.Max)
	case p.Percent > 0 && (n-p.Free)*100 > p.Percent*members:
		return fmt.Sprintf("%d deletions beyond Policy.Free %d exceed Policy.Percent %d of %d members",
			n-p.Free, p.Free, p.Percent, members)
	}
	return ""
}
