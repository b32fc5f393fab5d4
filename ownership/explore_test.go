// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/ownership"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// What the owners declare, by generation, as bits: 1 is the natively claimed child, 2 the labelled one.
var (
	moves   = scene{name: "a child moves", declares: [2][3]int8{{0, 3, 1}, {0, 0, 2}}}
	adopts  = scene{name: "a child moves and is adopted", adopt: true, declares: [2][3]int8{{0, 3, 1}, {0, 0, 2}}}
	begins  = scene{name: "nothing exists", empty: true, declares: [2][3]int8{{0, 3, 1}, {0, 2, 0}}}
	contest = scene{name: "both want both", empty: true, adopt: true, declares: [2][3]int8{{0, 3, 1}, {0, 3, 2}}}
)

// TestExplore visits every state within each of its bounds and prints how many there are: two owners, two children,
// two incarnations of each, a cache that lags object by object, every policy of deletion, and between any two requests
// a stranger, a user, the garbage collector, a lost request or the end of the process.
func TestExplore(t *testing.T) {
	t.Parallel()
	total := 0
	for name, c := range map[string]struct {
		reason string
		scene  scene
		budget budget
		passes [2]int8
		long   bool
	}{
		"a deletion and a stranger": {"the whole life of an owner", moves, budget{deletes: 1, creates: 1, strangers: 1}, [2]int8{3, 0}, false},
		"a request that fails": {
			"or the process ends, or nobody hears the answer", moves, budget{deletes: 1, strangers: 1, faults: 1}, [2]int8{2, 0}, true,
		},
		"a hand-over":  {"one patch, both caches behind", moves, budget{specs: 2, handovers: 1, strangers: 1}, [2]int8{2, 1}, false},
		"an adoption":  {"of what a former owner or a stranger left", adopts, budget{deletes: 1, creates: 1, strangers: 1}, [2]int8{2, 0}, false},
		"a first pass": {"what is created while the owner goes", begins, budget{deletes: 1, creates: 1, strangers: 1}, [2]int8{2, 1}, true},
		"a contest":    {"two owners at work at the same time", contest, budget{deletes: 1}, [2]int8{2, 1}, true},
		"a new spec":   {"a child is pruned by one and created by the other", moves, budget{deletes: 1, specs: 2}, [2]int8{2, 1}, true},
	} {
		if c.long && testing.Short() {
			continue
		}
		e := newExplorer(t, c.scene, policy{})
		e.explore(c.budget, c.passes, 2_000_000)
		for _, law := range slices.Sorted(maps.Keys(e.hit)) {
			t.Errorf("%s (%s): %q is broken: %s", name, c.reason, law, e.hit[law])
		}
		if len(e.todo) > 0 {
			t.Errorf("%s: %d states are left", name, len(e.todo))
		}
		t.Logf("%s: %d distinct states, %d questions to the planner", name, len(e.seen), len(e.plans))
		total += len(e.seen)
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
	life := budget{deletes: 1, creates: 1, strangers: 1}
	for name, c := range map[string]struct {
		reason string
		policy policy
		scene  scene
		budget budget
		law    string // that catches it
	}{
		"a create without a resourceVersion": {
			"unforced apply adopts a namesake without a word", policy{blind: true}, begins, life, lawForeign,
		},
		"an update without a uid": {"apply creates what is missing", policy{ghost: true}, moves, life, lawGhost},
		"an update of a natively claimed child without a resourceVersion": {
			"a stripped reference comes back", policy{after: func(d *decision, _ *view) {
				d.fenced = d.fenced && d.kid != native
			}}, moves, life, lawOrphan,
		},
		"an update of a labelled child without a resourceVersion": {
			"a hand-over is undone, and the child pruned afterwards", policy{after: func(d *decision, _ *view) {
				d.fenced = d.fenced && d.kid != labelled
			}}, moves, budget{specs: 2, handovers: 1, strangers: 1}, lawForeign,
		},
		"a delete without preconditions":     {"the newcomer goes", policy{reckless: true}, moves, life, lawForeign},
		"a prune after a failed apply":       {"the old child goes before the new one is there", policy{careless: true}, moves, budget{specs: 1, strangers: 1}, lawCareful},
		"a teardown that believes the cache": {"the sibling has lost its reference since", policy{trusting: true}, moves, life, lawOrphan},
		"a teardown that confirms nothing":   {"a child the cache has not shown", policy{hasty: true}, begins, life, lawLeak},
		"an adoption that asks nobody":       {"the owner is on its way out", policy{sure: true}, adopts, life, lawDoomed},
		"a failed delete is remembered":      {"nobody tries again", policy{hopeful: true}, moves, budget{specs: 1, faults: 1}, lawSettles},
		"what was written once is written":   {"drift is never corrected", policy{naive: true}, moves, life, lawSettles},
		"claims before the finalizer":        {"nobody cleans up after them", policy{eager: true}, begins, life, lawPrepared},
		"a conflict is tried for ever":       {"against somebody as stubborn", policy{stubborn: true, after: unread}, moves, life, lawBounded},
		"an owner is its name": {
			"the claims of a predecessor", policy{plan: func(s *ownership.Set, in planned) (ownership.Plan, error) {
				for i, o := range in.live {
					in.live[i] = renamed(o, "owner-1", string(in.owner.GetUID()))
				}
				return faithful(s, in)
			}}, begins, life, lawForeign,
		},
		"always write": {
			"a converged child is written with every pass", policy{after: func(d *decision, _ *view) {
				if d.verb == ownership.Keep && d.seen != 0 {
					d.verb, d.fenced = ownership.Update, true
				}
			}}, moves, life, lawFree,
		},
		"an orphan is deleted": {
			"instead of released", policy{after: func(d *decision, _ *view) {
				if d.verb == ownership.Release {
					d.verb = ownership.Prune
				}
			}}, moves, life, lawOrphan,
		},
		"what is terminating is deleted": {
			"a second foreground delete can wedge it", policy{after: func(d *decision, _ *view) {
				if d.verb == ownership.Wait && !d.want {
					d.verb = ownership.Prune
				}
			}}, moves, life, lawTwice,
		},
		"what nobody claims is ours": {
			"it has the right name", policy{after: func(d *decision, v *view) {
				if k := v.kids[d.kid]; d.verb == ownership.Conflict && k.ref == nobody && k.label == nobody {
					d.verb, d.fenced = ownership.Update, true
				}
			}}, moves, life, lawForeign,
		},
	} {
		e := newExplorer(t, c.scene, c.policy)
		e.explore(c.budget, [2]int8{2, 1}, 200_000, c.law)
		for law := range e.hit {
			broken[law] = true
		}
		if _, ok := e.hit[c.law]; !ok {
			t.Errorf("%s (%s): not caught by %q after %d states; broken: %v", name, c.reason, c.law, len(e.seen), slices.Sorted(maps.Keys(e.hit)))
		}
	}
	for _, law := range laws {
		if !broken[law] {
			t.Errorf("no mutant breaks the law that %s", law)
		}
	}
}

// unread decides the same again, whatever is live: the server refuses it for ever.
func unread(d *decision, v *view) {
	if d.verb == ownership.Conflict && v.kids[d.kid].ref == stranger {
		d.verb, d.fenced, d.rv = ownership.Update, true, 0
	}
}

func renamed(o ownership.Object, from, to string) ownership.Object {
	u := o.(*unstructured.Unstructured).DeepCopy()
	refs := u.GetOwnerReferences()
	for i := range refs {
		if string(refs[i].UID) == from {
			refs[i].UID = types.UID(to)
		}
	}
	if len(refs) > 0 {
		u.SetOwnerReferences(refs)
	}
	labels := u.GetLabels()
	for k, v := range labels {
		labels[k] = strings.Replace(v, from, to, 1)
	}
	if len(labels) > 0 {
		u.SetLabels(labels)
	}
	return u
}
