// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashlar-go/ashlar/conditions"
)

type verdict = conditions.Verdict

// says is a handler with a fixed answer.
func says(v verdict, err error) conditions.Handler[string] {
	return func(context.Context, string) (verdict, error) { return v, err }
}

func fixedClock() conditions.Option {
	return conditions.WithClock(func() time.Time { return epoch })
}

func TestEvaluateRunsInTopologicalOrderAndSkipsBlockedTypes(t *testing.T) {
	t.Parallel()
	s := conditions.MustNew("Ready",
		conditions.Type{Name: "C", Needs: []string{"B"}},
		conditions.Type{Name: "B", Needs: []string{"A"}},
		conditions.Type{Name: "A"},
		conditions.Type{Name: "D"},
	)
	var called []string
	h := map[string]conditions.Handler[string]{}
	for _, typ := range []string{"A", "B", "C", "D"} {
		h[typ] = func(_ context.Context, obj string) (verdict, error) {
			called = append(called, typ+obj)
			v := verdict{Status: "True", Reason: "Up"}
			if typ == "B" {
				v.Status = "False"
			}
			return v, nil
		}
	}
	r, err := conditions.Evaluate(t.Context(), s, "!", nil, 1, h, fixedClock())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"A!", "B!", "D!"}, called); diff != "" {
		t.Error(diff)
	}
	if c := get(t, r.Conditions, "C"); c.Reason != "BlockedByB" || r.Cause != "B" {
		t.Error(brief(c), r.Cause)
	}
}

func TestEvaluateVerdictAndError(t *testing.T) {
	t.Parallel()
	boom := errors.New("dial tcp: connection refused")
	tests := map[string]struct {
		reason  string
		typ     conditions.Type
		handler conditions.Handler[string]
		want    string // the condition; "" is absent
		err     string
	}{
		"verdict":               {"the plain case", conditions.Type{Name: "A"}, says(verdict{Status: "True", Reason: "Up", Message: "m"}, nil), "A True Up | m", ""},
		"verdict and error":     {"both are used", conditions.Type{Name: "A"}, says(verdict{Status: "False", Reason: "Down"}, boom), "A False Down", "evaluate condition type A: dial tcp: connection refused"},
		"error":                 {"an error alone is not bad, it is Unknown", conditions.Type{Name: "A"}, says(verdict{}, boom), "A Unknown HandlerFailed | dial tcp: connection refused", "evaluate condition type A: dial tcp: connection refused"},
		"error, negative":       {"nor is it good", conditions.Type{Name: "A", Negative: true}, says(verdict{}, boom), "A Unknown HandlerFailed | dial tcp: connection refused", "evaluate condition type A: dial tcp: connection refused"},
		"nothing":               {"as if nobody had reported", conditions.Type{Name: "A"}, says(verdict{}, nil), "A Unknown NotReported | no verdict was reported", ""},
		"nothing, negative":     {"nothing abnormal to report", conditions.Type{Name: "A", Negative: true}, says(verdict{}, nil), "", ""},
		"no handler":            {"nobody looks after it", conditions.Type{Name: "A"}, nil, "A Unknown NotReported | no verdict was reported", ""},
		"panic":                 {"the process survives", conditions.Type{Name: "A"}, func(context.Context, string) (verdict, error) { panic("nil map") }, "A Unknown HandlerFailed | panic: nil map", "evaluate condition type A: panic: nil map"},
		"panic after a verdict": {"what it would have said is not known", conditions.Type{Name: "A"}, func(context.Context, string) (v verdict, _ error) { v.Status = "True"; panic(boom) }, "A Unknown HandlerFailed | panic: dial tcp: connection refused", "panic"},
		"message alone":         {"not zero: Unknown with what there is", conditions.Type{Name: "A"}, says(verdict{Message: "half"}, nil), "A Unknown Unspecified | half", ""},
	}
	for name, tc := range tests {
		for _, opts := range [][]conditions.Option{{fixedClock()}, {fixedClock(), conditions.WithParallel(4)}} {
			t.Run(fmt.Sprintf("%s/%d options", name, len(opts)), func(t *testing.T) {
				t.Parallel()
				s := conditions.MustNew("Ready", tc.typ)
				h := map[string]conditions.Handler[string]{"A": tc.handler}
				r, err := conditions.Evaluate(t.Context(), s, "", nil, 1, h, opts...)
				got := ""
				if i := slices.IndexFunc(r.Conditions, func(c metav1.Condition) bool { return c.Type == "A" }); i >= 0 {
					got = brief(r.Conditions[i])
				}
				if got != tc.want {
					t.Errorf("got %q, want %q: %s", got, tc.want, tc.reason)
				}
				var he *conditions.HandlerError
				switch {
				case tc.err == "" && err != nil:
					t.Error(err)
				case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err) || !errors.As(err, &he) || he.Type != "A"):
					t.Errorf("got error %v, want %q", err, tc.err)
				case strings.HasPrefix(name, "panic") && !strings.Contains(string(he.Stack), "evaluate_test.go"):
					t.Errorf("the stack does not show where it happened: %s", he.Stack)
				case strings.Contains(name, "error") && !errors.Is(err, boom):
					t.Error("the cause is lost")
				}
				checkLawsOf(t, s, r.Conditions)
			})
		}
	}
}

