// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
)

// Pair registers the two functions between two versions of a kind. up goes from A to B and down back; to is the newer
// version. Each gets a fresh copy of the object and an empty one that has its metadata already; what the function does to
// the labels and annotations counts, the rest of the metadata cannot be changed. managedFields are not shown.
//
// A and B are the API structs, or map[string]any or unstructured.Unstructured for objects without a type.
//
// A function copies every field that the other version has too, under whatever name. It need not care for what that
// version cannot hold, for zero values or for unknown fields: [Converter.Convert] does. It must not depend on anything
// but its arguments if [WithCache] is used.
func Pair[A, B any](b *Builder, from, to string, up func(context.Context, *A, *B) error, down func(context.Context, *B, *A) error, opts ...PairOption) {
	if up == nil || down == nil {
		b.errs = append(b.errs, fmt.Errorf("pair %s, %s: a function is nil", from, to))
		return
	}
	newA, newB := func() any { return new(A) }, func() any { return new(B) }
	b.pair(from, to, newA, newB, func(ctx context.Context, in, out any) error {
		return up(ctx, in.(*A), out.(*B))
	}, func(ctx context.Context, in, out any) error {
		return down(ctx, in.(*B), out.(*A))
	}, opts...)
}

// side is the Go form of a version in a pair.
type side struct {
	version string     // group and version
	make    func() any // a pointer
	info    *typeInfo  // of what it points to; nil: no type
	meta    *field
	strings [2]*field // labels and annotations of the metadata
	lists   [2]*field // its finalizers and owners
	name    *field
	ids     [2]*field // apiVersion and kind
}

func newSide(ts types, version string, make func() any) *side {
	s := &side{version: version, make: make}
	x := make()
	switch x.(type) {
	case *map[string]any, runtime.Unstructured:
		return s
	}
	s.info = ts.of(reflect.TypeOf(x).Elem())
	s.ids = [2]*field{s.info.field([]byte("apiVersion")), s.info.field([]byte("kind"))}
	if s.meta = s.info.field([]byte("metadata")); s.meta != nil {
		m := s.meta.info.deref()
		s.strings = [2]*field{m.field([]byte("labels")), m.field([]byte("annotations"))}
		s.lists = [2]*field{m.field([]byte("finalizers")), m.field([]byte("ownerReferences"))}
		s.name = m.field([]byte("name"))
	}
	return s
}

// edge is one direction of a pair, or of an identity.
type edge struct {
	a, b     *side // nil for an identity
	from, to string
	up       bool
	call     func(ctx context.Context, in, out any) error
	shape    *shape
	loses    []string
	complete func(any)
}

func (e *edge) identity() bool { return e.call == nil }

// run converts the body of an object by one step. The metadata passes through, but for labels and annotations.
func (e *edge) run(ctx context.Context, o object) (object, error) {
	o.version = e.to
	if e.identity() {
		return o, nil
	}
	if err := ctx.Err(); err != nil {
		return o, err
	}
	skip := []ref{o.managed, o.stash}
	var spared []*fieldError
	var in any
	for {
		in = e.a.make()
		err := e.a.decode(&o, in, skip)
		if err == nil {
			break
		}
		var fe *fieldError
		if !errors.As(err, &fe) || !fe.opaque || !e.shape.at(fe.path).same() || len(spared) > maxDepth {
			return o, err
		}
		// Both versions have the same Go type there, and it is the type that refuses the value: let it pass through as it
		// is, if the function does not touch it.
		spared, skip = append(spared, fe), append(skip, fe.value)
	}
	again := o.body
	if e.a.info != nil {
		var err error
		if again, err = e.a.encode(in, &o); err != nil {
			return o, err
		}
	}
	out := e.b.make()
	if err := e.b.prefill(&o, e.a, in, out, skip); err != nil {
		return o, err
	}
	if err := e.call(ctx, in, out); err != nil {
		return o, err
	}
	if e.complete != nil && !o.partial() {
		e.complete(out)
	}
	if err := e.b.keepStrings(&o, out); err != nil {
		return o, err
	}
	got, err := e.b.encode(out, &o)
	if err != nil {
		return o, err
	}
	for _, fe := range spared {
		if !equal(again.follow(fe.path), got.follow(fe.path)) {
			return o, fe
		}
	}
	d := o.mem.doc()
	ov := overlay{d.writer(len(o.body.bytes()))}
	ov.members(o.body, again, got, e.shape, outside)
	if err := d.written(&ov.writer); err != nil {
		return o, err
	}
	o.body = ref{d, 0}
	return o, nil
}

// decode fills x with the object.
func (s *side) decode(o *object, x any, skip []ref) error {
	d := decoder{skip: skip}
	if s.info == nil {
		m := d.untyped(o, s.version)
		if u, ok := x.(runtime.Unstructured); ok {
			u.SetUnstructuredContent(m)
		} else {
			*x.(*map[string]any) = m
		}
		return nil
	}
	v := reflect.ValueOf(x).Elem()
	for m := range o.body.children() {
		if !outside(string(m.name())) {
			if err := d.member(m, s.info, v); err != nil {
				return err
			}
		}
	}
	s.typeMeta(v, o.kind)
	if s.meta == nil || !o.meta.ok() {
		return nil
	}
	to := v.FieldByIndex(s.meta.index)
	if m := o.mem; m != nil && len(skip) == 2 {
		if m.meta.from == o.meta && m.meta.info == s.meta.info && s.intact(o, m.meta.value) {
			to.Set(m.meta.value)
			s.unshare(to)
			return nil
		}
	}
	if err := d.value(o.meta, s.meta.info, to); err != nil {
		return under(err, "metadata")
	}
	if m := o.mem; m != nil && len(skip) == 2 && to.Kind() == reflect.Struct {
		kept := reflect.New(to.Type()).Elem()
		kept.Set(to) // functions may change theirs
		s.unshare(kept)
		m.meta = metadata{o.meta, s.meta.info, kept}
	}
	return nil
}

