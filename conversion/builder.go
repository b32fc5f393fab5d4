// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Builder collects what is known about the versions of a kind. What is wrong with it is said by [Builder.Build].
type Builder struct {
	gk      schema.GroupKind
	scheme  *runtime.Scheme
	types   types
	edges   []*edge
	same    [][]string
	keys    map[string]listKeys
	macKeys [][]byte
	errs    []error
}

// New begins the registry of one kind.
func New(gk schema.GroupKind, opts ...Option) *Builder {
	b := &Builder{gk: gk, types: types{}, keys: map[string]listKeys{}}
	if gk.Kind == "" {
		b.errs = append(b.errs, errors.New("the kind is empty"))
	}
	for _, o := range opts {
		o.applyNew(b)
	}
	return b
}

// Same declares versions with the same schema. Nothing is decoded between them: apiVersion changes and every other byte
// stays.
func (b *Builder) Same(versions ...string) {
	if len(versions) < 2 {
		b.errs = append(b.errs, fmt.Errorf("same %q: two versions are needed", versions))
	}
	for _, v := range versions {
		if v == "" || strings.Contains(v, "/") {
			b.errs = append(b.errs, fmt.Errorf("same %q: %q is no version", versions, v))
		}
	}
	b.same = append(b.same, slices.Clone(versions))
}

func (b *Builder) pair(from, to string, newA, newB func() any, up, down func(context.Context, any, any) error, opts ...PairOption) {
	for _, v := range []string{from, to} {
		if v == "" || strings.Contains(v, "/") {
			b.errs = append(b.errs, fmt.Errorf("pair %s, %s: %q is no version", from, to, v))
			return
		}
	}
	if from == to {
		b.errs = append(b.errs, fmt.Errorf("pair %s, %s: the versions are the same", from, to))
		return
	}
	for _, e := range b.edges {
		if e.from == from && e.to == to || e.from == to && e.to == from {
			b.errs = append(b.errs, fmt.Errorf("pair %s, %s: there is a pair for these versions already", from, to))
			return
		}
	}
	a, z := newSide(b.types, b.apiVersion(from), newA), newSide(b.types, b.apiVersion(to), newB)
	for _, s := range []*side{a, z} {
		if s.info != nil && (s.info.opaque || s.info.t.Kind() != reflect.Struct) {
			b.errs = append(b.errs, fmt.Errorf("pair %s, %s: %s is neither a plain struct nor unstructured", from, to, s.info.t))
			return
		}
	}
	upward := &edge{a: a, b: z, from: from, to: to, up: true, call: up}
	downward := &edge{a: z, b: a, from: to, to: from, call: down}
	for _, o := range opts {
		o.applyPair(upward)
		o.applyPair(downward)
	}
	b.edges = append(b.edges, upward, downward)
}

func (b *Builder) apiVersion(version string) string {
	return schema.GroupVersion{Group: b.gk.Group, Version: version}.String()
}

// Build makes the converter, or fails with everything that is wrong: what was declared badly, and every ordered pair of
// versions without a way from one to the other. All pairs are needed, also of versions that are not served any more: an
// API server converts objects to the version of every manager in managedFields.
func (b *Builder) Build() (*Converter, error) {
	errs := slices.Clone(b.errs)
	g := newGraph(b)
	if len(g.versions) == 0 {
		errs = append(errs, errors.New("no versions: Pair, Same, FromScheme or FromConvertible is needed"))
	}
	for version := range b.keys {
		if !slices.Contains(g.versions, version) {
			errs = append(errs, fmt.Errorf("WithListKeys: version %s is in no pair", version))
		}
	}
	paths, missing := g.paths()
	if len(missing) > 0 {
		errs = append(errs, fmt.Errorf("no way from %s", strings.Join(missing, ", ")))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("build conversion of %s: %w", b.gk, errors.Join(errs...))
	}
	c := &Converter{
		gk: b.gk, versions: g.versions, class: g.class, hub: g.hub(), paths: paths,
		keys: map[string]listKeys{}, macKeys: slices.Clone(b.macKeys), sides: map[string]*side{},
		arenas: &sync.Pool{New: func() any { return &arena{} }},
	}
	for _, e := range b.edges {
		c.sides[e.from] = e.a
	}
	for _, v := range g.versions {
		c.keys[v] = listKeys{}
		if s := c.sides[v]; s != nil && s.info != nil {
			mergeKeys(c.keys[v], s.info, "", nil)
		}
		for path, keys := range b.keys[v] {
			c.keys[v][path] = keys
		}
	}
	for _, v := range g.versions { // the same schema: the same keys
		for path, keys := range c.keys[v] {
			for _, w := range g.versions {
				if g.class[v] == g.class[w] && c.keys[w][path] == nil {
					c.keys[w][path] = keys
				}
			}
		}
	}
	c.shapes(b.edges)
	return c, nil
}

// shapes compares the types of every pair, and knows the keys of the lists that both have.
func (c *Converter) shapes(edges []*edge) {
	m := shapes{}
	for _, e := range edges {
		s := m.of(e.a.info, e.b.info)
		for _, v := range []string{e.from, e.to} {
			for path, keys := range c.keys[v] {
				s = s.keyed(strings.Split(path, "."), keys)
			}
		}
		e.shape = s
	}
}

// mergeKeys collects the lists of a type whose items have a patchMergeKey.
func mergeKeys(out listKeys, t *typeInfo, path string, above []*typeInfo) {
	t = t.deref()
	if t.opaque || slices.Contains(above, t) {
		return
	}
	above = append(slices.Clip(above), t)
	switch {
	case t.elem != nil && t.t.Kind() == reflect.Slice:
		mergeKeys(out, t.elem, path, above)
	case t.byName != nil:
		for i := range t.fields {
			f := &t.fields[i]
			if f.name == "metadata" && path == "" {
				continue
			}
			at := join(path, f.name)
			if f.mergeKey != "" {
				out[at] = []string{f.mergeKey}
			}
			mergeKeys(out, f.info, at, above)
		}
	}
}