func TestEvaluateRefusesKeysThatTakeNoVerdict(t *testing.T) {
	t.Parallel()
	s := conditions.MustNew("Ready", conditions.Type{Name: "A"})
	up := says(verdict{Status: "True", Reason: "Up"}, nil)
	r, err := conditions.Evaluate(t.Context(), s, "", nil, 1,
		map[string]conditions.Handler[string]{"A": up, "Bee": up, "Ready": up}, fixedClock())
	want := "evaluate condition type \"Bee\": not declared\nevaluate condition type \"Ready\": the root is decided by the set"
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff([]string{"Ready True Healthy", "A True Up"}, briefs(r.Conditions)); diff != "" {
		t.Error(diff)
	}
}

func TestEvaluateIsAFixpoint(t *testing.T) {
	t.Parallel()
	s := databaseSet()
	h := map[string]conditions.Handler[string]{
		"ConfigReady":  says(verdict{Status: "True", Reason: "Up"}, nil),
		"StorageReady": says(verdict{Status: "False", Reason: "Full", Message: "m", Stalled: true}, errors.New("e")),
		"Serving":      func(context.Context, string) (verdict, error) { panic("not called") },
		"BackupReady":  says(verdict{}, errors.New("boom")),
	}
	for _, n := range []int{1, 3} {
		first, _ := conditions.Evaluate(t.Context(), s, "", nil, 1, h, fixedClock(), conditions.WithParallel(n))
		second, _ := conditions.Evaluate(t.Context(), s, "", first.Conditions, 1, h, conditions.WithParallel(n))
		if second.Changed || !identical(first.Conditions, second.Conditions) {
			t.Error(cmp.Diff(first.Conditions, second.Conditions))
		}
		if c := get(t, first.Conditions, "Stalled"); c.Reason != "Full" {
			t.Error(brief(c))
		}
	}
}

func TestEvaluateStopsWithItsContext(t *testing.T) {
	t.Parallel()
	s := conditions.MustNew("Ready", conditions.Type{Name: "A"}, conditions.Type{Name: "B"}, conditions.Type{Name: "C"})
	live := []metav1.Condition{{Type: "A", Status: "True"}}
	for _, n := range []int{1, 2} {
		ctx, cancel := context.WithCancel(t.Context())
		memory := &conditions.Memory{}
		h := map[string]conditions.Handler[string]{
			"A": func(ctx context.Context, _ string) (verdict, error) { cancel(); return verdict{}, ctx.Err() },
			"B": func(ctx context.Context, _ string) (verdict, error) {
				if n == 1 {
					t.Error("started after the end")
				}
				<-ctx.Done()
				return verdict{Status: "True", Reason: "Late"}, nil
			},
			"C": func(context.Context, string) (verdict, error) {
				t.Errorf("%d at a time: started after the end", n)
				return verdict{}, nil
			},
		}
		r, err := conditions.Evaluate(ctx, s, "", live, 1, h, conditions.WithParallel(n), conditions.WithMemory(memory))
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if r.Changed || !identical(r.Conditions, live) || r.RequeueAfter != 0 {
			t.Errorf("an abandoned pass decided something: %v", r)
		}
	}
}

