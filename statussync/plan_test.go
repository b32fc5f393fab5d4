// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashlar-go/ashlar/statussync"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	obj := db(3, metav1.Condition{Type: "Net", Status: "True", Reason: "Up", ObservedGeneration: 2, LastTransitionTime: metav1.NewTime(at)},
		metav1.Condition{Type: "App", Status: "True", Reason: "Up", LastTransitionTime: metav1.NewTime(at)}, cond("Old", "True", "R"))
	obj.Status.ObservedGeneration, obj.Status.Labels, obj.Status.Endpoint = 2, map[string]string{"a": "b"}, "old"
	s, other := newServer(t, obj)
	w := newWriter(t, s)
	d := ready(3, "x")
	d.Conditions[1].Message = "all links"
	for name, c := range map[string]struct {
		reason string
		d      statussync.Desired[Payload]
		want   string
	}{
		"everything": {
			"one line for each change", d,
			"Database shop/db, generation 3: Written: status.observedGeneration differs\n" +
				"  observedGeneration: 2 -> 3\n  Ready: True/Serving (new)\n  Net: message\n  App: removed\n  Old: removed (retired)\n  endpoint: changed\n  labels: removed",
		},
		"too late": {
			"the fence is in the plan too", func() statussync.Desired[Payload] { d := ready(1, "x"); return d }(),
			"Database shop/db, generation 1: Stale: status.observedGeneration is 2; the verdict is for 1",
		},
	} {
		p, err := w.Plan(live(t, other), c.d)
		if err != nil || p.String() != c.want || p.Empty() {
			t.Errorf("%s (%s): %v\n%s\nwant\n%s", name, c.reason, err, p, c.want)
		}
	}
	stale := live(t, other)
	sync_(t, w, stale, ready(3, "x"))
	p, err := w.Plan(live(t, other), ready(3, "x"))
	if err != nil || !p.Empty() || len(p.Changes) != 0 {
		t.Errorf("converged: %s, %v", p, err)
	}
	if p, err = w.Plan(stale, ready(3, "x")); err != nil || !p.Empty() {
		t.Errorf("on a stale object: %s, %v", p, err)
	}
	if p, err = w.Plan(stale, ready(3, "y")); err != nil || p.Outcome != statussync.Written {
		t.Errorf("another verdict on a stale object: %s, %v", p, err)
	}
	if got := verbs(s.take()); got != "apply patch" { // both of the one Sync
		t.Errorf("Plan sent something: %s", got)
	}
}

func TestStrings(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		statussync.NoOp.String():       "NoOp",
		statussync.Deferred.String():   "Deferred",
		statussync.Outcome(9).String(): "Outcome(9)",
		statussync.Finding{Kind: statussync.Contested, Manager: "m", Field: "Ready"}.String(): "Contested: Ready was taken twice within 10 minutes by m",
		statussync.Finding{Kind: statussync.Contested, Field: "Ready"}.String():               "Contested: Ready was taken twice within 10 minutes by an unknown manager",
		statussync.Finding{Kind: statussync.Repaired, Field: "condition Net"}.String():        "Repaired: condition Net was above the object's generation",
		statussync.Finding{Kind: statussync.Altered, Field: "status.x"}.String():              "Altered: the server stored another status.x than was sent",
		statussync.Finding{Kind: "Other", Field: "f"}.String():                                "Other: f",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
