// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditionstest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/ashlar-go/ashlar/conditions"
)

// Snapshot is one state of an object.
type Snapshot struct {
	Generation int64 // metadata.generation the conditions were computed for
	Conditions []metav1.Condition
}

// Check holds the states an object went through, oldest first, against laws 1 to 13. Only conditions of the set are
// looked at. States may be left out: each law also holds between states that were not consecutive, but for law 11,
// which then overlooks a status that changed and changed back.
func Check(s *conditions.Set, history ...Snapshot) []Violation {
	var out []Violation
	for i, now := range history {
		c := newChecker(s, now, fmt.Sprintf("state %d", i+1))
		c.state()
		if i > 0 {
			c.since(history[i-1])
		}
		out = append(out, c.found...)
	}
	return out
}

// Verify fails t once for every violation.
func Verify(t testing.TB, violations []Violation) {
	t.Helper()
	for _, v := range violations {
		t.Errorf("%s\n\t%s", v, v.Law.Text)
	}
}

// checker judges one state. It works on the declaration alone and shares no code with what it checks.
type checker struct {
	set   *conditions.Set
	types []conditions.Type // in topological order
	now   Snapshot
	where string
	found []Violation
}

func newChecker(s *conditions.Set, now Snapshot, where string) *checker {
	return &checker{set: s, types: topological(s.Types()), now: now, where: where}
}

func (c *checker) violate(law int, typ, format string, args ...any) {
	c.found = append(c.found, Violation{Law: laws[law], Where: c.where, Type: typ, Found: fmt.Sprintf(format, args...)})
}

func find(conds []metav1.Condition, typ string) *metav1.Condition {
	i := slices.IndexFunc(conds, func(c metav1.Condition) bool { return c.Type == typ })
	if i < 0 {
		return nil
	}
	return &conds[i]
}

// owned are the conditions of the set, in the order found.
func owned(s *conditions.Set, conds []metav1.Condition) (ours, others []metav1.Condition) {
	names := append(s.Owned(), s.Retired()...)
	for _, c := range conds {
		if slices.Contains(names, c.Type) {
			ours = append(ours, c)
		} else {
			others = append(others, c)
		}
	}
	return ours, others
}

const (
	bad     = "bad"
	unknown = "Unknown"
	good    = "good"
)

// health is the polarity rule: absence is good only for a negative type that is not required.
func (c *checker) health(t conditions.Type) string {
	have := find(c.now.Conditions, t.Name)
	switch {
	case have == nil && t.Negative && !t.Required:
		return good
	case have == nil:
		return unknown
	case have.Status == metav1.ConditionTrue && !t.Negative, have.Status == metav1.ConditionFalse && t.Negative:
		return good
	case have.Status == metav1.ConditionTrue, have.Status == metav1.ConditionFalse:
		return bad
	}
	return unknown
}

func (c *checker) state() {
	ours, _ := owned(c.set, c.now.Conditions)
	seen := map[string]bool{}
	for i, have := range ours {
		for _, err := range validation.ValidateCondition(have, nil) {
			c.violate(valid, have.Type, "%v", err)
		}
		if have.Message != strings.ToValidUTF8(have.Message, "\uFFFD") {
			c.violate(valid, have.Type, "message: not valid UTF-8")
		}
		if seen[have.Type] {
			c.violate(once, have.Type, "occurs again at position %d", i)
		}
		seen[have.Type] = true
		if have.ObservedGeneration != c.now.Generation {
			c.violate(generation, have.Type, "observedGeneration is %d, want %d", have.ObservedGeneration, c.now.Generation)
		}
		if slices.Contains(c.set.Retired(), have.Type) {
			c.violate(retired, have.Type, "is still there")
		}
		if !have.LastTransitionTime.Equal(&metav1.Time{Time: have.LastTransitionTime.Truncate(time.Second)}) {
			c.violate(seconds, have.Type, "lastTransitionTime is %v", have.LastTransitionTime.Format(time.RFC3339Nano))
		}
	}
	c.graph()
}

