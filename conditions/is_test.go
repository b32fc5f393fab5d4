// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashlar-go/ashlar/conditions"
)

func TestIs(t *testing.T) {
	t.Parallel()
	conds := []metav1.Condition{
		{Type: "Ready", Status: "True", ObservedGeneration: 3},
		{Type: "Skew", Status: "False", ObservedGeneration: 3},
		{Type: "Odd", Status: "Unknown", ObservedGeneration: 3},
		{Type: "Foreign", Status: "True"},
	}
	yes, no := conditions.And(), conditions.Or()
	tests := map[string]struct {
		reason     string
		is         conditions.Is
		generation int64
		want       bool
	}{
		"true":                {"at its generation", conditions.IsTrue("Ready"), 3, true},
		"true, older asked":   {"a newer answer covers an older question", conditions.IsTrue("Ready"), 2, true},
		"true, stale":         {"an answer to another question", conditions.IsTrue("Ready"), 4, false},
		"false":               {"", conditions.IsFalse("Skew"), 3, true},
		"false, stale":        {"stale is not False either", conditions.IsFalse("Skew"), 4, false},
		"stale is unknown":    {"", conditions.IsUnknown("Ready"), 4, true},
		"unknown":             {"", conditions.IsUnknown("Odd"), 3, true},
		"absent is unknown":   {"", conditions.IsUnknown("Nope"), 0, true},
		"absent is not false": {"", conditions.IsFalse("Nope"), 0, false},
		"no generation":       {"a writer that fills none in cannot be current", conditions.IsTrue("Foreign"), 1, false},
		"any generation":      {"unless nobody asks", conditions.IsTrue("Foreign"), 0, true},
		"and":                 {"", conditions.And(conditions.IsTrue("Ready"), conditions.IsFalse("Skew")), 3, true},
		"and, one fails":      {"", conditions.And(conditions.IsTrue("Ready"), conditions.IsTrue("Skew")), 3, false},
		"or":                  {"", conditions.Or(conditions.IsTrue("Skew"), conditions.IsTrue("Ready")), 3, true},
		"not":                 {"", conditions.Not(conditions.IsTrue("Skew")), 3, true},
		"empty and":           {"nothing is demanded", yes, 3, true},
		"empty or":            {"nothing is offered", no, 3, false},
		"nil":                 {"a forgotten predicate never fires", conditions.And(nil), 3, false},
		"de morgan":           {"", conditions.Not(conditions.Or(conditions.Not(conditions.IsTrue("Ready")), conditions.Not(conditions.IsFalse("Skew")))), 3, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.is(conds, tc.generation); got != tc.want {
				t.Errorf("got %t: %s", got, tc.reason)
			}
		})
	}
	for _, typ := range []string{"Ready", "Skew", "Odd", "Foreign", "Nope"} {
		for generation := range int64(5) {
			n := 0
			for _, is := range []conditions.Is{conditions.IsTrue(typ), conditions.IsFalse(typ), conditions.IsUnknown(typ)} {
				if is(conds, generation) {
					n++
				}
			}
			if n != 1 {
				t.Errorf("%s at %d: %d of IsTrue, IsFalse, IsUnknown hold", typ, generation, n)
			}
		}
	}
}
