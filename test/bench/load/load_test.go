// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package load_test

import (
	"encoding/json"
	"testing"

	"github.com/ashlar-go/ashlar/test/bench/load"
)

func TestReplyIsTheStateItNames(t *testing.T) {
	t.Parallel()
	for _, s := range []load.State{0, 1, 2} {
		var d struct {
			Metadata struct {
				ResourceVersion string
				Generation      int64
				ManagedFields   []any
			}
			Status struct {
				ObservedGeneration int64
				ReadyReplicas      int32
				Conditions         []struct {
					Type, Status, Reason, Message string
					ObservedGeneration            int64
				}
			}
		}
		if err := json.Unmarshal(s.Reply(12, 34), &d); err != nil {
			t.Fatal(err)
		}
		if d.Metadata.ResourceVersion != "12" || d.Metadata.Generation != 34 || d.Status.ObservedGeneration != 34 || len(d.Metadata.ManagedFields) != 2 {
			t.Errorf("state %d: got %+v", s, d)
		}
		if d.Status.ReadyReplicas != s.Ready() || len(d.Status.Conditions) != load.Five {
			t.Fatalf("state %d: got %+v", s, d.Status)
		}
		for i, c := range s.Conditions() {
			got := d.Status.Conditions[i]
			if got.Type != c.Type || got.Status != c.Status || got.Reason != c.Reason || got.Message != c.Message || got.ObservedGeneration != 34 {
				t.Errorf("state %d: condition %d is %+v, want %+v", s, i, got, c)
			}
		}
	}
}

func TestStatesDifferInOneConditionAndPerhapsOneField(t *testing.T) {
	t.Parallel()
	for _, s := range []load.State{1, 2} {
		differ := 0
		other := s.Conditions()
		for i, c := range load.State(0).Conditions() {
			if c != other[i] {
				differ++
			}
		}
		if differ != 1 || (load.State(0).Ready() != s.Ready()) != (s == 1) {
			t.Errorf("state %d: %d conditions differ, ready %d and %d", s, differ, load.State(0).Ready(), s.Ready())
		}
	}
}

func TestFleetHasMembersOfEveryKind(t *testing.T) {
	t.Parallel()
	count := map[string]int{}
	messages := map[string]bool{}
	for _, m := range load.Fleet(load.FleetSize) {
		count[m.Ready.Status]++
		if m.Ready.Status == "False" {
			messages[m.Ready.Message] = true
		}
	}
	if count["False"] != 100 || count["Unknown"] == 0 || len(messages) != 7 {
		t.Errorf("got %v and %d messages of bad members", count, len(messages))
	}
}
