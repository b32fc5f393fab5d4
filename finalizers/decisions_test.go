// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/ashlar-go/ashlar/finalizers"
)

var update = flag.Bool("update", false, "rewrite decisions.md")

// TestDecisions compares decisions.md with what the planner says, for every kind of object there is.
func TestDecisions(t *testing.T) {
	t.Parallel()
	f := mustNew(t, []step{
		{Name: "backup", Do: done},
		{Name: "remote", Do: done},
		{Name: "volumes", After: []string{"backup"}, Do: done},
	}, finalizers.WithFormerNames(former))
	lists := []struct {
		title string
		list  []string
	}{
		{"none", nil},
		{"another's", []string{other}},
		{"ours", []string{name}},
		{"ours, twice", []string{name, other, name}},
		{"a former name", []string{former}},
		{"ours and a former name", []string{name, former}},
	}
	stored := []struct{ title, value string }{
		{"nothing", ""},
		{"backup Wait", entry(`[{"step":"backup","state":"Wait","since":"2026-03-01T10:00:00Z"}]`)},
		{"backup Done", entry(`[{"step":"backup","state":"Done"}]`)},
		{"backup Skipped, remote Stuck", entry(`[{"step":"backup","state":"Skipped"},{"step":"remote","state":"Stuck"}]`)},
		{"all Done", entry(`[{"step":"backup","state":"Done"},{"step":"remote","state":"Done"},{"step":"volumes","state":"Done"}]`)},
		{"a step of a newer version", entry(`[{"step":"backup","state":"Paused"},{"step":"audit","state":"Done"}]`)},
		{"unreadable", "?"},
		{"another object's", strings.Replace(entry(`[{"step":"backup","state":"Done"}]`), string(uid), "another", 1)},
	}

	var b bytes.Buffer
	fmt.Fprintf(&b, "# What is decided\n\nMade from the planner by TestDecisions; `go test ./finalizers -run TestDecisions -update` rewrites it.\n\n"+
		"The cleanup has the steps backup, remote and volumes; volumes comes after backup.\n\n"+
		"| object | finalizers | stored progress | decision | because |\n|---|---|---|---|---|\n")
	row := func(object, list, progress string, obj *corev1.ConfigMap) {
		before := obj.DeepCopy()
		p := f.Plan(obj, start())
		if !bytes.Equal([]byte(jsonOf(before)), []byte(jsonOf(obj))) {
			t.Errorf("Plan changed its argument: %s", jsonOf(obj))
		}
		decision := p.Verb.String()
		if len(p.Run) > 0 {
			decision += ": " + strings.Join(p.Run, ", ")
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", object, list, progress, decision, p.Why)
	}
	for _, l := range lists {
		row("live", l.title, "any", configMap("a", l.list...))
	}
	for _, l := range lists {
		if l.title == "none" {
			continue // such an object does not exist
		}
		progress := stored
		if l.title == "another's" {
			progress = []struct{ title, value string }{{"any", ""}}
		} else if l.title != "ours" {
			progress = []struct{ title, value string }{stored[0], stored[4]}
		}
		for _, s := range progress {
			obj := terminating("a", l.list...)
			if s.value != "" {
				obj.Annotations = map[string]string{finalizers.Annotation: s.value}
			}
			row("being deleted", l.title, s.title, obj)
		}
	}

	if *update {
		if err := os.WriteFile("decisions.md", b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("decisions.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, b.Bytes()) {
		t.Errorf("decisions.md does not say what the planner decides; look at the difference, then run with -update. The planner:\n%s", b.Bytes())
	}
}
