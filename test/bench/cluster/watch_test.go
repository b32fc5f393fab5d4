// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// state is a status whose parts are of the generations given.
func state(observed, artifact, ready, fetched int64) BuildStatus {
	return BuildStatus{ObservedGeneration: observed, Artifact: partName(artifact), Conditions: []metav1.Condition{
		{Type: "Ready", Reason: partName(ready), ObservedGeneration: ready},
		{Type: "Fetched", Reason: partName(fetched), ObservedGeneration: fetched},
	}}
}

func TestWatcherCounts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		seen   []BuildStatus
		want   map[string]int64
	}{
		"one write a change":  {"the spec's own events are not counted", []BuildStatus{state(1, 1, 1, 1), state(1, 1, 1, 1), state(2, 2, 2, 2)}, map[string]int64{"events": 2, "mixed": 0}},
		"conditions first":    {"Ready of the new spec beside the old artifact", []BuildStatus{state(1, 1, 1, 1), state(1, 1, 2, 2), state(2, 2, 2, 2)}, map[string]int64{"events": 3, "mixed": 1}},
		"generation first":    {"it claims to have seen what nothing was built from", []BuildStatus{state(2, 1, 1, 1)}, map[string]int64{"events": 1, "mixed": 1}},
		"one condition later": {"two conditions are two writes", []BuildStatus{state(1, 1, 1, 1), state(2, 2, 2, 1), state(2, 2, 2, 2)}, map[string]int64{"events": 3, "mixed": 1}},
		"no condition":        {"an artifact nobody vouches for", []BuildStatus{{ObservedGeneration: 1, Artifact: partName(1)}}, map[string]int64{"events": 1, "mixed": 1}},
	} {
		events := make(chan apiwatch.Event)
		w := watch(&Build{}, events)
		for i, s := range tc.seen {
			b := &Build{Status: s}
			b.ResourceVersion = string(rune('a' + i))
			events <- apiwatch.Event{Type: apiwatch.Modified, Object: b}
		}
		close(events)
		w.until(string(rune('a'+len(tc.seen)-1)), time.Minute)
		if got := w.counts(); !maps.Equal(got, tc.want) {
			t.Errorf("%s (%s): %v, want %v", name, tc.reason, got, tc.want)
		}
	}
}

// What a verdict sends is what the watcher takes for whole.
func TestVerdictIsWhole(t *testing.T) {
	t.Parallel()
	d := verdict(7)
	for i := range d.Conditions {
		d.Conditions[i].ObservedGeneration = d.Generation
	}
	if !whole(BuildStatus{ObservedGeneration: d.Generation, Artifact: d.Status.Artifact, Conditions: d.Conditions}) {
		t.Errorf("%+v", d)
	}
}
