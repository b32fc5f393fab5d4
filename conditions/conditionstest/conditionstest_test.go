// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditionstest_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashlar-go/ashlar/conditions"
	"github.com/ashlar-go/ashlar/conditions/conditionstest"
)

var set = conditions.MustNew("Ready",
	conditions.Type{Name: "App", Needs: []string{"Net"}},
	conditions.Type{Name: "Net"},
	conditions.Type{Name: "Locked", Negative: true, Required: true},
	conditions.Type{Name: "Skew", Negative: true},
	conditions.Type{Name: "Old", Retired: true},
)

// sound is a controller that uses the package as it is meant to be used, in a world where the given types are False.
func sound(isFalse ...string) conditionstest.Reconcile {
	return func(live []metav1.Condition, gen int64, now time.Time) ([]metav1.Condition, error) {
		p := set.Begin(live, gen, nil)
		for _, typ := range []string{"App", "Net", "Locked"} {
			if slices.Contains(isFalse, typ) {
				p.False(typ, typ+"False", "")
			} else {
				p.True(typ, typ+"True", "")
			}
		}
		r, err := p.Done(now)
		return r.Conditions, err
	}
}

func TestSoundControllersBreakNoLaw(t *testing.T) {
	t.Parallel()
	for _, world := range [][]string{nil, {"Locked"}, {"Net"}, {"App"}, {"App", "Net", "Locked"}} {
		conditionstest.Verify(t, conditionstest.Exercise(set, sound(world...)))
	}
}

// spoil lets a sound controller make one mistake.
func spoil(r conditionstest.Reconcile, mistake func(out []metav1.Condition, now time.Time) []metav1.Condition) conditionstest.Reconcile {
	return func(live []metav1.Condition, gen int64, now time.Time) ([]metav1.Condition, error) {
		out, err := r(live, gen, now)
		return mistake(slices.Clone(out), now), err
	}
}

func change(typ string, f func(c *metav1.Condition)) func([]metav1.Condition, time.Time) []metav1.Condition {
	return func(out []metav1.Condition, _ time.Time) []metav1.Condition {
		for i := range out {
			if out[i].Type == typ {
				f(&out[i])
			}
		}
		return out
	}
}

// TestEveryLawBites gives each law a controller that breaks it. Some mistakes break several laws.
func TestEveryLawBites(t *testing.T) {
	t.Parallel()
	good, ill := sound("Locked"), sound("Net")
	calls := 0
	tests := map[string]struct {
		reason string
		r      conditionstest.Reconcile
		law    string
	}{
		"illegal reason":  {"the server refuses it", spoil(good, change("Net", func(c *metav1.Condition) { c.Reason = "not legal" })), "valid"},
		"bad UTF-8":       {"it comes back as something else", spoil(good, change("Net", func(c *metav1.Condition) { c.Message = "\xff" })), "valid"},
		"fails":           {"nothing to store", func([]metav1.Condition, int64, time.Time) ([]metav1.Condition, error) { return nil, errors.New("boom") }, "valid"},
		"twice":           {"a map has one", spoil(good, func(out []metav1.Condition, _ time.Time) []metav1.Condition { return append(out, out[1]) }), "once"},
		"missing":         {"never looked at", spoil(good, func(out []metav1.Condition, _ time.Time) []metav1.Condition { return slices.Delete(out, 2, 3) }), "complete"},
		"no root":         {"nothing to wait for", spoil(good, func(out []metav1.Condition, _ time.Time) []metav1.Condition { return out[1:] }), "complete"},
		"root too good":   {"a lie", spoil(ill, change("Ready", func(c *metav1.Condition) { c.Status = "True" })), "root"},
		"consequence":     {"names the wrong place", spoil(ill, change("Ready", func(c *metav1.Condition) { c.Reason = "BlockedByNet" })), "cause"},
		"second fault":    {"one fault, two alarms", spoil(ill, change("App", func(c *metav1.Condition) { c.Status = "False" })), "blocked"},
		"block is silent": {"nobody learns why", spoil(ill, change("App", func(c *metav1.Condition) { c.Reason = "Waiting" })), "blocked"},
		"old block":       {"it is over", spoil(good, change("App", func(c *metav1.Condition) { c.Status, c.Reason = "Unknown", "BlockedByNet" })), "unblocked"},
		"Stalled is False": {"abnormal-true", spoil(good, func(out []metav1.Condition, _ time.Time) []metav1.Condition {
			return append(out, as(out[0], "Stalled", "False"))
		}), "derived"},
		"both derived": {"kstatus takes the first", spoil(ill, func(out []metav1.Condition, _ time.Time) []metav1.Condition {
			return append(out, as(out[0], "Stalled", "True"))
		}), "derived"},
		"silent work": {"kstatus sees nothing to wait for", spoil(ill, func(out []metav1.Condition, _ time.Time) []metav1.Condition { return drop(out, "Reconciling") }), "derived"},
		"work without need": {"never current", spoil(good, func(out []metav1.Condition, _ time.Time) []metav1.Condition {
			return append(out, as(out[0], "Reconciling", "True"))
		}), "derived"},
		"no generation": {"an answer to which question?", spoil(good, change("Net", func(c *metav1.Condition) { c.ObservedGeneration = 0 })), "generation"},
		"keeps retired": {"for ever", func(live []metav1.Condition, gen int64, now time.Time) ([]metav1.Condition, error) {
			out, err := good(live, gen, now)
			if i := slices.IndexFunc(live, func(c metav1.Condition) bool { return c.Type == "Old" }); i >= 0 {
				out = append(slices.Clone(out), live[i])
			}
			return out, err
		}, "retired"},
		"heartbeat": {"a write each pass", spoil(good, func(out []metav1.Condition, now time.Time) []metav1.Condition {
			out[1].LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
			return out
		}), "transition"},
		"nanoseconds": {"lost on the wire", spoil(good, func(out []metav1.Condition, now time.Time) []metav1.Condition {
			out[1].LastTransitionTime = metav1.NewTime(now.Add(1))
			return out
		}), "seconds"},
		"greedy": {"others' conditions", spoil(good, func(out []metav1.Condition, _ time.Time) []metav1.Condition {
			return slices.DeleteFunc(out, func(c metav1.Condition) bool { return strings.HasPrefix(c.Type, "example.com/") })
		}), "foreign"},
		"restless": {"its own output is news to it", spoil(good, change("Net", func(c *metav1.Condition) { calls++; c.Message = fmt.Sprint(calls) })), "fixpoint"},
		"vandal": {"the cache is shared", func(live []metav1.Condition, gen int64, now time.Time) ([]metav1.Condition, error) {
			out, err := good(live, gen, now)
			if len(live) > 0 {
				out = slices.Clone(out)
				live[0].Message = "scribble"
			}
			return out, err
		}, "untouched"},
		"by position": {"the order means nothing", func(live []metav1.Condition, gen int64, now time.Time) ([]metav1.Condition, error) {
			if len(live) > 0 && live[0].Type != "Ready" {
				return good(nil, gen, now)
			}
			return good(live, gen, now)
		}, "orderless"},
	}
	proven := map[string]bool{"forward": true} // in TestCheck
	for name, tc := range tests {
		proven[tc.law] = true
		vs := conditionstest.Exercise(set, tc.r)
		if !slices.ContainsFunc(vs, func(v conditionstest.Violation) bool { return v.Law.Name == tc.law }) {
			t.Errorf("%s (%s): law %s did not bite: %v", name, tc.reason, tc.law, vs)
		}
	}
	for _, l := range conditionstest.Laws() {
		if !proven[l.Name] {
			t.Errorf("%s is not proven to bite", l)
		}
	}
}

