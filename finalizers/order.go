// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// step is the part of a [Step] that the planner needs; it knows no object type.
type step struct {
	name                 string
	after                []int
	deadline             time.Duration
	overrun, terminating Policy
}

// resolve turns names into indices, checks every rule of a step and sorts: a step comes after everything it needs, and
// otherwise in the order of declaration. The returned order holds indices into declared.
func resolve(declared []step, after [][]string) (order []int, err error) {
	index := make(map[string]int, len(declared))
	var errs []error
	for i, s := range declared {
		if bad := validation.IsQualifiedName(s.name); len(bad) > 0 {
			errs = append(errs, fmt.Errorf("step %d: name %q: %s", i, s.name, strings.Join(bad, "; ")))
			continue
		}
		if _, twice := index[s.name]; twice {
			errs = append(errs, fmt.Errorf("step %q: declared twice", s.name))
			continue
		}
		index[s.name] = i
	}
	for i := range declared {
		s := &declared[i]
		errs = append(errs, s.check()...)
		for _, name := range after[i] {
			j, ok := index[name]
			if !ok {
				errs = append(errs, fmt.Errorf("step %q: After names unknown step %q", s.name, name))
				continue
			}
			if !slices.Contains(s.after, j) {
				s.after = append(s.after, j)
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return sortSteps(declared)
}

func (s *step) check() (errs []error) {
	if s.deadline < 0 {
		errs = append(errs, fmt.Errorf("step %q: Deadline %s is negative", s.name, s.deadline))
	}
	if s.overrun > Skip || s.terminating > Skip {
		errs = append(errs, fmt.Errorf("step %q: unknown Policy", s.name))
	}
	if s.overrun == Skip && s.deadline == 0 {
		errs = append(errs, fmt.Errorf("step %q: Overrun is Skip but there is no Deadline to overrun", s.name))
	}
	return errs
}

// sortSteps is Kahn's algorithm that always takes the first declared step that is free, so the order is stable.
func sortSteps(steps []step) ([]int, error) {
	placed := make([]bool, len(steps))
	order := make([]int, 0, len(steps))
	for len(order) < len(steps) {
		next := -1
		for i, s := range steps {
			if !placed[i] && !slices.ContainsFunc(s.after, func(j int) bool { return !placed[j] }) {
				next = i
				break
			}
		}
		if next < 0 {
			return nil, fmt.Errorf("steps wait for each other: %s", cycle(steps, placed))
		}
		placed[next] = true
		order = append(order, next)
	}
	return order, nil
}

// cycle prints the path of one cycle among the steps that could not be placed: each of them has an unplaced
// dependency, so following those must come back to a step already seen.
func cycle(steps []step, placed []bool) string {
	at := slices.Index(placed, false)
	var path []int
	for !slices.Contains(path, at) {
		path = append(path, at)
		for _, j := range steps[at].after {
			if !placed[j] {
				at = j
				break
			}
		}
	}
	path = append(path[slices.Index(path, at):], at)
	names := make([]string, len(path))
	for i, j := range path {
		names[i] = steps[j].name
	}
	return strings.Join(names, " after ")
}

// sorted puts steps into the order in which they are called and renumbers their dependencies accordingly.
func sorted(declared []step, order []int) []step {
	position := make([]int, len(order))
	for to, from := range order {
		position[from] = to
	}
	out := make([]step, len(order))
	for to, from := range order {
		s := declared[from]
		s.after = make([]int, len(declared[from].after))
		for i, j := range declared[from].after {
			s.after[i] = position[j]
		}
		out[to] = s
	}
	return out
}
