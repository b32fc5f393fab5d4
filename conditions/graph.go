// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"slices"
	"strings"
)

// connect resolves the names in Needs and refuses those that lead nowhere, then looks for a cycle.
func (s *Set) connect() (errs []error) {
	refuse := func(name, rule string) {
		errs = append(errs, &TypeError{Op: "declare", Type: name, Rule: rule, Kind: ErrIllegal})
	}
	s.needs = make([][]int, len(s.types))
	for i := range s.types {
		t := &s.types[i]
		for _, need := range t.Needs {
			j, known := s.index[need]
			switch {
			case !known:
				refuse(t.Name, "needs "+shorten(need)+", which is not declared")
			case j == isRetired:
				refuse(t.Name, "needs "+need+", which is retired")
			case j < 0:
				refuse(t.Name, "needs "+need+", which is derived from it")
			case s.types[j].Advisory:
				refuse(t.Name, "needs "+need+", which is advisory")
			case slices.Contains(s.needs[i], j):
				refuse(t.Name, "needs "+need+" twice")
			default:
				s.needs[i] = append(s.needs[i], j)
			}
		}
	}
	if len(errs) > 0 {
		return errs
	}
	if path := s.cycle(); path != nil {
		return []error{&TypeError{
			Op: "declare", Type: path[0], Kind: ErrCycle,
			Rule: "needs itself: " + strings.Join(path, " → "),
		}}
	}
	return nil
}

// cycle returns the first cycle in the order of declaration as a path whose last name is its first, or nil.
func (s *Set) cycle() []string {
	const fresh, open, closed = 0, 1, 2
	state := make([]byte, len(s.types))
	var path []int
	var visit func(i int) bool
	visit = func(i int) bool {
		state[i] = open
		path = append(path, i)
		for _, j := range s.needs[i] {
			if state[j] == open {
				path = append(path[slices.Index(path, j):], j)
				return true
			}
			if state[j] == fresh && visit(j) {
				return true
			}
		}
		state[i] = closed
		path = path[:len(path)-1]
		return false
	}
	for i := range s.types {
		if state[i] == fresh && visit(i) {
			names := make([]string, len(path))
			for k, j := range path {
				names[k] = s.types[j].Name
			}
			return names
		}
	}
	return nil
}

// sort fixes the topological order, ties by declaration: always the first declared type whose needs are all placed.
func (s *Set) sort() {
	n := len(s.types)
	rank := make([]int, n)
	placed := make([]bool, n)
	s.order = make([]int, 0, n)
	for len(s.order) < n {
		for i := range n {
			ready := !placed[i] && !slices.ContainsFunc(s.needs[i], func(j int) bool { return !placed[j] })
			if ready {
				rank[i], placed[i] = len(s.order), true
				s.order = append(s.order, i)
				break
			}
		}
	}
	for _, i := range s.order {
		if !s.types[i].Advisory {
			s.counted = append(s.counted, i)
		}
	}
	for i := range s.needs {
		slices.SortFunc(s.needs[i], func(a, b int) int { return rank[a] - rank[b] })
	}
}