func as(c metav1.Condition, typ string, status metav1.ConditionStatus) metav1.Condition {
	c.Type, c.Status = typ, status
	return c
}

func drop(conds []metav1.Condition, typ string) []metav1.Condition {
	return slices.DeleteFunc(conds, func(c metav1.Condition) bool { return c.Type == typ })
}

func TestCheck(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	newer, _ := sound("Locked")(nil, 2, now)
	older, _ := sound("Locked")(newer, 1, now.Add(time.Hour))
	if vs := conditionstest.Check(set, conditionstest.Snapshot{Generation: 2, Conditions: newer}); len(vs) > 0 {
		t.Error(vs)
	}
	vs := conditionstest.Check(set,
		conditionstest.Snapshot{Generation: 2, Conditions: newer}, conditionstest.Snapshot{Generation: 1, Conditions: older})
	if len(vs) != len(newer) || vs[0].Law.Name != "forward" || vs[0].Where != "state 2" {
		t.Error(vs)
	}
	back, _ := sound()(nil, 2, now.Add(-time.Hour))
	vs = conditionstest.Check(set, conditionstest.Snapshot{Generation: 2, Conditions: newer}, conditionstest.Snapshot{Generation: 2, Conditions: back})
	if !slices.ContainsFunc(vs, func(v conditionstest.Violation) bool { return strings.Contains(v.Found, "went back") }) {
		t.Error(vs)
	}
}

func TestLawsAreNumberedForGood(t *testing.T) {
	t.Parallel()
	laws := conditionstest.Laws()
	for i, l := range laws {
		if l.Number != i+1 || l.Name == "" || !strings.HasSuffix(l.Text, ".") {
			t.Errorf("law %d: %+v", i+1, l)
		}
	}
	laws[0].Name = "mine"
	if conditionstest.Laws()[0].Name != "valid" {
		t.Error("the laws can be changed from outside")
	}
}

// recorder stands in for the test that uses the kit.
type recorder struct {
	testing.TB
	lines []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func TestVerifyFailsOnceForEachViolationAndSaysWhy(t *testing.T) {
	t.Parallel()
	vs := conditionstest.Check(set, conditionstest.Snapshot{Generation: 1})
	r := &recorder{TB: t}
	conditionstest.Verify(r, vs)
	if len(r.lines) != len(vs) || len(vs) != 5 {
		t.Fatalf("%d violations, %d failures: %v", len(vs), len(r.lines), vs)
	}
	if want := "law 3 (complete), state 1, Ready: is absent\n\tThe root and every type"; !strings.HasPrefix(r.lines[0], want) {
		t.Errorf("got %q", r.lines[0])
	}
}
