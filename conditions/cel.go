// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"strconv"
	"strings"
)

// Rule is one validation rule for the conditions in a CRD. Marshalled to JSON it is one item of
// x-kubernetes-validations.
type Rule struct {
	Rule    string `json:"rule"`    // a CEL expression
	Message string `json:"message"` // what the API server answers when it does not hold

	// Item: the rule belongs on the items of the list rather than on the list. Comparing an item with its stored
	// self costs the server one step there, and one for every pair of items on the list.
	Item bool `json:"-"`
}

// String returns the rule as a kubebuilder marker for the field that holds the list.
func (r Rule) String() string {
	marker := "+kubebuilder:validation:XValidation:rule="
	if r.Item {
		marker = "+kubebuilder:validation:items:XValidation:rule="
	}
	return marker + strconv.Quote(r.Rule) + ",message=" + strconv.Quote(r.Message)
}

// CEL returns the laws of the set as validation rules for the conditions list of a CRD. The API server then enforces
// them on every writer, on tools and people with kubectl as well. Using them is optional.
//
// The list (status.conditions) must be a map list keyed by type and must have maxItems, 64 or less: the API server
// refuses rules whose cost it cannot bound. The rules say nothing about foreign types, and nothing about a list without
// any type of the set. Two of them compare with what is stored: lastTransitionTime moves only with the status,
// observedGeneration never goes back. A controller that sets conditions past this package may be refused, and so may a
// release that declares other types or edges: leave the rules out while such releases take turns.
//
// Cost to the server per write of status: one rule for each edge and twelve more, each linear in the list.
func (s *Set) CEL() []Rule {
	var rules []Rule
	add := func(message string, rule ...string) {
		rules = append(rules, Rule{Rule: strings.Join(rule, ""), Message: message})
	}
	for _, i := range s.order {
		for _, j := range s.needs[i] {
			typ, need := &s.types[i], &s.types[j]
			add(typ.Name+" must be Unknown until "+need.wanted(),
				only(typ.Name, "c.status == 'Unknown'"), " || ", need.is(good))
		}
	}
	present := []string{s.root}
	for i := range s.types {
		if t := &s.types[i]; absent(t) != good {
			present = append(present, t.Name)
		}
	}
	add("the types of a set come together: "+s.root+" and all it sums up",
		"!self.exists(c, ", in(s.Owned()), ") || self.filter(c, ", in(present), ").size() == ", strconv.Itoa(len(present)))
	if len(s.counted) > 0 {
		s.rootRules(add)
	}
	s.derivedRules(add)
	return append(rules, s.transitionRules()...)
}

func (s *Set) rootRules(add func(string, ...string)) {
	var isGood, isBad []string
	for _, i := range s.counted {
		isGood = append(isGood, s.types[i].is(good))
		isBad = append(isBad, s.types[i].is(bad))
	}
	allGood, anyBad := strings.Join(isGood, " && "), strings.Join(isBad, " || ")
	add(s.root+" can be True only when every type it sums up is good",
		only(s.root, "c.status != 'True'"), " || (", allGood, ")")
	add(s.root+" must be True when every type it sums up is good",
		only(s.root, "c.status == 'True'"), " || !(", allGood, ")")
	add(s.root+" must be False when a type it sums up is bad",
		only(s.root, "c.status == 'False'"), " || !(", anyBad, ")")
	add(s.root+" can be False only when a type it sums up is bad",
		only(s.root, "c.status != 'False'"), " || ", anyBad)
}

func (s *Set) derivedRules(add func(string, ...string)) {
	derived := in([]string{Reconciling, Stalled})
	add("Reconciling and Stalled are removed rather than set to anything but True",
		"self.all(c, !", derived, " || c.status == 'True')")
	add("Reconciling and Stalled exclude each other",
		only(Reconciling, "false"), " || ", only(Stalled, "false"))
	add("neither Reconciling nor Stalled can stay when "+s.root+" is True",
		only(s.root, "c.status != 'True'"), " || self.all(c, !", derived, ")")
	add("either Reconciling or Stalled must be True when "+s.root+" is not",
		only(s.root, "c.status == 'True'"), " || self.exists(c, ", derived, ")")
	add("Stalled needs "+s.root+" to be False",
		only(s.root, "c.status == 'False'"), " || ", only(Stalled, "false"))
}

func (s *Set) transitionRules() []Rule {
	foreign := "!(self.type in " + list(s.Owned()) + ") || "
	return []Rule{{
		Item: true, Message: "lastTransitionTime moves only with the status, and never back",
		Rule: foreign + "(self.status == oldSelf.status ? self.lastTransitionTime == oldSelf.lastTransitionTime : " +
			"self.lastTransitionTime >= oldSelf.lastTransitionTime)",
	}, {
		Item: true, Message: "observedGeneration never goes back",
		Rule: foreign + "!has(oldSelf.observedGeneration) || " +
			"(has(self.observedGeneration) && self.observedGeneration >= oldSelf.observedGeneration)",
	}}
}

// list is a list of types in CEL. A type name needs no quoting: validation leaves no character in it that means anything.
func list(types []string) string { return "['" + strings.Join(types, "', '") + "']" }

// in is "c is one of these types".
func in(types []string) string { return "(c.type in " + list(types) + ")" }

// only is "every condition of this type, should there be one, satisfies what".
func only(typ, what string) string {
	if what == "false" {
		return "self.all(c, c.type != '" + typ + "')"
	}
	return "self.all(c, c.type != '" + typ + "' || " + what + ")"
}

// is is "t has health h".
func (t *Type) is(h health) string {
	healthy, ill := "True", "False"
	if t.Negative {
		healthy, ill = ill, healthy
	}
	switch {
	case h == bad:
		return "self.exists(c, c.type == '" + t.Name + "' && c.status == '" + ill + "')"
	case absent(t) == good:
		return only(t.Name, "c.status == '"+healthy+"'")
	}
	return "self.exists(c, c.type == '" + t.Name + "' && c.status == '" + healthy + "')"
}

// wanted says in words what makes t good.
func (t *Type) wanted() string {
	switch {
	case !t.Negative:
		return t.Name + " is True"
	case t.Required:
		return t.Name + " is False"
	}
	return t.Name + " is False or absent"
}
