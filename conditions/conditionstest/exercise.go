// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditionstest

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashlar-go/ashlar/conditions"
)

// Reconcile is one pass of a controller over an object: its conditions and generation as read, and the clock. It returns
// the conditions the controller would store. Everything else the controller looks at must stay the same from call to
// call, and changes must not be held back.
type Reconcile func(live []metav1.Condition, generation int64, now time.Time) ([]metav1.Condition, error)

// Exercise runs a controller through the states an object can be in: new, settled, settled and shuffled among foreign
// conditions, changed in spec, written by an earlier release. It checks all seventeen laws and returns what broke, in
// the order found. An error of r is reported as a violation of law 1: there is nothing to store.
func Exercise(s *conditions.Set, r Reconcile) []Violation {
	e := &exercise{set: s, reconcile: r}
	start := time.Date(2001, 2, 3, 4, 5, 6, 700, time.UTC)

	fresh := e.step("new object", nil, 1, start)
	settled := e.step("nothing changed", fresh, 1, start.Add(time.Hour))
	e.same(fixpoint, "nothing changed", fresh, settled)

	crowd := slices.Clone(settled)
	slices.Reverse(crowd)
	crowd = append(append([]metav1.Condition{stranger("example.com/First")}, crowd...), stranger("example.com/Last"))
	mixed := e.step("another order, foreign conditions", crowd, 1, start.Add(2*time.Hour))
	e.same(orderless, "another order, foreign conditions", settled, mixed)

	e.step("new generation", mixed, 2, start.Add(3*time.Hour))

	old := slices.Clone(mixed)
	for _, name := range s.Retired() {
		c := stranger(name)
		c.Status = metav1.ConditionTrue
		old = append(old, c)
	}
	e.step("retired types", old, 2, start.Add(4*time.Hour))

	bare := slices.Clone(mixed)
	for i := range bare {
		if slices.Contains(s.Owned(), bare[i].Type) {
			bare[i].ObservedGeneration = 0
			bare[i].LastTransitionTime = metav1.Time{}
		}
	}
	e.step("conditions without generation and time", bare, 2, start.Add(5*time.Hour))
	return e.found
}

type exercise struct {
	set       *conditions.Set
	reconcile Reconcile
	found     []Violation
}

// step reconciles once, as after a read from the API server, and checks the outcome against its input.
func (e *exercise) step(where string, live []metav1.Condition, gen int64, now time.Time) []metav1.Condition {
	input, pristine := stored(live), stored(live)
	out, err := e.reconcile(input, gen, now)
	c := newChecker(e.set, Snapshot{Generation: gen, Conditions: slices.Clone(out)}, where)
	if err != nil {
		c.violate(valid, "", "the controller failed: %v", err)
	}
	c.state()
	c.since(Snapshot{Conditions: pristine})
	if !slices.Equal(input, pristine) {
		c.violate(untouched, "", "the conditions passed in were modified")
	}
	_, theirs := owned(e.set, pristine)
	_, kept := owned(e.set, out)
	if !slices.EqualFunc(theirs, kept, equal) {
		c.violate(foreign, "", "foreign conditions went from %s to %s", names(theirs), names(kept))
	}
	e.found = append(e.found, c.found...)
	return stored(out)
}

// same compares what is ours in two outcomes, ignoring the order.
func (e *exercise) same(law int, where string, before, after []metav1.Condition) {
	c := newChecker(e.set, Snapshot{}, where)
	was, _ := owned(e.set, before)
	is, _ := owned(e.set, after)
	for _, have := range is {
		if old := find(was, have.Type); old == nil {
			c.violate(law, have.Type, "appeared")
		} else if !equal(*old, have) {
			c.violate(law, have.Type, "went from %s to %s", phrase(*old), phrase(have))
		}
	}
	for _, old := range was {
		if find(is, old.Type) == nil {
			c.violate(law, old.Type, "disappeared")
		}
	}
	e.found = append(e.found, c.found...)
}

// equal compares as the API server does.
func equal(a, b metav1.Condition) bool {
	return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message &&
		a.ObservedGeneration == b.ObservedGeneration && a.LastTransitionTime.Equal(&b.LastTransitionTime)
}

func phrase(c metav1.Condition) string {
	return fmt.Sprintf("%s (%s, generation %d, since %s): %q", c.Status, c.Reason, c.ObservedGeneration,
		c.LastTransitionTime.UTC().Format(time.RFC3339Nano), c.Message)
}

func names(conds []metav1.Condition) []string {
	out := []string{}
	for _, c := range conds {
		out = append(out, c.Type)
	}
	return out
}

// stranger is a condition of another tool.
func stranger(typ string) metav1.Condition {
	return metav1.Condition{
		Type: typ, Status: metav1.ConditionFalse, Reason: "Elsewhere", Message: "not yours", ObservedGeneration: 1,
		LastTransitionTime: metav1.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
	}
}

// stored is what comes back from the API server: a list of its own, times in whole seconds.
func stored(conds []metav1.Condition) []metav1.Condition {
	raw, err := json.Marshal(conds)
	if err != nil {
		return slices.Clone(conds)
	}
	var out []metav1.Condition
	if err := json.Unmarshal(raw, &out); err != nil {
		return slices.Clone(conds)
	}
	return out
}
