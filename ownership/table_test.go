// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/ownership"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite golden files")

const tableFile = "decisions.md"

// TestDecisionTable prints what the planner decides in every situation and compares it with the committed table, so
// that the documentation cannot drift from the code.
func TestDecisionTable(t *testing.T) {
	t.Parallel()
	got := decisionTable(t)
	if *update {
		if err := os.WriteFile(tableFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(tableFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is out of date, run go test -update (-want +got):\n%s", tableFile, diff)
	}
}

func decisionTable(t *testing.T) string {
	s := newSet(t)
	alive := database()
	situations := []struct {
		name string
		live func(*edited) *edited
	}{
		{"does not exist", func(*edited) *edited { return nil }},
		{"exists, nobody's", func(d *edited) *edited { return bare(d) }},
		{"exists, another controller's", func(d *edited) *edited { return bare(d, ref("apps/v1", "Deployment", "web", "u9", true)) }},
		{"exists, a deleted namesake's by reference", func(d *edited) *edited {
			return bare(d, ref("example.com/v1", "Database", "orders", "u0", true))
		}},
		{"exists, a deleted namesake's by label", func(d *edited) *edited { return bare(d, claimed(s, database(uid("u0")))) }},
		{"exists, our reference was stripped", func(d *edited) *edited {
			return stored(t, s, alive, d, func(u *edited) { u.SetOwnerReferences(nil) })
		}},
		{"ours, as declared", func(d *edited) *edited { return stored(t, s, alive, d) }},
		{"ours, a declared field differs", func(d *edited) *edited { return stored(t, s, alive, d, set("changed", "data", "a")) }},
		{"ours, reference at an old apiVersion", func(d *edited) *edited {
			return stored(t, s, alive, d, func(u *edited) {
				if refs := u.GetOwnerReferences(); len(refs) > 0 {
					refs[0].APIVersion = "example.com/v1alpha1"
					u.SetOwnerReferences(refs)
				}
			})
		}},
		{"ours and another controller's", func(d *edited) *edited {
			return bare(d, claimed(s, alive), ref("apps/v1", "Deployment", "web", "u9", true))
		}},
		{"ours, terminating", func(d *edited) *edited { return stored(t, s, alive, d, terminating()) }},
	}
	owners := []struct {
		name  string
		owner *edited
	}{{"alive", alive}, {"terminating", database(terminating())}}

	var b strings.Builder
	b.WriteString("# What a plan decides\n\nGenerated from the planner by `go test ./ownership -run TestDecisionTable -update`; a test keeps it true.\n")
	section := func(title string, gvk *edited, declared bool, cleanup bool) {
		fmt.Fprintf(&b, "\n## %s\n\n| the object | owner | decision | with Policy.Adopt | why |\n|---|---|---|---|---|\n", title)
		for _, sit := range situations {
			for _, o := range owners {
				live := sit.live(gvk)
				if live == nil && !declared {
					continue
				}
				var desired, have []ownership.Object
				if declared {
					desired = objects(gvk)
				}
				if live != nil {
					have = objects(live)
				}
				first, why := verb(t, s, o.owner, desired, have, ownership.Policy{AllowEmpty: true})
				second, _ := verb(t, s, o.owner, desired, have, ownership.Policy{AllowEmpty: true, Adopt: true})
				fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", sit.name, o.name, first, second, why)
			}
		}
	}
	section("Declared, claimed by native reference", configMap("x"), true, false)
	section("Declared, claimed by label", object(secretKind, "team-a", "x", set("1", "data", "a")), true, false)
	section("Declared, needed by cleanup", object(jobKind, "team-a", "x", set("1", "data", "a")), true, true)
	section("Not declared any more", object(secretKind, "team-a", "x", set("1", "data", "a")), false, false)

	b.WriteString("\n## Torn down\n\n| the object | decision | orphaned owner | why |\n|---|---|---|---|\n")
	for _, kind := range []struct {
		name string
		obj  *edited
	}{
		{"a member", object(secretKind, "team-a", "x")},
		{"a member cleanup needs", object(jobKind, "team-a", "x")},
	} {
		for _, sit := range []struct {
			name  string
			edits []edit
		}{
			{kind.name, nil},
			{kind.name + ", terminating", []edit{terminating()}},
			{kind.name + ", controlled by somebody else", []edit{ref("apps/v1", "Deployment", "web", "u9", true)}},
		} {
			live := objects(bare(kind.obj, append([]edit{claimed(s, alive)}, sit.edits...)...))
			down, err := s.Teardown(database(terminating()), live, nil)
			if err != nil {
				t.Fatal(err)
			}
			orphan, err := s.Teardown(database(terminating(), finalizers("orphan", finalizer)), live, nil)
			if err != nil {
				t.Fatal(err)
			}
			d, o := only(t, down), only(t, orphan)
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", sit.name, d.Verb, o.Verb, d.Why)
		}
	}
	return b.String()
}

// bare is a live object of the name that never was applied.
func bare(d *edited, edits ...edit) *edited {
	u := d.DeepCopy()
	u.SetUID("c-x")
	u.SetResourceVersion("100")
	for _, e := range edits {
		e(u)
	}
	return u
}

func verb(t *testing.T, s *ownership.Set, owner ownership.Object, desired, live []ownership.Object, p ownership.Policy) (string, string) {
	t.Helper()
	got := plan(t, s, owner, desired, live, p)
	if len(got.Decisions) == 0 {
		return "(nothing)", "carries no claim of ours"
	}
	d := only(t, got)
	return d.Verb.String(), d.Why
}
