// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions_test

import (
	"fmt"
	"iter"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashlar-go/ashlar/conditions"
)

// chain declares n types, each needing the one before in groups of four.
func chain(n int) *conditions.Set {
	types := make([]conditions.Type, n)
	for i := range types {
		types[i].Name = fmt.Sprintf("Component%02dReady", i)
		if i%4 != 0 {
			types[i].Needs = []string{types[i-1].Name}
		}
	}
	return conditions.MustNew("Ready", types...)
}

// verdicts judges every type of s alike, as a controller would: constant reasons, short messages.
func verdicts(s *conditions.Set, status metav1.ConditionStatus, reason string) []metav1.Condition {
	var out []metav1.Condition
	for _, t := range s.Types() {
		out = append(out, metav1.Condition{
			Type: t.Name, Status: status, Reason: reason, ObservedGeneration: 7,
			Message: "every replica of the component has reported",
		})
	}
	return out
}

// settled is what an object carries after a pass over verdicts, with strings of its own as a decoder makes them.
func settledOn(b testing.TB, s *conditions.Set, vs []metav1.Condition) []metav1.Condition {
	b.Helper()
	p := s.Begin(nil, 7, nil)
	for _, v := range vs {
		p.Put(v)
	}
	r, err := p.Done(epoch)
	if err != nil {
		b.Fatal(err)
	}
	return roundTrip(b, r.Conditions)
}

func BenchmarkPass(b *testing.B) {
	for _, n := range []int{5, 20, 100} {
		s := chain(n)
		yes, no := verdicts(s, metav1.ConditionTrue, "AllReplicasReady"), verdicts(s, metav1.ConditionFalse, "ReplicasMissing")
		for name, first := range map[string][]metav1.Condition{"unchanged": yes, "flipped": no} {
			live := settledOn(b, s, first)
			b.Run(fmt.Sprintf("ours/%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					p := s.Begin(live, 7, nil)
					for i := range yes {
						p.Put(yes[i])
					}
					if r, err := p.Done(epoch); err != nil || r.Changed != (name == "flipped") {
						b.Fatal(r, err)
					}
				}
			})
			// The floor: what a controller without any library calls, which knows no root, no edges, no validity.
			// It changes its list in place, so the flipped form starts from a copy, as a controller's own must.
			plain := roundTrip(b, first)
			for i := range plain {
				plain[i].LastTransitionTime = metav1.NewTime(epoch)
			}
			b.Run(fmt.Sprintf("apimachinery/%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				scratch := make([]metav1.Condition, len(plain))
				for b.Loop() {
					copy(scratch, plain)
					changed := false
					for i := range yes {
						changed = meta.SetStatusCondition(&scratch, yes[i]) || changed
					}
					if changed != (name == "flipped") {
						b.Fatal(changed)
					}
				}
			})
		}
	}
}

func fleet(n int) (keys []string, conds [][]metav1.Condition) {
	for i := range n {
		c := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Applied"}
		switch {
		case i%100 == 0:
			c.Status, c.Reason, c.Message = metav1.ConditionFalse, "DiskFull", fmt.Sprintf("volume %d of 7 is full", i%7)
		case i%101 == 0:
			c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "NoContact", "no heartbeat"
		}
		keys = append(keys, fmt.Sprintf("tenant-%02d/pool-%05d", i%17, i))
		conds = append(conds, []metav1.Condition{{Type: "Synced"}, c})
	}
	return keys, conds
}

func zip(keys []string, conds [][]metav1.Condition) iter.Seq2[string, []metav1.Condition] {
	return func(yield func(string, []metav1.Condition) bool) {
		for i := range keys {
			if !yield(keys[i], conds[i]) {
				return
			}
		}
	}
}

func BenchmarkSummarize(b *testing.B) {
	for _, n := range []int{10, 1_000, 10_000} {
		keys, conds := fleet(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				conditions.Summarize(conditions.Type{Name: "PoolsReady"}, "Ready", zip(keys, conds))
			}
		})
	}
}

func BenchmarkTally(b *testing.B) {
	for _, n := range []int{10, 1_000, 10_000} {
		keys, conds := fleet(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			t := conditions.NewTally(conditions.Type{Name: "PoolsReady"}, "Ready")
			for i := range keys {
				t.Put(keys[i], conds[i])
			}
			i := 0
			for b.Loop() {
				t.Put(keys[i%n], conds[(i*31+i/n)%n]) // one member changes …
				t.Condition()                         // … and the summary is wanted
				i++
			}
		})
	}
}

func BenchmarkSetFor20Types(b *testing.B) {
	for b.Loop() {
		chain(20)
	}
}

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
