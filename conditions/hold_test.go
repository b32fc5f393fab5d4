// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ashlar-go/ashlar/conditions"
)

// step is one pass in the life of a held type.
type step struct {
	after   time.Duration // since the start
	gen     int64
	verdict metav1.ConditionStatus // "": none
	want    metav1.ConditionStatus // "": absent
	requeue time.Duration
}

func TestHold(t *testing.T) {
	t.Parallel()
	const m = time.Minute
	positive := conditions.Type{Name: "A", Hold: conditions.Hold{Bad: 2 * m, Good: m}}
	worseOnly := conditions.Type{Name: "A", Hold: conditions.Hold{Bad: 2 * m}}
	negative := conditions.Type{Name: "A", Negative: true, Hold: conditions.Hold{Bad: 2 * m, Good: m}}
	tests := map[string]struct {
		reason string
		typ    conditions.Type
		steps  []step
	}{
		"blip": {"a change that does not last never shows", positive, []step{
			{0, 1, "True", "True", 0},
			{m, 1, "False", "True", 2 * m},
			{m + 30*time.Second, 1, "True", "True", 0},
			{3 * m, 1, "False", "True", 2 * m}, // a new change, a new window
			{5 * m, 1, "False", "False", 0},
		}},
		"lasting": {"shown exactly when due, not a nanosecond before", positive, []step{
			{0, 1, "True", "True", 0},
			{m, 1, "False", "True", 2 * m},
			{3*m - 1, 1, "False", "True", 1},
			{3 * m, 1, "False", "False", 0},
			{4 * m, 1, "True", "False", m},
			{5 * m, 1, "True", "True", 0},
		}},
		"recovery at once": {"Good is zero by default", worseOnly, []step{
			{0, 1, "True", "True", 0},
			{m, 1, "False", "True", 2 * m},
			{3 * m, 1, "False", "False", 0},
			{3*m + 1, 1, "True", "True", 0},
		}},
		"first report": {"there is nothing to hold on to", positive, []step{{0, 1, "False", "False", 0}}},
		"after silence": {"not reported is no verdict to hold on to", positive, []step{
			{0, 1, "", "Unknown", 0}, {1, 1, "False", "False", 0},
		}},
		"silence is held": {"a good type that is not judged once is still good", positive, []step{
			{0, 1, "True", "True", 0}, {m, 1, "", "True", 2 * m}, {3 * m, 1, "", "Unknown", 0},
		}},
		"ways for the worse": {"Unknown and False are one direction, the window is not restarted", positive, []step{
			{0, 1, "True", "True", 0},
			{m, 1, "Unknown", "True", 2 * m},
			{2 * m, 1, "False", "True", m},
			{3 * m, 1, "False", "False", 0},
		}},
		"new generation": {"what was true of another spec is not held against this one", positive, []step{
			{0, 1, "True", "True", 0},
			{m, 1, "False", "True", 2 * m},
			{2 * m, 2, "False", "False", 0},
		}},
		"new generation, new window": {"the old window does not count for it", positive, []step{
			{0, 1, "True", "True", 0},
			{m, 1, "False", "True", 2 * m},
			{2 * m, 2, "True", "True", 0},
			{3 * m, 2, "False", "True", 2 * m},
		}},
		"clock set back": {"a window never gets longer", positive, []step{
			{10 * m, 1, "True", "True", 0},
			{11 * m, 1, "False", "True", 2 * m},
			{m, 1, "False", "True", 2 * m},
			{3 * m, 1, "False", "False", 0},
		}},
		"direction turned": {"a change for the better does not inherit the window of one for the worse", positive, []step{
			{0, 1, "Unknown", "Unknown", 0},
			{m, 1, "False", "Unknown", 2 * m},
			{2 * m, 1, "True", "Unknown", m},
			{3 * m, 1, "True", "True", 0},
		}},
		"negative appears": {"it stays absent for a while", negative, []step{
			{0, 1, "", "", 0},
			{m, 1, "True", "", 2 * m},
			{3 * m, 1, "True", "True", 0},
			{4 * m, 1, "", "True", m}, // and is kept for a while
			{5 * m, 1, "", "", 0},
		}},
		"negative, new generation": {"absence was established for another spec", negative, []step{
			{0, 1, "", "", 0}, {m, 2, "True", "True", 0},
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := conditions.MustNew("Ready", tc.typ, conditions.Type{Name: "Other"})
			memory := &conditions.Memory{}
			var live []metav1.Condition
			for i, st := range tc.steps {
				p := s.Begin(live, st.gen, memory)
				if st.verdict != "" {
					p.Put(metav1.Condition{Type: "A", Status: st.verdict, Reason: "R", Message: fmt.Sprint("at ", st.after)})
				}
				p.True("Other", "R", "")
				r := done(t, p, epoch.Add(st.after))
				var got metav1.ConditionStatus
				for _, c := range r.Conditions {
					if c.Type == "A" {
						got = c.Status
					}
				}
				if got != st.want || r.RequeueAfter != st.requeue {
					t.Fatalf("step %d: shows %q, due in %v; want %q, %v: %s", i+1, got, r.RequeueAfter, st.want, st.requeue, tc.reason)
				}
				if st.requeue > 0 && st.verdict != "" && r.Changed {
					t.Errorf("step %d: a held change was written: %v", i+1, cmp.Diff(live, r.Conditions))
				}
				live = r.Conditions
			}
		})
	}
}

