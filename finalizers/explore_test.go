// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers

// These tests are inside the package because they explore the planner, which is not exported.

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

var starts = map[string]thing{
	"a new object":           {inc: 1},
	"another's and a former": {inc: 1, list: [5]int8{theirs, former}, other: true},
	"ours twice":             {inc: 1, list: [5]int8{ours, theirs, ours}},
}

// TestExplore visits every state within each of its bounds and prints how many there are.
func TestExplore(t *testing.T) {
	t.Parallel()
	total := 0
	for name, c := range map[string]struct {
		reason string
		budget budget
		passes [2]int8
		long   bool
	}{
		"one process": {
			"every policy of deletion, a step that waits, a request that fails, a newcomer of the name",
			budget{deletes: 1, creates: 1, others: 1, waits: 1, faults: 1}, [2]int8{3, 0}, false,
		},
		"it is replaced": {"by one that knows nothing; a step gets stuck", budget{deletes: 1, waits: 1, stucks: 1, restarts: 1, faults: 1}, [2]int8{4, 0}, true},
		"two at once":    {"an old and a new leader", budget{deletes: 1, waits: 1}, [2]int8{2, 1}, true},
	} {
		if c.long && testing.Short() {
			continue
		}
		for title, start := range starts {
			e := newExplorer(t, policy{})
			e.explore(start, c.budget, c.passes, 2_000_000)
			for _, law := range slices.Sorted(maps.Keys(e.hit)) {
				t.Errorf("%s, %s (%s): %q is broken: %s", name, title, c.reason, law, e.hit[law])
			}
			if len(e.todo) > 0 {
				t.Errorf("%s, %s: %d states are left", name, title, len(e.todo))
			}
			t.Logf("%s, %s: %d distinct states, %d patches", name, title, len(e.seen), len(e.bodies))
			total += len(e.seen)
		}
	}
	t.Logf("%d distinct states", total)
	if total < 100_000 {
		t.Errorf("only %d states", total)
	}
}

// TestExploreMutants: every law is broken by a planner or a protocol that is wrong in one thing.
func TestExploreMutants(t *testing.T) {
	t.Parallel()
	broken := map[string]bool{}
	one := budget{deletes: 1, creates: 1, others: 1, waits: 1, faults: 1}
	for name, c := range map[string]struct {
		reason string
		policy policy
		budget budget
		passes [2]int8
		law    string // that catches it
	}{
		"a patch without the uid": {
			"the list of a newcomer looks the same", policy{ops: func(_ stage, ops []op, _ client.Object) []op {
				return without(ops, "/metadata/uid")
			}}, one, [2]int8{3, 0}, lawNewcomer,
		},
		"a removal that does not look at the entry": {
			"the list has moved", policy{ops: func(_ stage, ops []op, _ client.Object) []op {
				if !slices.ContainsFunc(ops, func(o op) bool { return o.Op == opRemove && strings.HasPrefix(o.Path, finalizersPath) }) {
					return ops
				}
				return without(ops, finalizersPath)
			}}, one, [2]int8{3, 0}, lawOthers,
		},
		"the whole list": {
			"as it was when it was read", policy{ops: func(s stage, ops []op, o client.Object) []op {
				if s != storing {
					return ops
				}
				return []op{ops[0], {opAdd, finalizersPath, encode(append(slices.Clone(o.GetFinalizers()), names[ours]))}}
			}}, one, [2]int8{3, 0}, lawOthers,
		},
		"progress that does not look at the finalizer": {
			"the other process has removed it", policy{ops: func(_ stage, ops []op, _ client.Object) []op {
				if slices.ContainsFunc(ops, func(o op) bool { return o.Op == opRemove }) {
					return ops
				}
				return without(ops, finalizersPath+"/")
			}}, budget{deletes: 1, waits: 1}, [2]int8{2, 2}, lawRest,
		},
		"lowest index first": {
			"the second entry has moved", policy{ops: func(_ stage, ops []op, _ client.Object) []op { return turned(ops) }},
			one, [2]int8{2, 0}, lawSettles,
		},
		"a refused patch is sent for ever": {
			"the server does not want it", policy{stubborn: true, ops: func(_ stage, ops []op, _ client.Object) []op { return turned(ops) }},
			one, [2]int8{2, 0}, lawBounded,
		},
		"the cache is right":                {"it shows the step before the last", policy{trusting: true}, one, [2]int8{4, 0}, lawAgain},
		"nothing is stored between waves":   {"a crash forgets the first", policy{hasty: true}, one, [2]int8{3, 0}, lawOrder},
		"what was stored is not remembered": {"the cache does not show it yet", policy{forgets: true}, one, [2]int8{3, 0}, lawOnce},
		"every pass starts over":            {"whatever is stored", policy{fresh: true}, one, [2]int8{4, 0}, lawAgain},
		"a refusal is a success":            {"the test that failed was another one", policy{sloppy: true}, one, [2]int8{3, 0}, lawSettles},
		"no answer is no write":             {"the policy was stored, its sign is gone", policy{certain: true}, one, [2]int8{3, 0}, lawPolicy},
		"the policy is not read":            {"its sign is gone", policy{deaf: true}, one, [2]int8{3, 0}, lawPolicy},
		"apply before the finalizer":        {"what it makes is never cleaned up", policy{early: true}, one, [2]int8{2, 0}, lawStored},
		"waiting is over":                   {"nothing can be done now", policy{eager: true}, one, [2]int8{3, 0}, lawDone},
		"no former name":                    {"it keeps the object", policy{former: true}, one, [2]int8{3, 0}, lawSettles},
		"cleanup for others": {
			"the finalizer was never stored", policy{verb: func(v Verb) Verb {
				if v == Leave {
					return Clean
				}
				return v
			}}, one, [2]int8{3, 0}, lawHeld,
		},
		"always write": {
			"although the finalizer is stored", policy{verb: func(v Verb) Verb {
				if v == Keep {
					return Store
				}
				return v
			}}, one, [2]int8{2, 0}, lawFree,
		},
	} {
		found := map[string]string{}
		for _, start := range starts {
			e := newExplorer(t, c.policy)
			e.explore(start, c.budget, c.passes, 100_000, c.law)
			if maps.Copy(found, e.hit); found[c.law] != "" {
				break
			}
		}
		for law := range found {
			broken[law] = true
		}
		if _, ok := found[c.law]; !ok {
			t.Errorf("%s (%s): not caught by %q; broken: %v", name, c.reason, c.law, slices.Sorted(maps.Keys(found)))
		}
	}
	for _, law := range laws {
		if !broken[law] {
			t.Errorf("no mutant breaks the law that %s", law)
		}
	}
}

// without drops the tests of a path and below it.
func without(ops []op, path string) []op {
	return slices.DeleteFunc(slices.Clone(ops), func(o op) bool { return o.Op == opTest && strings.HasPrefix(o.Path, path) })
}

// turned sends the removals of entries, each with its test, in the opposite order.
func turned(ops []op) []op {
	var pairs, rest []op
	for i := 0; i < len(ops); i++ {
		if ops[i].Op == opTest && strings.HasPrefix(ops[i].Path, finalizersPath+"/") && i+1 < len(ops) && ops[i+1].Path == ops[i].Path {
			pairs = append([]op{ops[i], ops[i+1]}, pairs...)
			i++
			continue
		}
		rest = append(rest, ops[i])
	}
	return append(rest, pairs...)
}
