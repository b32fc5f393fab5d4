// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"slices"
	"strconv"
	"strings"
)

// Mermaid returns the graph as a Mermaid flowchart for documentation: an arrow leads from what is needed to what needs
// it, negative types are hexagons, and what nothing needs leads to the root, unless it is advisory. The text depends on
// the declaration alone.
func (s *Set) Mermaid() string {
	var b strings.Builder
	b.WriteString("flowchart LR\n")
	for i := range s.types {
		shape := [2]string{`["`, `"]`}
		if s.types[i].Negative {
			shape = [2]string{`{{"not `, `"}}`}
		}
		b.WriteString("  " + node(i) + shape[0] + s.types[i].Name + shape[1] + "\n")
	}
	b.WriteString(`  root(["` + s.root + "\"])\n")
	for i := range s.types {
		last := true
		for j := range s.types {
			if slices.Contains(s.needs[j], i) {
				last = last && s.types[j].Advisory
				b.WriteString("  " + node(i) + " --> " + node(j) + "\n")
			}
		}
		if last && !s.types[i].Advisory {
			b.WriteString("  " + node(i) + " --> root\n")
		}
	}
	return b.String()
}

// node is an identifier without the characters of a type name that mean something to Mermaid.
func node(i int) string { return "t" + strconv.Itoa(i) }