func TestHoldNeedsAMemory(t *testing.T) {
	t.Parallel()
	s := conditions.MustNew("Ready", conditions.Type{Name: "A", Hold: conditions.Hold{Bad: time.Hour}})
	p := s.Begin(nil, 1, nil)
	p.True("A", "R", "")
	live := done(t, p, epoch).Conditions
	p = s.Begin(live, 1, nil)
	p.False("A", "R", "")
	if r := done(t, p, epoch); get(t, r.Conditions, "A").Status != "False" || r.RequeueAfter != 0 {
		t.Error("held without a memory")
	}
}

func TestBlockIsNotHeld(t *testing.T) {
	t.Parallel()
	s := conditions.MustNew("Ready", conditions.Type{Name: "A"},
		conditions.Type{Name: "B", Needs: []string{"A"}, Hold: conditions.Hold{Bad: time.Hour, Good: time.Hour}})
	memory := &conditions.Memory{}
	var live []metav1.Condition
	for i, a := range []metav1.ConditionStatus{"True", "False", "True"} {
		p := s.Begin(live, 1, memory)
		p.Put(metav1.Condition{Type: "A", Status: a, Reason: "R"})
		p.True("B", "R", "")
		r := done(t, p, epoch)
		want := metav1.ConditionTrue
		if a == "False" {
			want = metav1.ConditionUnknown
		}
		if got := get(t, r.Conditions, "B").Status; got != want || r.RequeueAfter != 0 {
			t.Fatalf("pass %d: B is %s, due in %v", i+1, got, r.RequeueAfter)
		}
		checkLawsOf(t, s, r.Conditions)
		live = r.Conditions
	}
}

func TestHeldHealthIsWhatEdgesSee(t *testing.T) {
	t.Parallel()
	s := conditions.MustNew("Ready", conditions.Type{Name: "A", Hold: conditions.Hold{Bad: time.Hour}},
		conditions.Type{Name: "B", Needs: []string{"A"}})
	memory := &conditions.Memory{}
	p := s.Begin(nil, 1, memory)
	p.True("A", "R", "")
	p.True("B", "R", "")
	live := done(t, p, epoch).Conditions
	p = s.Begin(live, 1, memory)
	p.False("A", "R", "")
	p.False("B", "Own", "")
	r := done(t, p, epoch)
	if got := get(t, r.Conditions, "B"); got.Status != "False" || got.Reason != "Own" || r.Cause != "B" {
		t.Errorf("%s, cause %s", brief(got), r.Cause)
	}
	checkLawsOf(t, s, r.Conditions)
}

