// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions_test

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/ashlar-go/ashlar/conditions"
	"github.com/ashlar-go/ashlar/conditions/conditionstest"
)

func TestLawsHoldForRandomPasses(t *testing.T) {
	t.Parallel()
	n := 3000
	if testing.Short() {
		n = 300
	}
	for seed := range n {
		rng := rand.New(rand.NewSource(int64(seed)))
		data := make([]byte, 400)
		rng.Read(data)
		checkLaws(t, data)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzLaws(f *testing.F) {
	for seed := range 8 {
		data := make([]byte, 100*seed)
		rand.New(rand.NewSource(int64(seed))).Read(data)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkLaws(t, data) })
}

// checkLaws runs one scenario and holds it against everything the package promises about a single pass.
func checkLaws(t *testing.T, data []byte) {
	sc := (&tape{data: data}).scenario()
	pristine := slices.Clone(sc.live)
	r, err := sc.run()
	defer func() {
		if t.Failed() {
			t.Logf("\n%v\nresult %.400q", sc, fmt.Sprint(r.Conditions))
		}
	}()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(sc.live, pristine) {
		t.Error("the live conditions were modified")
	}
	if !r.Changed && !identical(r.Conditions, sc.live) {
		t.Error("unchanged, but not the live slice")
	}

	ours, theirs := split(sc.set, r.Conditions)
	if errs := validation.ValidateConditions(ours, nil); len(errs) > 0 {
		t.Errorf("output is refused: %v", errs)
	}
	if r.Changed {
		checkOrder(t, sc.set, r.Conditions)
	}
	_, foreign := split(sc.set, sc.live)
	if !slices.Equal(theirs, foreign) {
		t.Errorf("foreign conditions changed: %v", cmp.Diff(foreign, theirs))
	}
	state := conditionstest.Snapshot{Generation: max(sc.generation, 0), Conditions: r.Conditions}
	if vs := conditionstest.Check(sc.set, state); len(vs) > 0 {
		t.Error(vs)
	}
	checkTimes(t, sc, ours)
	checkCause(t, sc.set, r)
	checkOrderOfCalls(t, sc, r)
	checkFixpoint(t, sc, r)
}

// identical reports whether two slices are the same memory.
func identical(a, b []metav1.Condition) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

func split(s *conditions.Set, conds []metav1.Condition) (ours, theirs []metav1.Condition) {
	names := append(s.Owned(), s.Retired()...)
	for _, c := range conds {
		if slices.Contains(names, c.Type) {
			ours = append(ours, c)
		} else {
			theirs = append(theirs, c)
		}
	}
	return ours, theirs
}

func checkOrder(t *testing.T, s *conditions.Set, conds []metav1.Condition) {
	t.Helper()
	order := s.Owned()
	last := -1
	for _, c := range conds {
		i := slices.Index(order, c.Type)
		if i < 0 {
			i = len(order) // foreign: after all of ours
		}
		if i < last {
			t.Errorf("%s is out of order", c.Type)
		}
		last = i
	}
}

// checkTimes: the first of repeated live conditions counts, as it does for every reader.
func checkTimes(t *testing.T, sc scenario, ours []metav1.Condition) {
	t.Helper()
	for _, c := range ours {
		i := slices.IndexFunc(sc.live, func(l metav1.Condition) bool { return l.Type == c.Type })
		now := metav1.NewTime(sc.now.Truncate(time.Second))
		if sc.now.Unix() < 0 {
			now = metav1.Unix(0, 0)
		}
		want := now
		if i >= 0 {
			was := sc.live[i].LastTransitionTime
			if !was.IsZero() && (sc.live[i].Status == c.Status || now.Before(&was)) {
				want = was
			}
		}
		if !c.LastTransitionTime.Equal(&want) {
			t.Errorf("%s: lastTransitionTime is %v, want %v", c.Type, c.LastTransitionTime, want)
		}
	}
}

func checkCause(t *testing.T, s *conditions.Set, r conditions.Result) {
	t.Helper()
	i := slices.IndexFunc(r.Conditions, func(c metav1.Condition) bool { return c.Type == s.Root() })
	root := r.Conditions[i]
	if (r.Cause == "") != (root.Status == metav1.ConditionTrue) {
		t.Errorf("%s is %s with cause %q", root.Type, root.Status, r.Cause)
	}
	for _, c := range r.Conditions {
		if c.Type == r.Cause && c.Reason != root.Reason {
			t.Errorf("cause %s has reason %s, the root %s", c.Type, c.Reason, root.Reason)
		}
	}
}

// checkOrderOfCalls: verdicts on different types commute.
func checkOrderOfCalls(t *testing.T, sc scenario, want conditions.Result) {
	t.Helper()
	other := sc
	other.calls = slices.Clone(sc.calls)
	slices.SortStableFunc(other.calls, func(a, b call) int { return -cmpString(a.c.Type, b.c.Type) })
	got, err := other.run()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("another order of calls, another result:\n%s", diff)
	}
}

func cmpString(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// checkFixpoint: neither the same verdicts nor the outcome itself changes the outcome, an hour later, after a trip
// through the API server.
func checkFixpoint(t *testing.T, sc scenario, r conditions.Result) {
	t.Helper()
	again := sc
	again.now = epoch.Add(time.Hour)
	again.live = r.Conditions
	if got, _ := again.run(); got.Changed || !identical(got.Conditions, again.live) {
		t.Errorf("same verdicts: %s", cmp.Diff(r.Conditions, got.Conditions))
	}
	ours, _ := split(sc.set, r.Conditions)
	again.live = roundTrip(t, ours)
	if got, _ := again.run(); got.Changed {
		t.Errorf("same verdicts on what the server returns: %s", cmp.Diff(again.live, got.Conditions))
	}

	again.live = r.Conditions
	stalls := slices.DeleteFunc(slices.Clone(sc.calls), func(c call) bool { return !c.stall && !c.clear })
	again.calls = nil
	for _, c := range r.Conditions {
		if slices.ContainsFunc(sc.set.Types(), func(t conditions.Type) bool { return t.Name == c.Type }) {
			again.calls = append(again.calls, call{c: c})
		}
	}
	for i, c := range stalls {
		cleared := slices.ContainsFunc(stalls[i+1:], func(o call) bool { return o.clear && o.c.Type == c.c.Type })
		if c.stall && !cleared {
			again.calls = append(again.calls, c)
		}
	}
	if got, err := again.run(); err != nil || got.Changed {
		t.Errorf("its own outcome as verdicts: %v %s", err, cmp.Diff(again.live, got.Conditions))
	}
}

// checkLawsOf holds one state of generation 1 against the laws.
func checkLawsOf(t *testing.T, s *conditions.Set, conds []metav1.Condition) {
	t.Helper()
	conditionstest.Verify(t, conditionstest.Check(s, conditionstest.Snapshot{Generation: 1, Conditions: conds}))
}
