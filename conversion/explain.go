// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"fmt"
	"strings"
)

// Hub is the newest version: the one no pair leads up from. What only it holds is seen at the other versions in so far as
// they hold it, too, whichever version is stored.
func (c *Converter) Hub() string { return c.hub }

// Explain is text for people about the way from one version to another: its steps, what they are known to lose, and what
// the two versions have no common place for.
func (c *Converter) Explain(from, to string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s from %s to %s: ", c.gk, from, to)
	for _, v := range []string{from, to} {
		if err := c.knows(v); err != nil {
			return b.String() + err.Error() + "\n"
		}
	}
	if from == to {
		return b.String() + "nothing to do\n"
	}
	steps := c.paths[from][to]
	if c.class[from] == c.class[to] {
		return b.String() + "the schema is the same; apiVersion changes and nothing is decoded\n"
	}
	fmt.Fprintf(&b, "%d of %d steps convert\n", len(steps)-identitySteps(steps), len(steps))
	for _, e := range steps {
		switch {
		case e.identity():
			fmt.Fprintf(&b, "  %s → %s: same schema\n", e.from, e.to)
		case len(e.loses) > 0:
			fmt.Fprintf(&b, "  %s → %s: loses %s\n", e.from, e.to, strings.Join(e.loses, ", "))
		default:
			fmt.Fprintf(&b, "  %s → %s\n", e.from, e.to)
		}
	}
	if only := c.only(from, to); len(only) > 0 {
		fmt.Fprintf(&b, "  only %s has: %s\n", from, strings.Join(only, ", "))
	}
	if only := c.only(to, from); len(only) > 0 {
		fmt.Fprintf(&b, "  only %s has: %s\n", to, strings.Join(only, ", "))
	}
	fmt.Fprintf(&b, "  what %s cannot hold is kept in %s\n", to, Annotation)
	return b.String()
}

func identitySteps(steps []*edge) (n int) {
	for _, e := range steps {
		n += boolInt(e.identity())
	}
	return n
}

// only are the fields of a version that another one has not, or has with another type.
func (c *Converter) only(version, other string) (out []string) {
	a, z := c.sideOf(version), c.sideOf(other)
	if a == nil || z == nil || a.info == nil || z.info == nil {
		return nil
	}
	var walk func(t *typeInfo, s *shape, path string, above []*typeInfo)
	walk = func(t *typeInfo, s *shape, path string, above []*typeInfo) {
		for _, t2 := range above {
			if t2 == t {
				return
			}
		}
		above = append(above[:len(above):len(above)], t)
		for t.elem != nil {
			if s != nil {
				s = s.elem
			}
			t = t.elem.deref()
		}
		for i := range t.fields {
			f := &t.fields[i]
			if path == "" && outside(f.name) {
				continue
			}
			at := join(path, f.name)
			child := s.child([]byte(f.name))
			if child == nil {
				out = append(out, at)
				continue
			}
			walk(f.info.deref(), child, at, above)
		}
	}
	walk(a.info, shapes{}.of(a.info, z.info), "", nil)
	return out
}

// Compare lists what is different between two documents of one version: what would have to be done to a to make it b. The
// order of members and the spelling of strings do not count, the spelling of numbers does. Nothing different is nil.
func Compare(a, b []byte) ([]Change, error) {
	x, y := &doc{}, &doc{}
	if err := x.parse(a); err != nil {
		return nil, fmt.Errorf("compare: the first document: %w", err)
	}
	if err := y.parse(b); err != nil {
		return nil, fmt.Errorf("compare: the second document: %w", err)
	}
	d := differ{}
	d.value("", "", ref{x, 0}, ref{y, 0})
	return d.out, nil
}