// intact reports whether metadata that was decoded before is still what o has: functions have the same maps, and may have
// moved an annotation into a field.
func (s *side) intact(o *object, meta reflect.Value) bool {
	for i, f := range s.strings {
		if f == nil {
			continue
		}
		have, ok := meta.FieldByIndex(f.index).Interface().(map[string]string)
		if !ok || !sameStrings(o.meta.get([2]string{"labels", "annotations"}[i]), have, [2]ref{none, o.stash}[i]) {
			return false
		}
	}
	return true
}

// unshare gives metadata lists of its own: a function may write into those it is given.
func (s *side) unshare(meta reflect.Value) {
	for _, f := range s.lists {
		if f == nil || f.info.kind != reflect.Slice {
			continue
		}
		if list := meta.FieldByIndex(f.index); list.Len() > 0 {
			list.Set(reflect.AppendSlice(reflect.MakeSlice(list.Type(), 0, list.Len()), list))
		}
	}
}

func (d *decoder) untyped(o *object, version string) map[string]any {
	m := map[string]any{"kind": o.kind, "apiVersion": version}
	for c := range o.body.children() {
		if !outside(string(c.name())) && !d.skips(c) {
			m[string(c.name())] = d.any(c)
		}
	}
	if o.meta.ok() {
		m["metadata"] = d.any(o.meta)
	}
	return m
}

// typeMeta sets apiVersion and kind.
func (s *side) typeMeta(v reflect.Value, kind string) {
	for i, f := range s.ids {
		if f != nil && f.info.t.Kind() == reflect.String {
			if fv, err := v.FieldByIndexErr(f.index); err == nil {
				fv.SetString([2]string{s.version, kind}[i])
			}
		}
	}
}

// prefill gives the output its metadata, so that a function may set it but need not.
func (s *side) prefill(o *object, a *side, in, out any, skip []ref) error {
	if s.info == nil {
		m := map[string]any{"apiVersion": s.version, "kind": o.kind}
		if o.meta.ok() {
			m["metadata"] = (&decoder{skip: skip}).any(o.meta)
		}
		if u, ok := out.(runtime.Unstructured); ok {
			u.SetUnstructuredContent(m)
		} else {
			*out.(*map[string]any) = m
		}
		return nil
	}
	v := reflect.ValueOf(out).Elem()
	s.typeMeta(v, o.kind)
	if s.meta == nil || !o.meta.ok() {
		return nil
	}
	to := v.FieldByIndex(s.meta.index)
	if a.meta != nil && a.meta.info == s.meta.info {
		to.Set(reflect.ValueOf(in).Elem().FieldByIndex(a.meta.index)) // as functions do by hand
		return nil
	}
	return (&decoder{skip: skip}).value(o.meta, s.meta.info, to)
}

// encode writes the body of x, which is about as long as that of o.
func (s *side) encode(x any, o *object) (ref, error) {
	d := o.mem.doc()
	w := d.writer(len(o.body.bytes()))
	var err error
	if s.info == nil {
		err = w.untyped(content(x), true)
	} else {
		err = w.object(s.info, reflect.ValueOf(x).Elem(), true)
	}
	if err == nil {
		err = d.written(&w)
	}
	return ref{d, 0}, err
}

func content(x any) map[string]any {
	if u, ok := x.(runtime.Unstructured); ok {
		return u.UnstructuredContent()
	}
	return *x.(*map[string]any)
}

// keepStrings takes over the labels and annotations of x, unless there is no metadata to put them into, or the function
// has put a whole new value into x and so wiped the metadata.
func (s *side) keepStrings(o *object, x any) error {
	if !o.meta.ok() {
		return nil
	}
	var have [2]map[string]string
	if s.info == nil {
		m, ok := content(x)["metadata"].(map[string]any)
		if !ok || m["name"] == nil && o.name != "" {
			return nil
		}
		for i, name := range []string{"labels", "annotations"} {
			if have[i], ok = stringsOf(m[name]); !ok {
				return fmt.Errorf("metadata.%s is no map of strings", name)
			}
		}
		return o.withStrings(have[0], have[1])
	}
	if s.meta == nil || s.name == nil {
		return nil
	}
	v := reflect.ValueOf(x).Elem().FieldByIndex(s.meta.index)
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	if v.FieldByIndex(s.name.index).String() == "" && o.name != "" {
		return nil
	}
	for i, f := range s.strings {
		if f == nil {
			return nil
		}
		m, ok := v.FieldByIndex(f.index).Interface().(map[string]string)
		if !ok {
			return nil
		}
		have[i] = m
	}
	return o.withStrings(have[0], have[1])
}

func stringsOf(x any) (map[string]string, bool) {
	switch x := x.(type) {
	case nil:
		return nil, true
	case map[string]string:
		return x, true
	case map[string]any:
		m := make(map[string]string, len(x))
		for k, v := range x {
			s, ok := v.(string)
			if !ok {
				return nil, false
			}
			m[k] = s
		}
		return m, true
	}
	return nil, false
}