func (c *checker) graph() {
	r := find(c.now.Conditions, c.set.Root())
	if r == nil {
		c.violate(complete, c.set.Root(), "is absent")
	}
	want, firstBad, firstOpen := metav1.ConditionTrue, "", ""
	for _, t := range c.types {
		have, h := find(c.now.Conditions, t.Name), c.health(t)
		if have == nil && h != good {
			c.violate(complete, t.Name, "is absent")
		}
		isBlocked := c.edges(t, have)
		if t.Advisory {
			continue
		}
		switch {
		case h == bad && firstBad == "":
			firstBad = t.Name
		case h == unknown && !isBlocked && firstOpen == "":
			firstOpen = t.Name
		}
		if h == bad {
			want = metav1.ConditionFalse
		} else if h == unknown && want == metav1.ConditionTrue {
			want = metav1.ConditionUnknown
		}
	}
	if r == nil {
		return
	}
	if r.Status != want {
		c.violate(root, r.Type, "is %s, want %s", r.Status, want)
	}
	origin := firstBad
	if origin == "" {
		origin = firstOpen
	}
	if have := find(c.now.Conditions, origin); have != nil && have.Reason != r.Reason {
		c.violate(cause, r.Type, "reason is %s, want %s, that of %s", r.Reason, have.Reason, origin)
	}
	c.kstatus(r)
}

// edges checks one type against what it needs and reports whether it is blocked.
func (c *checker) edges(t conditions.Type, have *metav1.Condition) bool {
	var waits []string
	for _, need := range t.Needs {
		i := slices.IndexFunc(c.types, func(o conditions.Type) bool { return o.Name == need })
		if c.health(c.types[i]) != good {
			waits = append(waits, blockedReason(need))
		}
	}
	switch {
	case len(waits) > 0 && have != nil:
		if have.Status != metav1.ConditionUnknown || !slices.Contains(waits, have.Reason) {
			c.violate(blocked, t.Name, "is %s (%s), want Unknown (%s)", have.Status, have.Reason, strings.Join(waits, " or "))
		}
	case len(waits) > 0:
		c.violate(blocked, t.Name, "is absent, want Unknown (%s)", strings.Join(waits, " or "))
	case have != nil && have.Status == metav1.ConditionUnknown:
		for _, need := range t.Needs {
			if have.Reason == blockedReason(need) {
				c.violate(unblocked, t.Name, "reason is %s, but %s is good", have.Reason, need)
				break
			}
		}
	}
	return len(waits) > 0
}

func (c *checker) kstatus(r *metav1.Condition) {
	reconciling := find(c.now.Conditions, conditions.Reconciling)
	stalled := find(c.now.Conditions, conditions.Stalled)
	for _, have := range []*metav1.Condition{reconciling, stalled} {
		if have != nil && have.Status != metav1.ConditionTrue {
			c.violate(derived, have.Type, "is %s, want True or absent", have.Status)
		}
	}
	switch {
	case reconciling != nil && stalled != nil:
		c.violate(derived, "", "both Reconciling and Stalled are there")
	case r.Status == metav1.ConditionTrue && (reconciling != nil || stalled != nil):
		c.violate(derived, "", "%s is True, yet Reconciling or Stalled is there", r.Type)
	case r.Status != metav1.ConditionTrue && reconciling == nil && stalled == nil:
		c.violate(derived, "", "%s is %s, yet neither Reconciling nor Stalled is there", r.Type, r.Status)
	case r.Status != metav1.ConditionFalse && stalled != nil:
		c.violate(derived, conditions.Stalled, "is there, yet %s is %s", r.Type, r.Status)
	}
}

// since checks what may change between two states.
func (c *checker) since(before Snapshot) {
	ours, _ := owned(c.set, c.now.Conditions)
	for _, have := range ours {
		was := find(before.Conditions, have.Type)
		if was == nil {
			continue
		}
		if have.ObservedGeneration < was.ObservedGeneration {
			c.violate(forward, have.Type, "observedGeneration went from %d to %d", was.ObservedGeneration, have.ObservedGeneration)
		}
		if was.LastTransitionTime.IsZero() {
			continue // nothing to keep
		}
		at, had := have.LastTransitionTime, was.LastTransitionTime
		switch {
		case have.Status == was.Status && !at.Equal(&had):
			c.violate(transition, have.Type, "stayed %s, but lastTransitionTime went from %v to %v", have.Status, had, at)
		case at.Before(&had):
			c.violate(transition, have.Type, "lastTransitionTime went back from %v to %v", had, at)
		}
	}
}

// topological orders a declaration by need, ties by declaration.
func topological(declared []conditions.Type) []conditions.Type {
	var out []conditions.Type
	placed := func(name string) bool {
		return slices.ContainsFunc(out, func(t conditions.Type) bool { return t.Name == name })
	}
	for len(out) < len(declared) {
		for _, t := range declared {
			if !placed(t.Name) && !slices.ContainsFunc(t.Needs, func(n string) bool { return !placed(n) }) {
				out = append(out, t)
				break
			}
		}
	}
	return out
}

// blockedReason spells out the name as [conditions.ReasonBlockedBy] documents.
func blockedReason(need string) string {
	return conditions.ReasonBlockedBy + strings.NewReplacer(".", "_", "-", "_", "/", "_").Replace(need)
}
