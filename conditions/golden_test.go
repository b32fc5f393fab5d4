// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashlar-go/ashlar/conditions"
)

var update = flag.Bool("update", false, "rewrite the files that are generated from the code")

// golden compares got with a file in this folder, or writes it.
func golden(t *testing.T, file, got string) {
	t.Helper()
	file = filepath.FromSlash(file)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is out of date, run go test -update:\n%s", file, diff)
	}
}

func TestTexts(t *testing.T) {
	t.Parallel()
	s := conditions.MustNew("Ready",
		conditions.Type{Name: "ConfigReady"},
		conditions.Type{Name: "StorageReady", Needs: []string{"ConfigReady"}},
		conditions.Type{Name: "db.example.com/Serving", Needs: []string{"StorageReady", "VersionSkew"}},
		conditions.Type{Name: "VersionSkew", Negative: true},
		conditions.Type{Name: "Locked", Negative: true, Required: true},
		conditions.Type{Name: "Drifted", Negative: true, Advisory: true, Needs: []string{"Locked"}},
		conditions.Type{Name: "Old", Retired: true},
	)
	var b strings.Builder
	section := func(title, text string) { fmt.Fprintf(&b, "== %s ==\n%s\n", title, text) }
	section("Mermaid", s.Mermaid())
	section("Explain nothing", s.Explain(nil))
	p := s.Begin(nil, 1, nil)
	p.True("ConfigReady", "Applied", "")
	p.False("StorageReady", "DiskFull", "volume data-0 is full\nof logs")
	p.False("Locked", "Open", "")
	section("Explain a fault", s.Explain(done(t, p, epoch).Conditions))
	p = s.Begin(nil, 1, nil)
	for _, typ := range []string{"ConfigReady", "StorageReady", "db.example.com/Serving"} {
		p.True(typ, "Applied", "")
	}
	p.False("Locked", "Open", "")
	section("Explain health", s.Explain(done(t, p, epoch).Conditions))
	section("Explain what no pass has written", s.Explain([]metav1.Condition{
		{Type: "Ready", Status: "True", Reason: "Hand\nmade"}, {Type: "ConfigReady", Status: "Yes", Message: "\xff"},
		{Type: "StorageReady", Status: "Unknown", Reason: "BlockedByConfigReady"}, {Type: "Foreign"},
	}))
	raw, err := json.MarshalIndent(s.CEL(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	section("CEL as x-kubernetes-validations", string(raw))
	var markers []string
	for _, r := range s.CEL() {
		markers = append(markers, r.String())
	}
	section("CEL as markers", strings.Join(markers, "\n"))
	golden(t, "testdata/texts.golden", b.String())
}

func TestCELMessagesFitTheAPI(t *testing.T) {
	t.Parallel()
	var types []conditions.Type
	for i := range 40 {
		types = append(types, conditions.Type{Name: strings.Repeat("a", 60) + ".example.com/" + strings.Repeat("T", 60) + fmt.Sprint(i)})
		if i > 0 {
			types[i].Needs = []string{types[i-1].Name}
		}
	}
	for _, r := range conditions.MustNew("Ready", types...).CEL() {
		if r.Rule == "" || r.Message == "" || len(r.Message) > 2048 || strings.ContainsAny(r.Message, "\n\r") {
			t.Errorf("%d bytes: %q", len(r.Message), r.Message)
		}
	}
}