func TestEvaluateParallel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := conditions.MustNew("Ready",
			conditions.Type{Name: "A"}, conditions.Type{Name: "B"}, conditions.Type{Name: "C", Needs: []string{"A"}},
			conditions.Type{Name: "D", Needs: []string{"B", "C"}}, conditions.Type{Name: "E", Needs: []string{"X"}},
			conditions.Type{Name: "X"}, conditions.Type{Name: "N", Needs: []string{"E"}})
		took := map[string]time.Duration{"A": 1, "B": 5, "C": 2, "D": 1, "X": 3, "E": 1, "N": 1}
		var mu sync.Mutex
		running, most := 0, 0
		h := map[string]conditions.Handler[string]{}
		for typ, d := range took {
			h[typ] = func(context.Context, string) (verdict, error) {
				mu.Lock()
				running++
				most = max(most, running)
				mu.Unlock()
				time.Sleep(d * time.Second)
				mu.Lock()
				running--
				mu.Unlock()
				if typ == "X" {
					return verdict{Status: "False", Reason: "Down"}, errors.New("x")
				}
				return verdict{Status: "True", Reason: "Up"}, nil
			}
		}
		sequential, serr := conditions.Evaluate(t.Context(), s, "", nil, 1, h, fixedClock())
		for n, want := range map[int]time.Duration{7: 6 * time.Second, 2: 6 * time.Second, 1: 12 * time.Second} {
			most = 0
			start := time.Now()
			r, err := conditions.Evaluate(t.Context(), s, "", nil, 1, h, fixedClock(), conditions.WithParallel(n))
			if diff := cmp.Diff(sequential, r); diff != "" {
				t.Errorf("%d at a time, another result: %s", n, diff)
			}
			if err == nil || err.Error() != serr.Error() {
				t.Errorf("%d at a time, another error: %v", n, err)
			}
			if took := time.Since(start); took != want || most > n {
				t.Errorf("%d at a time took %v with %d at once, want %v", n, took, most, want)
			}
		}
	})
}

func TestEvaluateSurvivesGoexitInParallel(t *testing.T) {
	t.Parallel()
	s := conditions.MustNew("Ready", conditions.Type{Name: "A"})
	h := map[string]conditions.Handler[string]{
		"A": func(context.Context, string) (verdict, error) { runtime.Goexit(); return verdict{}, nil },
	}
	r, err := conditions.Evaluate(t.Context(), s, "", nil, 1, h, fixedClock(), conditions.WithParallel(2))
	var he *conditions.HandlerError
	if !errors.As(err, &he) || get(t, r.Conditions, "A").Reason != conditions.ReasonHandlerFailed {
		t.Error(err, briefs(r.Conditions))
	}
}

func TestEvaluateHoldsAndSaysWhenItIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := conditions.MustNew("Ready", conditions.Type{Name: "A", Hold: conditions.Hold{Bad: time.Minute}})
		memory := &conditions.Memory{}
		status := metav1.ConditionTrue
		h := map[string]conditions.Handler[string]{"A": func(context.Context, string) (verdict, error) {
			time.Sleep(10 * time.Second) // the hold runs on meanwhile
			return verdict{Status: status, Reason: "R"}, nil
		}}
		var live []metav1.Condition
		eval := func() conditions.Result {
			r, err := conditions.Evaluate(t.Context(), s, "", live, 1, h, conditions.WithMemory(memory))
			if err != nil {
				t.Fatal(err)
			}
			live = r.Conditions
			return r
		}
		eval()
		status = "False"
		if r := eval(); r.Changed || r.RequeueAfter != 50*time.Second {
			t.Errorf("changed %t, due in %v", r.Changed, r.RequeueAfter)
		}
		time.Sleep(50 * time.Second)
		if r := eval(); !r.Changed || r.Cause != "A" {
			t.Errorf("not shown when due: %v", r)
		}
	})
}

func TestEvaluateHoldThatEndsWhileHandlersRunIsDueAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := conditions.MustNew("Ready", conditions.Type{Name: "A", Hold: conditions.Hold{Bad: time.Second}})
		status := metav1.ConditionTrue
		h := map[string]conditions.Handler[string]{"A": func(context.Context, string) (verdict, error) {
			time.Sleep(time.Minute)
			return verdict{Status: status, Reason: "R"}, nil
		}}
		memory := conditions.WithMemory(&conditions.Memory{})
		first, _ := conditions.Evaluate(t.Context(), s, "", nil, 1, h, memory)
		status = "False"
		r, err := conditions.Evaluate(t.Context(), s, "", first.Conditions, 1, h, memory)
		if err != nil || r.Changed || r.RequeueAfter != 1 {
			t.Errorf("changed %t, due in %v: %v", r.Changed, r.RequeueAfter, err)
		}
	})
}

func TestEvaluateOptions(t *testing.T) {
	t.Parallel()
	s := conditions.MustNew("Ready")
	for name, opt := range map[string]conditions.Option{"clock": conditions.WithClock(nil), "parallel": conditions.WithParallel(0)} {
		if _, err := conditions.Evaluate(t.Context(), s, "", nil, 1, map[string]conditions.Handler[string]{}, opt); err == nil {
			t.Errorf("%s: a bad value was accepted", name)
		}
	}
	var zero conditions.Set
	if _, err := conditions.Evaluate(t.Context(), &zero, "", nil, 1, map[string]conditions.Handler[string]{}); !errors.Is(err, conditions.ErrFinished) {
		t.Error(err)
	}
}
