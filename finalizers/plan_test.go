// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ashlar-go/ashlar/finalizers"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	f := mustNew(t, []step{
		{Name: "a", Do: done, Deadline: time.Hour},
		{Name: "b", After: []string{"a"}, Do: done},
	})
	waiting := terminating("x", name)
	waiting.Annotations = map[string]string{finalizers.Annotation: entry(`[{"step":"a","state":"Wait","since":"2026-03-01T09:00:00Z"}]`)}
	over := terminating("x", other, name)
	over.Annotations = map[string]string{finalizers.Annotation: entry(`[{"step":"a","state":"Done"},{"step":"b","state":"Skipped"}]`)}

	p := f.Plan(waiting, start())
	if diff := cmp.Diff([]string{"a"}, p.Overdue); diff != "" || p.Empty() || p.Patch != nil {
		t.Errorf("at the deadline: %+v\n%s", p, diff)
	}
	if p = f.Plan(waiting, start().Add(-time.Second)); p.Overdue != nil {
		t.Errorf("a second before the deadline: %+v", p)
	}
	if got, want := p.String(), "Clean a: the object is being deleted"; got != want {
		t.Errorf("String = %q, want %q", got, want)
	}
	p = f.Plan(over, start())
	w := newWorld(t, over)
	if res, err := f.Sync(t.Context(), w, w, w.get("x"), nil); err != nil || res.Phase != finalizers.Released {
		t.Fatalf("Sync = %v, %v", res.Phase, err)
	}
	w.wantSent("GET x", "PATCH "+string(p.Patch)) // what the plan shows is what is sent
	p = f.Plan(configMap("x", other), start())
	if want := `[` + uidTest() + `,{"op":"add","path":"/metadata/finalizers/-","value":"example.com/cleanup"}]`; string(p.Patch) != want || p.Empty() {
		t.Errorf("Store: %s", p.Patch)
	}
	if !f.Plan(configMap("x", name), start()).Empty() || !f.Plan(terminating("x", other), start()).Empty() {
		t.Error("Keep and Leave are empty plans")
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		finalizers.Release.String():                                       "Release",
		finalizers.Verb(9).String():                                       "Verb(9)",
		finalizers.Gone.String():                                          "Gone",
		finalizers.Phase(9).String():                                      "Phase(9)",
		finalizers.Skip.String():                                          "Skip",
		finalizers.Policy(9).String():                                     "Policy(9)",
		finalizers.Ref{Kind: "Pod", Name: "p"}.String():                   "Pod p",
		finalizers.Ref{Namespace: "ns", Name: "p"}.String():               "ns/p",
		finalizers.Ref{Kind: "Pod", Name: "p", Finalizer: "x/y"}.String(): "Pod p (finalizer x/y)",
		finalizers.Progress{}.String():                                    "no cleanup in progress",
		(&finalizers.Error{Op: "sweep", Err: finalizers.ErrGone}).Error(): "sweep : object is gone",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