func TestFirstOfSeveralHoldsIsTold(t *testing.T) {
	t.Parallel()
	var types []conditions.Type
	for name, d := range map[string]time.Duration{"A": 3 * time.Minute, "B": time.Minute, "C": 2 * time.Minute} {
		types = append(types, conditions.Type{Name: name, Hold: conditions.Hold{Bad: d}})
	}
	s := conditions.MustNew("Ready", types...)
	memory := &conditions.Memory{}
	var live []metav1.Condition
	for _, status := range []metav1.ConditionStatus{"True", "False"} {
		p := s.Begin(live, 1, memory)
		for _, typ := range types {
			p.Put(metav1.Condition{Type: typ.Name, Status: status, Reason: "R"})
		}
		r := done(t, p, epoch)
		if status == "False" && r.RequeueAfter != time.Minute {
			t.Errorf("due in %v", r.RequeueAfter)
		}
		live = r.Conditions
	}
}

// Another replica wrote the status of generation 2 while this one remembered a change of generation 1.
func TestHoldOfAnOlderGenerationIsForgotten(t *testing.T) {
	t.Parallel()
	s := conditions.MustNew("Ready", conditions.Type{Name: "A", Hold: conditions.Hold{Bad: time.Minute}})
	memory := &conditions.Memory{}
	pass := func(live []metav1.Condition, gen int64, m *conditions.Memory, status metav1.ConditionStatus, after time.Duration) conditions.Result {
		p := s.Begin(live, gen, m)
		p.Put(metav1.Condition{Type: "A", Status: status, Reason: "R"})
		return done(t, p, epoch.Add(after))
	}
	first := pass(nil, 1, memory, "True", 0)
	pass(first.Conditions, 1, memory, "False", 0)
	elsewhere := pass(first.Conditions, 2, nil, "True", time.Second)
	if r := pass(elsewhere.Conditions, 2, memory, "False", time.Hour); r.Changed || r.RequeueAfter != time.Minute {
		t.Errorf("changed %t, due in %v: the window of another generation was counted", r.Changed, r.RequeueAfter)
	}
}

func TestSetsShareAMemory(t *testing.T) {
	t.Parallel()
	hold := conditions.Hold{Bad: time.Minute}
	sets := []*conditions.Set{
		conditions.MustNew("Ready", conditions.Type{Name: "A", Hold: hold}),
		conditions.MustNew("Available", conditions.Type{Name: "B", Hold: hold}),
	}
	memory := &conditions.Memory{}
	live := make([][]metav1.Condition, 2)
	pass := func(i int, status metav1.ConditionStatus, now time.Time) conditions.Result {
		p := sets[i].Begin(live[i], 1, memory)
		p.Put(metav1.Condition{Type: sets[i].Types()[0].Name, Status: status, Reason: "R"})
		r := done(t, p, now)
		live[i] = r.Conditions
		return r
	}
	pass(0, "True", epoch)
	pass(1, "True", epoch)
	pass(0, "False", epoch)
	pass(1, "False", epoch.Add(30*time.Second))
	if r := pass(0, "False", epoch.Add(time.Minute)); !r.Changed {
		t.Error("the other set's pass made the first forget")
	}
}

func TestMemoriesAreBoundedAndPerIncarnation(t *testing.T) {
	t.Parallel()
	m := conditions.NewMemories(2)
	a, b := m.Of("a"), m.Of("b")
	if a == b || m.Of("a") != a {
		t.Error("one memory per uid")
	}
	m.Of("c") // b is the least recently used
	if m.Len() != 2 || m.Of("a") != a || m.Of("b") == b {
		t.Error("the least recently used one goes first")
	}
	big := conditions.NewMemories(0)
	for i := range 100_001 {
		big.Of(types.UID(fmt.Sprint(i)))
	}
	if big.Len() != 100_000 {
		t.Errorf("default limit: %d", big.Len())
	}
}
