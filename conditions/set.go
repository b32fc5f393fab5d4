// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"errors"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Set is a declared and validated set of condition types with one root that sums them up. It is immutable and safe for
// concurrent use; declare it once, as a package variable through [MustNew]. The zero Set is not usable: its passes
// return an error that matches [ErrFinished] and change nothing.
type Set struct {
	root    string
	types   []Type   // in the order of declaration, retired ones left out
	needs   [][]int  // per type: what it needs, in topological order
	order   []int    // all types in topological order, ties by declaration
	counted []int    // of these, those the root sums up: all but the advisory ones
	blocked []string // per type: the reason of those it blocks
	retired []string
	index   map[string]int // name → position in types, or one of the codes below
	pool    sync.Pool      // *scratch: what a pass needs besides the result
}

// Codes of Set.index for names that take no verdict.
const (
	isRoot = -1 - iota
	isReconciling
	isStalled
	isRetired
)

// New validates a declaration. root is the type that sums the others up, usually "Ready"; it always is positive.
//
// It fails with every [TypeError] the declaration deserves: an illegal, repeated or reserved name (the root itself,
// Reconciling and Stalled are derived, never declared), a need that is unknown, retired, advisory, repeated or the root, a
// negative hold, and a cycle of needs, printed with its path. Slices and types are copied.
func New(root string, types ...Type) (*Set, error) {
	s := &Set{root: root, index: make(map[string]int, len(types)+3)}
	errs := s.name(types)
	if len(errs) == 0 {
		errs = s.connect()
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	s.sort()
	return s, nil
}

// MustNew is [New] for package variables. It panics on a bad declaration.
func MustNew(root string, types ...Type) *Set {
	s, err := New(root, types...)
	if err != nil {
		panic(err)
	}
	return s
}

// name registers all names and collects what is wrong with each alone.
func (s *Set) name(types []Type) (errs []error) {
	refuse := func(name, rule string) {
		errs = append(errs, &TypeError{Op: "declare", Type: name, Rule: rule, Kind: ErrIllegal})
	}
	add := func(name string, code int) {
		if problems := validation.IsQualifiedName(name); len(problems) > 0 {
			refuse(name, "not a qualified name: "+problems[0])
			return
		}
		switch prior, taken := s.index[name]; {
		case !taken:
			s.index[name] = code
		case prior == isReconciling || prior == isStalled:
			refuse(name, "derived by every set, cannot be declared")
		case prior == isRoot:
			refuse(name, "is the root, cannot be declared")
		default:
			refuse(name, "declared twice")
		}
	}
	s.index[Reconciling], s.index[Stalled] = isReconciling, isStalled
	add(s.root, isRoot)
	for _, t := range types {
		if t.Retired {
			add(t.Name, isRetired)
			s.retired = append(s.retired, t.Name)
			continue
		}
		add(t.Name, len(s.types))
		if t.Hold.Bad < 0 || t.Hold.Good < 0 {
			refuse(t.Name, "hold must not be negative")
		}
		t.Needs = slices.Clone(t.Needs)
		s.types = append(s.types, t)
		s.blocked = append(s.blocked, blockedReason(t.Name))
	}
	return errs
}

// Root returns the name of the root type.
func (s *Set) Root() string { return s.root }

// Types returns a copy of the declaration without the root and the retired types, in the order declared.
func (s *Set) Types() []Type {
	types := slices.Clone(s.types)
	for i := range types {
		types[i].Needs = slices.Clone(types[i].Needs)
	}
	return types
}

// Owned returns every type the Set may write: root, declared types, then the derived Reconciling and Stalled. It is what
// a status writer declares as its own.
func (s *Set) Owned() []string {
	names := make([]string, 0, len(s.types)+3)
	names = append(names, s.root)
	for i := range s.types {
		names = append(names, s.types[i].Name)
	}
	return append(names, Reconciling, Stalled)
}

// Retired returns the types the Set removes wherever it finds them, in the order declared.
func (s *Set) Retired() []string { return slices.Clone(s.retired) }
