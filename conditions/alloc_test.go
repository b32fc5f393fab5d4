// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package conditions_test

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashlar-go/ashlar/conditions"
)

// Not parallel: AllocsPerRun counts the allocations of all goroutines.

func TestUnchangedPassAllocatesNothing(t *testing.T) {
	for name, status := range map[string]metav1.ConditionStatus{"good": "True", "bad and blocked": "False"} {
		for _, n := range []int{5, 20, 100} {
			s := chain(n)
			vs := verdicts(s, status, "Reported")
			live := settledOn(t, s, vs)
			allocs := testing.AllocsPerRun(100, func() {
				p := s.Begin(live, 7, nil)
				for i := range vs {
					p.Put(vs[i])
				}
				if r, err := p.Done(epoch); err != nil || r.Changed {
					t.Fatal(r.Changed, err)
				}
			})
			if allocs != 0 {
				t.Errorf("%s, %d types: %v allocations", name, n, allocs)
			}
		}
	}
}

func TestUnchangedPassWithHoldAndRedactorAllocatesNothing(t *testing.T) {
	s := conditions.MustNew("Ready",
		conditions.Type{Name: "A", Hold: conditions.Hold{Bad: 1e9}},
		conditions.Type{Name: "B", Redact: func(s string) string { return s[:min(3, len(s))] }},
	)
	var live []metav1.Condition
	memory := &conditions.Memory{}
	pass := func(a metav1.ConditionStatus, b string) conditions.Result {
		p := s.Begin(live, 7, memory)
		p.Put(metav1.Condition{Type: "A", Status: a, Reason: "R"})
		p.True("B", "R", b)
		r, err := p.Done(epoch)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	live = pass("True", "abc1").Conditions
	allocs := testing.AllocsPerRun(100, func() {
		if r := pass("False", "abc2"); r.Changed || r.RequeueAfter != 1e9 {
			t.Fatal(r)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations while held", allocs)
	}
}

func TestUnchangedEvaluateAllocatesNothing(t *testing.T) {
	s := chain(20)
	h := map[string]conditions.Handler[*int]{}
	for _, typ := range s.Types() {
		h[typ.Name] = func(context.Context, *int) (conditions.Verdict, error) {
			return conditions.Verdict{Status: "True", Reason: "Up"}, nil
		}
	}
	ctx, obj := context.Background(), new(int)
	first, err := conditions.Evaluate(ctx, s, obj, nil, 1, h)
	if err != nil {
		t.Fatal(err)
	}
	allocs := testing.AllocsPerRun(100, func() {
		if r, err := conditions.Evaluate(ctx, s, obj, first.Conditions, 1, h); err != nil || r.Changed {
			t.Fatal(r.Changed, err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func TestChangedPassAllocatesTheList(t *testing.T) {
	s := chain(20)
	yes, no := verdicts(s, "True", "Up"), verdicts(s, "False", "Down")
	live := settledOn(t, s, no)
	allocs := testing.AllocsPerRun(100, func() {
		p := s.Begin(live, 7, nil)
		for i := range yes {
			p.Put(yes[i])
		}
		if r, err := p.Done(epoch); err != nil || !r.Changed {
			t.Fatal(r.Changed, err)
		}
	})
	if allocs > 1 {
		t.Errorf("%v allocations to recover, want the list alone", allocs)
	}
}
