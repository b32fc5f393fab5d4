// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"maps"
	"reflect"
	"strings"
)

// shape says which paths two versions have in common: there, with the same type on both sides, a value means the same.
// A nil shape is a place they do not have in common.
type shape struct {
	any    bool              // nothing is known about the types: whatever is there may be the same
	leaf   bool              // one Go type, a scalar of one kind, or opaque and the same on both sides
	whole  bool              // both sides take the same documents here, so bytes can be moved without a look inside
	elem   *shape            // of list items and map values
	list   bool              // elem is that of a list
	member map[string]*shape // of structs: nil for a name that only one side has, or has with another type
	rest   *shape            // of structs: what names unknown to both sides have
	keys   []string          // of a list: the members that tell its items apart
}

// child is the shape of a member; a name unknown to both sides has the shape that says nothing.
func (s *shape) child(name []byte) *shape {
	switch {
	case s == nil || s.any:
		return s
	case s.member != nil:
		if c, known := s.member[string(name)]; known {
			return c
		}
		return s.rest
	case s.elem != nil && !s.list:
		return s.elem
	}
	return nil
}

// item is the shape of a list item.
func (s *shape) item() *shape {
	switch {
	case s == nil || s.any:
		return s
	case s.list:
		return s.elem
	}
	return nil
}

func anything() *shape { return &shape{any: true, whole: true} }

type typePair struct{ a, b *typeInfo }

// shapes makes shapes; a pair of types has one, so that types which contain themselves end.
type shapes map[typePair]*shape

// of compares two types. Either may be nil, which stands for documents without a type.
func (m shapes) of(a, b *typeInfo) *shape {
	if a == nil || b == nil {
		return anything()
	}
	a, b = a.deref(), b.deref()
	if s, ok := m[typePair{a, b}]; ok {
		return s
	}
	s := &shape{}
	m[typePair{a, b}] = s
	if !m.fill(s, a, b) {
		delete(m, typePair{a, b})
		return nil
	}
	return s
}

func (m shapes) fill(s *shape, a, b *typeInfo) bool {
	if a.t == b.t {
		s.whole = true
	}
	if a.opaque || b.opaque {
		s.leaf = a.t == b.t
		s.any = s.leaf && a.t.Kind() == reflect.Interface
		return s.leaf
	}
	if a.t.Kind() != b.t.Kind() {
		return false
	}
	switch a.t.Kind() {
	case reflect.Struct:
		s.member, s.rest = make(map[string]*shape, len(a.fields)), anything()
		for i := range a.fields {
			f := &a.fields[i]
			s.member[f.name] = nil
			if g := b.field([]byte(f.name)); g != nil {
				c := m.of(f.info, g.info)
				if c != nil && c.list && f.mergeKey != "" && f.mergeKey == g.mergeKey {
					keyed := *c
					keyed.keys = []string{f.mergeKey}
					c = &keyed
				}
				s.member[f.name] = c
			}
		}
		for i := range b.fields {
			if _, known := s.member[b.fields[i].name]; !known {
				s.member[b.fields[i].name] = nil
			}
		}
		closed := true
		for _, c := range s.member {
			closed = closed && c != nil && c.whole
		}
		s.whole = s.whole || closed
	case reflect.Map, reflect.Slice:
		s.list = a.t.Kind() == reflect.Slice
		s.elem = m.of(a.elem, b.elem)
		s.whole = s.whole || s.elem != nil && s.elem.whole
		return s.elem != nil
	default:
		s.leaf, s.whole = true, true
	}
	return true
}

// keyed is a copy of s in which the list at a path has keys.
func (s *shape) keyed(path, keys []string) *shape {
	if s == nil || s.any || s.leaf {
		return s
	}
	c := *s
	switch {
	case s.list && len(path) == 0:
		c.keys = keys
	case s.elem != nil:
		rest := path
		if !s.list && len(path) > 0 {
			rest = path[1:]
		}
		c.elem = s.elem.keyed(rest, keys)
	case len(path) > 0 && s.member[path[0]] != nil:
		c.member = maps.Clone(s.member)
		c.member[path[0]] = s.member[path[0]].keyed(path[1:], keys)
	}
	return &c
}

// at is the shape at the path of a fieldError, innermost step first.
func (s *shape) at(path []string) *shape {
	for i := len(path) - 1; i >= 0; i-- {
		if s != nil && s.list && strings.HasPrefix(path[i], "[") {
			s = s.item()
			continue
		}
		s = s.child([]byte(path[i]))
	}
	return s
}

// same reports whether both sides have the same scalar type.
func (s *shape) same() bool { return s != nil && s.leaf && s.whole }
