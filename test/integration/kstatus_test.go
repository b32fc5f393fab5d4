// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kstatus "sigs.k8s.io/cli-utils/pkg/kstatus/status"

	ashlar "github.com/ashlar-go/ashlar/conditions"
)

// TestConditionsReadByKStatus asks the real kstatus library about every combination of
// verdicts on a set with an edge and a negative type, each after some two dozen
// others, so that what a former pass left behind counts too.
func TestConditionsReadByKStatus(t *testing.T) {
	t.Parallel()
	set := ashlar.MustNew("Ready",
		ashlar.Type{Name: "Net"},
		ashlar.Type{Name: "App", Needs: []string{"Net"}},
		ashlar.Type{Name: "Pressure", Negative: true})

	type input struct {
		net, app, pressure metav1.ConditionStatus // "" is not put
		stalled            string                 // the type that is marked, if any
	}
	var inputs []input
	statuses := []metav1.ConditionStatus{"", metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown}
	for _, net := range statuses {
		for _, app := range statuses {
			for _, pressure := range statuses {
				for _, stalled := range []string{"", "Net", "App", "Pressure"} {
					inputs = append(inputs, input{net, app, pressure, stalled})
				}
			}
		}
	}
	now := time.Unix(1_000_000_000, 0)
	evaluate := func(live []metav1.Condition, in input) []metav1.Condition {
		pass := set.Begin(live, 2, nil)
		for typ, status := range map[string]metav1.ConditionStatus{"Net": in.net, "App": in.app, "Pressure": in.pressure} {
			if status != "" {
				pass.Put(metav1.Condition{Type: typ, Status: status, Reason: "Said", Message: "so"})
			}
		}
		if in.stalled != "" {
			pass.Stall(in.stalled)
		}
		done, err := pass.Done(now)
		if err != nil {
			t.Fatalf("%+v: %v", in, err)
		}
		return done.Conditions
	}
	// intended is the contract, from the inputs alone: any bad verdict fails the root, a bad one that was marked as
	// pointless to retry stalls it, a blocked one is unknown.
	intended := func(in input) kstatus.Status {
		blocked := in.net != metav1.ConditionTrue
		bad := map[string]bool{
			"Net":      in.net == metav1.ConditionFalse,
			"App":      in.app == metav1.ConditionFalse && !blocked,
			"Pressure": in.pressure == metav1.ConditionTrue,
		}
		good := in.net == metav1.ConditionTrue && in.app == metav1.ConditionTrue &&
			(in.pressure == "" || in.pressure == metav1.ConditionFalse)
		switch {
		case good:
			return kstatus.CurrentStatus
		case in.stalled != "" && bad[in.stalled]:
			return kstatus.FailedStatus
		}
		return kstatus.InProgressStatus
	}
	seen := map[kstatus.Status]int{}
	for i := 0; i < len(inputs); i += 11 { // coprime to the numbers of choices, so every choice occurs
		former := inputs[i]
		live := evaluate(nil, former)
		for _, in := range inputs {
			conditions := evaluate(live, in)
			result, err := kstatus.Compute(customResource(t, 2, 2, conditions))
			if err != nil {
				t.Fatal(err)
			}
			if want := intended(in); result.Status != want {
				t.Fatalf("%+v after %+v: kstatus says %s (%s), want %s: %v", in, former, result.Status, result.Message, want, conditions)
			}
			seen[result.Status]++
			// The same words about a former generation are no answer for this one.
			result, err = kstatus.Compute(customResource(t, 3, 2, conditions))
			if err != nil || result.Status != kstatus.InProgressStatus {
				t.Fatalf("%+v: kstatus says %s (%v) of a generation that was not observed", in, result.Status, err)
			}
		}
	}
	t.Logf("asked kstatus: %v", seen)
	for _, status := range []kstatus.Status{kstatus.CurrentStatus, kstatus.InProgressStatus, kstatus.FailedStatus} {
		if seen[status] == 0 {
			t.Errorf("kstatus never said %s", status)
		}
	}
}

// customResource is an object of a custom kind with these conditions.
func customResource(t *testing.T, generation, observed int64, list []metav1.Condition) *unstructured.Unstructured {
	t.Helper()
	items := make([]any, 0, len(list))
	for i := range list {
		item, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&list[i])
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, item)
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Thing",
		"status": map[string]any{"observedGeneration": observed, "conditions": items},
	}}
	object.SetName(fmt.Sprintf("thing-%d", generation))
	object.SetGeneration(generation)
	return object
}
