// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashlar-go/ashlar/conditions"
	"github.com/ashlar-go/ashlar/test/bench/load"
	"github.com/ashlar-go/ashlar/test/bench/side"
)

var conditionBenches = []side.Bench{
	{Name: "conditions.pass20_unchanged", Prepare: func() (side.Work, error) { return pass(false) }},
	{Name: "conditions.pass20_flipped", Prepare: func() (side.Work, error) { return pass(true) }},
	{Name: "apimachinery.set20_unchanged", Prepare: func() (side.Work, error) { return set(false) }},
	{Name: "apimachinery.set20_flipped", Prepare: func() (side.Work, error) { return set(true) }},
	{Name: "conditions.summarize10k", Prepare: summarize},
	{Name: "conditions.tally10k", Prepare: tally},
}

func epoch() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func conditionsOf(list []load.Condition) []metav1.Condition {
	out := make([]metav1.Condition, len(list))
	for i, c := range list {
		out[i] = metav1.Condition{
			Type: c.Type, Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message,
			ObservedGeneration: load.Generation, LastTransitionTime: metav1.NewTime(epoch()),
		}
	}
	return out
}

// verdicts are what a reconcile has found out; twice, so that a flipping benchmark has something to flip to.
func verdicts() [2][]metav1.Condition {
	return [2][]metav1.Condition{
		conditionsOf(load.Conditions(load.Passes, "True")),
		conditionsOf(load.Conditions(load.Passes, "False")),
	}
}

// pass is a whole pass over twenty types without edges, which the peers do not have: all sides then write the same
// conditions. Flipping, each pass finds the opposite of what is live.
func pass(flip bool) (side.Work, error) {
	types := make([]conditions.Type, load.Passes)
	for i := range types {
		types[i].Name = load.TypeName(i)
	}
	s, err := conditions.New(load.Root, types...)
	if err != nil {
		return side.Work{}, err
	}
	v := verdicts()
	var live [2][]metav1.Condition
	for i := range v {
		p := s.Begin(nil, load.Generation, nil)
		for _, c := range v[i] {
			p.Put(c)
		}
		r, err := p.Done(epoch())
		if err != nil {
			return side.Work{}, err
		}
		live[i] = r.Conditions
	}
	i := 0
	return side.Work{Do: func() error {
		found, had := v[0], live[0]
		if flip {
			i = 1 - i
			found, had = v[i], live[1-i]
		}
		p := s.Begin(had, load.Generation, nil)
		for j := range found {
			p.Put(found[j])
		}
		r, err := p.Done(epoch())
		if err != nil {
			return err
		}
		if r.Changed != flip {
			return fmt.Errorf("changed is %v, want %v", r.Changed, flip)
		}
		return nil
	}}, nil
}

// set is the floor: as many calls of apimachinery's function, without a root, edges or validation. It changes its list in
// place, so where it will change something it gets a copy of the live one, which belongs to a cache.
func set(flip bool) (side.Work, error) {
	v := verdicts()
	i := 0
	return side.Work{Do: func() error {
		live, found := v[0], v[0]
		if flip {
			i = 1 - i
			live, found = slices.Clone(v[1-i]), v[i]
		}
		changed := false
		for j := range found {
			c := found[j]
			c.LastTransitionTime = metav1.Time{}
			changed = meta.SetStatusCondition(&live, c) || changed
		}
		if changed != flip {
			return fmt.Errorf("changed is %v, want %v", changed, flip)
		}
		return nil
	}}, nil
}

func fleet() (keys []string, conds [][]metav1.Condition) {
	for _, m := range load.Fleet(load.FleetSize) {
		keys = append(keys, m.Namespace+"/"+m.Name)
		conds = append(conds, conditionsOf([]load.Condition{m.Ready}))
	}
	return keys, conds
}

func summarize() (side.Work, error) {
	keys, conds := fleet()
	var members iter.Seq2[string, []metav1.Condition] = func(yield func(string, []metav1.Condition) bool) {
		for i := range keys {
			if !yield(keys[i], conds[i]) {
				return
			}
		}
	}
	return side.Work{Do: func() error {
		return isBad(conditions.Summarize(conditions.Type{Name: "PoolsReady"}, load.Root, members))
	}}, nil
}

// tally changes one member of ten thousand and asks for the summary.
func tally() (side.Work, error) {
	keys, conds := fleet()
	t := conditions.NewTally(conditions.Type{Name: "PoolsReady"}, load.Root)
	for i := range keys {
		t.Put(keys[i], conds[i])
	}
	i := 0
	return side.Work{Do: func() error {
		// The fleet's statuses go round, so that members of every kind change into every other.
		t.Put(keys[i%len(keys)], conds[(i*31+i/len(keys)+1)%len(keys)])
		i++
		return isBad(t.Condition())
	}}, nil
}

// isBad guards the benchmarks: the fleet has bad members, and a summary that says otherwise did not do the work.
func isBad(c metav1.Condition) error {
	if c.Status != metav1.ConditionFalse || c.Message == "" {
		return fmt.Errorf("summary is %s %q, want False with a message", c.Status, c.Message)
	}
	return nil
}
