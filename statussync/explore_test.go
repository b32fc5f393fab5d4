// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync

// These tests are inside the package because they explore the planner, which is not exported: every interleaving,
// within small bounds, of two processes, a user, a vandal, a lagging cache and one failing request. Laws are checked at
// every step, and mutants of the policy show that each law can fail.

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

var faithful = policy{decide: (*owned).decide}

// TestExplore visits every state within each of its bounds and prints how many there are.
func TestExplore(t *testing.T) {
	t.Parallel()
	total := 0
	for name, c := range map[string]struct {
		reason string
		budget budget
		passes [2]int8 // of each process
		long   bool
	}{
		"the whole scope, one pass each": {
			"three generations, two incarnations, a request that fails", budget{bumps: 2, deletes: 1, faults: 1}, [2]int8{1, 1}, false,
		},
		"a process comes back": {
			"it remembers its own write while the cache does not show it", budget{bumps: 2, faults: 1}, [2]int8{2, 1}, true,
		},
		"it comes back to another object": {
			"what it remembers is of the predecessor", budget{bumps: 1, deletes: 1, faults: 1}, [2]int8{2, 1}, true,
		},
		"somebody takes what is ours": {
			"three times, and leaves nonsense", budget{vandals: 3}, [2]int8{3, 0}, false,
		},
	} {
		if c.long && testing.Short() {
			continue
		}
		for _, cfg := range configs(t, faithful) {
			e := cfg.explore(c.budget, c.passes, 2_000_000)
			for _, law := range slices.Sorted(maps.Keys(e.hit)) {
				t.Errorf("%s, %s (%s): %q is broken: %s", name, cfg.name, c.reason, law, e.hit[law])
			}
			if len(e.todo) > 0 {
				t.Errorf("%s, %s: %d states are left", name, cfg.name, len(e.todo))
			}
			t.Logf("%s, %s: %d distinct states", name, cfg.name, len(e.seen))
			total += len(e.seen)
		}
	}
	t.Logf("%d distinct states", total)
	if total < 100_000 {
		t.Errorf("only %d states", total)
	}
}

// TestExploreMutants: every law is broken by a policy that is wrong in one thing.
func TestExploreMutants(t *testing.T) {
	t.Parallel()
	broken := map[string]bool{}
	with := func(f func(o *owned, v *view, w *want, m *memo, fresh bool, now time.Time, s *settings) decision) policy {
		return policy{decide: f}
	}
	for name, c := range map[string]struct {
		reason string
		policy policy
		laws   []string // one of them has to catch it
	}{
		"no fence": {
			"an old verdict passes after a conflict",
			with(func(o *owned, v *view, w *want, m *memo, fresh bool, now time.Time, s *settings) decision {
				if d := o.decide(v, w, m, fresh, now, s); d.verb != stale {
					return d
				}
				return decision{verb: write}
			}), []string{lawForward},
		},
		"fence on metadata.generation": {
			"a spec that changes fast starves the status",
			with(func(o *owned, v *view, w *want, m *memo, fresh bool, now time.Time, s *settings) decision {
				if v.uid == w.uid && w.generation < v.generation {
					return decision{verb: stale}
				}
				return o.decide(v, w, m, fresh, now, s)
			}), []string{lawStale},
		},
		"relabel":    {"the retry takes the label of the object it read", policy{decide: (*owned).decide, relabel: true}, []string{lawLabel}},
		"no version": {"the server applies to whatever is there", policy{decide: (*owned).decide, unfenced: true}, []string{lawNewcomer, lawForward}},
		"uid is not compared": {
			"the live read after a conflict is of another object",
			with(func(o *owned, v *view, w *want, m *memo, fresh bool, now time.Time, s *settings) decision {
				u := *v
				u.uid = w.uid
				return o.decide(&u, w, m, fresh, now, s)
			}), []string{lawNewcomer},
		},
		"behind means written": {
			"a new verdict on an old object is taken for the one before",
			with(func(o *owned, v *view, w *want, m *memo, fresh bool, now time.Time, s *settings) decision {
				if m.known && !fresh && v.uid == w.uid && !older(m.resourceVersion, v.resourceVersion) {
					return decision{verb: keep}
				}
				return o.decide(v, w, m, fresh, now, s)
			}), []string{lawKept, lawSettles},
		},
		"written once is written": {
			"what was taken since is not taken back",
			with(func(o *owned, v *view, w *want, m *memo, fresh bool, now time.Time, s *settings) decision {
				if v.uid == w.uid && m.known && w.sum(o).all == m.all {
					return decision{verb: keep}
				}
				return o.decide(v, w, m, fresh, now, s)
			}), []string{lawKept, lawSettles},
		},
		"a corrupt observedGeneration fences": {
			"no verdict passes it ever again",
			with(func(o *owned, v *view, w *want, m *memo, fresh bool, now time.Time, s *settings) decision {
				if v.uid == w.uid && v.observed > w.generation {
					return decision{verb: stale}
				}
				return o.decide(v, w, m, fresh, now, s)
			}), []string{lawSettles, lawStale},
		},
		"memory by name": {"the newcomer is judged by its predecessor", policy{decide: (*owned).decide, byName: true},
			[]string{lawStale, lawSettles}},
		"always write": {
			"a converged object is written with every pass",
			with(func(o *owned, v *view, w *want, m *memo, fresh bool, now time.Time, s *settings) decision {
				d := o.decide(v, w, m, fresh, now, s)
				if d.verb == keep {
					d.verb = write
				}
				return d
			}), []string{lawFree},
		},
		"gone at the first conflict": {
			"a conflict is taken for a deletion",
			with(func(o *owned, v *view, w *want, m *memo, fresh bool, now time.Time, s *settings) decision {
				if fresh {
					return decision{verb: gone}
				}
				return o.decide(v, w, m, fresh, now, s)
			}), []string{lawGone},
		},
		"looks for ever": {
			"the live object is not trusted either",
			with(func(o *owned, v *view, w *want, m *memo, _ bool, now time.Time, s *settings) decision {
				if m.known && v.uid == w.uid && w.sum(o).all != m.all {
					return decision{verb: look}
				}
				return o.decide(v, w, m, false, now, s)
			}), []string{lawBounded},
		},
		"the whole list": {
			"a merge patch of all conditions, as they were when it was computed", policy{decide: (*owned).decide, unfenced: true, wholeList: true},
			[]string{lawForeign},
		},
	} {
		found := map[string]string{}
		for _, cfg := range configs(t, c.policy) {
			for _, vandals := range []int8{0, 1} {
				e := cfg.explore(budget{bumps: 1, deletes: 1, vandals: vandals, faults: 1}, [2]int8{2, 2}, 30_000, c.laws...)
				maps.Copy(found, e.hit)
			}
		}
		for law := range found {
			broken[law] = true
		}
		caught := slices.ContainsFunc(c.laws, func(law string) bool { _, ok := found[law]; return ok })
		if !caught {
			t.Errorf("%s (%s): not caught by %s; broken: %v", name, c.reason, strings.Join(c.laws, " or "), slices.Sorted(maps.Keys(found)))
		}
	}
	for _, law := range laws {
		if !broken[law] {
			t.Errorf("no mutant breaks the law that %s", law)
		}
	}
}
