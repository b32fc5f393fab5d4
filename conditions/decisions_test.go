// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashlar-go/ashlar/conditions"
)

// TestDecisionTable writes down what the package decides for every combination that matters, so that the documentation
// cannot say anything else.
func TestDecisionTable(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("<!-- Generated from the code: go test ./conditions -run TestDecisionTable -update -->\n\n" +
		"# Decision tables of package conditions\n\n`–` is a type nobody reported in the pass.\n")
	healthTable(t, &b)
	edgeTable(t, &b)
	rootTable(t, &b)
	graphTable(t, &b)
	derivedTable(t, &b)
	golden(t, "decisions.md", b.String())
}

const nothing = metav1.ConditionStatus("–")

var verdictsOf = []metav1.ConditionStatus{"True", "False", "Unknown", nothing}

// decide runs one pass over the given verdicts, one per type.
func decide(t *testing.T, s *conditions.Set, given map[string]metav1.ConditionStatus, stalled ...string) conditions.Result {
	t.Helper()
	p := s.Begin(nil, 1, nil)
	for typ, status := range given {
		if status != nothing {
			p.Put(metav1.Condition{Type: typ, Status: status, Reason: "Said"})
		}
	}
	for _, typ := range stalled {
		p.Stall(typ)
	}
	return done(t, p, epoch)
}

// cell is how a condition appears in a table.
func cell(r conditions.Result, typ string) string {
	for _, c := range r.Conditions {
		if c.Type == typ {
			return fmt.Sprintf("%s (%s)", c.Status, c.Reason)
		}
	}
	return "absent"
}

func row(b *strings.Builder, cells ...any) {
	for _, c := range cells {
		fmt.Fprintf(b, "| %v ", c)
	}
	b.WriteString("|\n")
}

func head(b *strings.Builder, title, text string, cells ...any) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n", title, text)
	row(b, cells...)
	b.WriteString(strings.Repeat("|---", len(cells)) + "|\n")
}

func healthTable(t *testing.T, b *strings.Builder) {
	head(b, "Health", "A set of the one type A. The root shows the health: True is good, False is bad. An advisory type does not count.",
		"A is declared", "verdict", "A shows", "root shows")
	for _, d := range []struct {
		name string
		typ  conditions.Type
	}{
		{"positive", conditions.Type{Name: "A"}},
		{"negative", conditions.Type{Name: "A", Negative: true}},
		{"negative, required", conditions.Type{Name: "A", Negative: true, Required: true}},
		{"advisory", conditions.Type{Name: "A", Advisory: true}},
		{"negative, advisory", conditions.Type{Name: "A", Negative: true, Advisory: true}},
	} {
		for _, v := range verdictsOf {
			r := decide(t, conditions.MustNew("Ready", d.typ), map[string]metav1.ConditionStatus{"A": v})
			row(b, d.name, v, cell(r, "A"), cell(r, "Ready"))
		}
	}
}

func edgeTable(t *testing.T, b *strings.Builder) {
	head(b, "Edges", "B needs A. An edge is satisfied if and only if A is good.",
		"A is", "B is", "A's verdict", "B's verdict", "B shows", "root shows", "cause")
	polarity := map[bool]string{false: "positive", true: "negative"}
	for _, need := range []bool{false, true} {
		for _, dependent := range []bool{false, true} {
			s := conditions.MustNew("Ready", conditions.Type{Name: "A", Negative: need},
				conditions.Type{Name: "B", Needs: []string{"A"}, Negative: dependent})
			for _, a := range verdictsOf {
				for _, v := range verdictsOf {
					r := decide(t, s, map[string]metav1.ConditionStatus{"A": a, "B": v})
					row(b, polarity[need], polarity[dependent], a, v, cell(r, "B"), cell(r, "Ready"), r.Cause)
				}
			}
		}
	}
}

func rootTable(t *testing.T, b *strings.Builder) {
	head(b, "Root and cause", "A and B are independent. The first bad one is the cause, else the first Unknown one.",
		"A's verdict", "B's verdict", "root shows", "cause")
	s := conditions.MustNew("Ready", conditions.Type{Name: "A"}, conditions.Type{Name: "B"})
	for _, a := range verdictsOf {
		for _, v := range verdictsOf {
			r := decide(t, s, map[string]metav1.ConditionStatus{"A": a, "B": v})
			row(b, a, v, cell(r, "Ready"), r.Cause)
		}
	}
}

func graphTable(t *testing.T, b *strings.Builder) {
	head(b, "Cause in a graph", "Declared in the order C, B, A, D; C needs B, B needs A. The topological order is A, B, C, D.",
		"A's verdict", "B's verdict", "C's verdict", "D's verdict", "B shows", "C shows", "root shows", "cause")
	s := conditions.MustNew("Ready", conditions.Type{Name: "C", Needs: []string{"B"}},
		conditions.Type{Name: "B", Needs: []string{"A"}}, conditions.Type{Name: "A"}, conditions.Type{Name: "D"})
	three := verdictsOf[:3]
	for _, a := range three {
		for _, v := range three {
			for _, c := range three {
				for _, d := range three {
					if a != "True" && (v != "False" || c != "False") || v != "True" && c != "False" {
						continue // blocked: their verdicts make no difference
					}
					r := decide(t, s, map[string]metav1.ConditionStatus{"A": a, "B": v, "C": c, "D": d})
					row(b, a, v, c, d, cell(r, "B"), cell(r, "C"), cell(r, "Ready"), r.Cause)
				}
			}
		}
	}
}

func derivedTable(t *testing.T, b *strings.Builder) {
	head(b, "Derived types", "B needs A. A mark counts only on a type that shows a bad verdict.",
		"A's verdict", "B's verdict", "marked by Stall", "root shows", "Reconciling", "Stalled")
	s := conditions.MustNew("Ready", conditions.Type{Name: "A"}, conditions.Type{Name: "B", Needs: []string{"A"}})
	for _, a := range verdictsOf[:3] {
		for _, v := range verdictsOf[:3] {
			for _, marked := range [][]string{nil, {"A"}, {"B"}} {
				r := decide(t, s, map[string]metav1.ConditionStatus{"A": a, "B": v}, marked...)
				row(b, a, v, strings.Join(marked, ", "), cell(r, "Ready"), cell(r, "Reconciling"), cell(r, "Stalled"))
			}
		}
	}
}
