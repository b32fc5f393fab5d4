// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditionstest_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashlar-go/ashlar/conditions"
	"github.com/ashlar-go/ashlar/conditions/conditionstest"
)

var ready = conditions.MustNew("Ready", conditions.Type{Name: "Synced"})

// A controller that sets its conditions by hand, and what that costs.
func byHand(live []metav1.Condition, generation int64, now time.Time) ([]metav1.Condition, error) {
	for _, typ := range []string{"Ready", "Synced"} {
		meta.SetStatusCondition(&live, metav1.Condition{
			Type: typ, Status: "False", Reason: "Broken", ObservedGeneration: generation,
			LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		})
	}
	return live, nil
}

func ExampleExercise() {
	seen := map[string]bool{}
	for _, v := range conditionstest.Exercise(ready, byHand) {
		if line := v.Law.String(); !seen[line] {
			seen[line] = true
			fmt.Println(v)
		}
	}
	// Output:
	// law 8 (derived), new object: Ready is False, yet neither Reconciling nor Stalled is there
	// law 16 (untouched), new generation: the conditions passed in were modified
	// law 1 (valid), conditions without generation and time, Synced: lastTransitionTime: Required value
}

func ExampleCheck() {
	vs := conditionstest.Check(ready,
		conditionstest.Snapshot{Generation: 1, Conditions: []metav1.Condition{
			{Type: "Ready", Status: "True", Reason: "Healthy", ObservedGeneration: 1, LastTransitionTime: metav1.Unix(1, 0)},
		}})
	for _, v := range vs {
		fmt.Println(v)
	}
	// Output:
	// law 3 (complete), state 1, Synced: is absent
	// law 4 (root), state 1, Ready: is True, want Unknown
}

// printer shows what a failing test would say.
type printer struct{ testing.TB }

func (printer) Helper() {}

func (printer) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func ExampleVerify() {
	var t testing.TB = printer{} // the t of a test
	conditionstest.Verify(t, conditionstest.Exercise(ready, func(live []metav1.Condition, generation int64, now time.Time) ([]metav1.Condition, error) {
		pass := ready.Begin(live, generation, nil)
		pass.True("Synced", "Applied", "")
		r, err := pass.Done(now)
		return append(r.Conditions, metav1.Condition{
			Type: "Stalled", Status: "False", Reason: "Fine", ObservedGeneration: generation, LastTransitionTime: metav1.Unix(1, 0),
		}), err
	})[:1])
	// Output:
	// law 8 (derived), new object, Stalled: is False, want True or absent
	// 	Reconciling and Stalled are True or absent, never both; one of them is there if and only if the root is not True; Stalled needs a root that is False. Anything else makes kstatus, and with it every deployment tool, report the wrong phase.
}

func ExampleLaws() {
	for _, l := range conditionstest.Laws()[:2] {
		fmt.Println(l, "–", l.Text)
	}
	// Output:
	// law 1 (valid) – Every condition passes the validation of apimachinery. One that does not makes the API server refuse the whole status, with all that was right in it.
	// law 2 (once) – No type of the set occurs twice. The list is a map keyed by type; readers take whichever they find first.
}
