// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ashlar-go/ashlar/conditions"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	type T = conditions.Type
	tests := map[string]struct {
		reason string
		root   string
		types  []T
		want   []string // each must be part of the error
		kind   error
	}{
		"no root":          {"a set without a root sums nothing up", "", nil, []string{`condition type ""`, "qualified name"}, conditions.ErrIllegal},
		"space":            {"the API server refuses the type", "Ready", []T{{Name: "Not Ready"}}, []string{`"Not Ready"`}, conditions.ErrIllegal},
		"trailing dash":    {"names end in a letter or digit", "Ready", []T{{Name: "A-"}}, []string{`"A-"`}, conditions.ErrIllegal},
		"two slashes":      {"one prefix at most", "Ready", []T{{Name: "a/b/C"}}, []string{`"a/b/C"`}, conditions.ErrIllegal},
		"upper prefix":     {"the prefix is a DNS name", "Ready", []T{{Name: "Example.com/C"}}, []string{`"Example.com/C"`}, conditions.ErrIllegal},
		"too long":         {"names have 63 bytes at most", "Ready", []T{{Name: strings.Repeat("x", 64)}}, []string{"63"}, conditions.ErrIllegal},
		"twice":            {"which of the two would count?", "Ready", []T{{Name: "A"}, {Name: "A"}}, []string{`"A": declared twice`}, conditions.ErrIllegal},
		"twice, retired":   {"written and removed in one pass", "Ready", []T{{Name: "A"}, {Name: "A", Retired: true}}, []string{`"A": declared twice`}, conditions.ErrIllegal},
		"the root":         {"the root is computed", "Ready", []T{{Name: "Ready"}}, []string{`"Ready": is the root`}, conditions.ErrIllegal},
		"derived":          {"kstatus types are computed", "Ready", []T{{Name: "Stalled"}}, []string{`"Stalled": derived`}, conditions.ErrIllegal},
		"derived, retired": {"the set writes it itself", "Ready", []T{{Name: "Reconciling", Retired: true}}, []string{"derived"}, conditions.ErrIllegal},
		"derived root":     {"a root cannot be derived from itself", "Stalled", nil, []string{`"Stalled": derived`}, conditions.ErrIllegal},
		"unknown need":     {"a typo must not wait for ever", "Ready", []T{{Name: "A", Needs: []string{"Bee"}}}, []string{`"A": needs Bee, which is not declared`}, conditions.ErrIllegal},
		"retired need":     {"it never comes back", "Ready", []T{{Name: "A", Needs: []string{"B"}}, {Name: "B", Retired: true}}, []string{`"A": needs B, which is retired`}, conditions.ErrIllegal},
		"advisory need":    {"what counts for nothing blocks nothing", "Ready", []T{{Name: "A", Needs: []string{"B"}}, {Name: "B", Advisory: true}}, []string{`"A": needs B, which is advisory`}, conditions.ErrIllegal},
		"needs the root":   {"a cycle through the root", "Ready", []T{{Name: "A", Needs: []string{"Ready"}}}, []string{`"A": needs Ready, which is derived from it`}, conditions.ErrIllegal},
		"needs derived":    {"likewise", "Ready", []T{{Name: "A", Needs: []string{"Stalled"}}}, []string{"derived from it"}, conditions.ErrIllegal},
		"need twice":       {"one of them was meant to be another", "Ready", []T{{Name: "A"}, {Name: "B", Needs: []string{"A", "A"}}}, []string{`"B": needs A twice`}, conditions.ErrIllegal},
		"negative hold":    {"a hold that is over before it starts", "Ready", []T{{Name: "A", Hold: conditions.Hold{Good: -time.Second}}}, []string{`"A": hold`}, conditions.ErrIllegal},
		"needs itself":     {"the shortest cycle", "Ready", []T{{Name: "A", Needs: []string{"A"}}}, []string{"needs itself: A → A"}, conditions.ErrCycle},
		"cycle": {"the path is printed from its first type on", "Ready",
			[]T{{Name: "X", Needs: []string{"A"}}, {Name: "A", Needs: []string{"B"}}, {Name: "B", Needs: []string{"C"}}, {Name: "C", Needs: []string{"A"}}},
			[]string{"needs itself: A → B → C → A"}, conditions.ErrCycle},
		"several": {"all of it is said at once", "Ready", []T{{Name: "A b"}, {Name: "Ready"}}, []string{`"A b"`, `"Ready"`}, conditions.ErrIllegal},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := conditions.New(tc.root, tc.types...)
			if err == nil || s != nil {
				t.Fatalf("accepted, although %s", tc.reason)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not part of %q", part, err)
				}
			}
			var te *conditions.TypeError
			if !errors.Is(err, tc.kind) || !errors.As(err, &te) || te.Op != "declare" {
				t.Errorf("error %v is not a TypeError of kind %v", err, tc.kind)
			}
		})
	}
}

func TestMustNewPanicsWithTheError(t *testing.T) {
	t.Parallel()
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, conditions.ErrIllegal) {
			t.Errorf("recovered %v", err)
		}
	}()
	conditions.MustNew("Ready", conditions.Type{Name: "Ready"})
}

func TestDeclarationIsCopied(t *testing.T) {
	t.Parallel()
	types := []conditions.Type{{Name: "A"}, {Name: "B", Needs: []string{"A"}}, {Name: "Old", Retired: true, Needs: []string{"Nowhere"}}}
	s := conditions.MustNew("Ready", types...)
	types[1].Needs[0] = "X"
	types[0].Name = "X"
	s.Types()[1].Needs[0] = "X"
	s.Owned()[0] = "X"
	s.Retired()[0] = "X"

	want := []string{"A", "B"}
	var got []string
	for _, typ := range s.Types() {
		got = append(got, typ.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"A"}, s.Types()[1].Needs); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"Ready", "A", "B", "Reconciling", "Stalled"}, s.Owned()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"Old"}, s.Retired()); diff != "" {
		t.Error(diff)
	}
	if s.Root() != "Ready" {
		t.Error(s.Root())
	}
}
