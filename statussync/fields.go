// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

const observedGeneration = "observedGeneration"

// field is one JSON field of a struct type.
type field struct {
	name      string
	index     []int // from the outer struct; embedded pointers on the way are followed
	typ       reflect.Type
	omitEmpty bool
	omitZero  bool
	quoted    bool // ",string"
}

// jsonFields lists the fields encoding/json would write for struct type t, in declaration order. A name that occurs
// twice is kept once, at the smallest depth, as encoding/json does.
func jsonFields(t reflect.Type) []field {
	var out []field
	seen := map[string]int{}
	var walk func(reflect.Type, []int, int)
	walk = func(t reflect.Type, prefix []int, depth int) {
		if depth > 8 { // an embedded pointer to itself
			return
		}
		for i := range t.NumField() {
			f := t.Field(i)
			tag, tagged := f.Tag.Lookup("json")
			name, opts, _ := strings.Cut(tag, ",")
			if name == "-" && opts == "" {
				continue
			}
			index := append(append([]int(nil), prefix...), i)
			if f.Anonymous && name == "" {
				e := f.Type
				if e.Kind() == reflect.Pointer {
					e = e.Elem()
				}
				if e.Kind() == reflect.Struct {
					walk(e, index, depth+1)
					continue
				}
			}
			if !f.IsExported() {
				continue
			}
			if !tagged || name == "" {
				name = f.Name
			}
			if at, ok := seen[name]; ok {
				if len(out[at].index) <= len(index) {
					continue
				}
				out[at] = newField(name, index, f.Type, opts)
				continue
			}
			seen[name] = len(out)
			out = append(out, newField(name, index, f.Type, opts))
		}
	}
	walk(t, nil, 0)
	return out
}

// scalar says whether t, or what it points to, is a bool, a number or a string.
func scalar(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Bool, reflect.String,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr,
		reflect.Float32, reflect.Float64:
		return true
	}
	return false
}

func newField(name string, index []int, t reflect.Type, opts string) field {
	f := field{name: name, index: index, typ: t}
	for o := range strings.SplitSeq(opts, ",") {
		switch o {
		case "omitempty":
			f.omitEmpty = true
		case "omitzero":
			f.omitZero = true
		case "string":
			f.quoted = scalar(t) // encoding/json ignores it elsewhere
		}
	}
	return f
}

// in returns the field's value inside v, the invalid Value below a nil pointer.
func (f *field) in(v reflect.Value) reflect.Value { return follow(v, f.index) }

func follow(v reflect.Value, index []int) reflect.Value {
	for _, i := range index {
		for v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return reflect.Value{}
			}
			v = v.Elem()
		}
		v = v.Field(i)
	}
	return v
}

// absent reports whether the payload leaves the field out. A nil pointer, slice or map is left out whatever its tag
// says: null is not a value the API conventions know.
func (f *field) absent(v reflect.Value) bool {
	if !v.IsValid() {
		return true
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return v.IsNil()
	case reflect.Slice, reflect.Map:
		return v.IsNil() || (f.omitEmpty && v.Len() == 0)
	}
	return f.omitZero && isZero(v)
}

func isZero(v reflect.Value) bool {
	if v.CanAddr() {
		if z, ok := v.Addr().Interface().(interface{ IsZero() bool }); ok {
			return z.IsZero()
		}
	}
	return v.IsZero()
}

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

func marshalsItself(t reflect.Type) bool {
	return t.Implements(jsonMarshaler) || reflect.PointerTo(t).Implements(jsonMarshaler) ||
		t.Implements(textMarshaler) || reflect.PointerTo(t).Implements(textMarshaler)
}

// payloadFields lists the fields of payload type t or says why it cannot be one.
func payloadFields(t reflect.Type) ([]field, error) {
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("payload %s is no struct", t)
	}
	if marshalsItself(t) {
		return nil, fmt.Errorf("payload %s marshals itself, so its fields are unknown", t)
	}
	fields := jsonFields(t)
	var errs []error
	for _, f := range fields {
		switch f.name {
		case "conditions":
			errs = append(errs, fmt.Errorf("payload field %q of %s belongs in Desired.Conditions", f.name, t))
		case observedGeneration:
			errs = append(errs, fmt.Errorf("payload field %q of %s belongs in Desired.Generation", f.name, t))
		}
	}
	errs = append(errs, vanishing(t, "", nil)...)
	return fields, errors.Join(errs...)
}

// vanishing finds the scalars whose zero value would be left out, so that a server-side apply removes 0, false or ""
// instead of writing it: in t and in structs below it, but not in items of lists and maps, and not in types of
// Kubernetes itself, which nobody here can change.
func vanishing(t reflect.Type, at string, above []reflect.Type) []error {
	for _, a := range above {
		if a == t {
			return nil
		}
	}
	above = append(above, t)
	var errs []error
	for _, f := range jsonFields(t) {
		name := at + f.name
		e := f.typ
		if e.Kind() == reflect.Pointer {
			e = e.Elem()
		} else if scalar(e) {
			if f.omitEmpty || f.omitZero {
				errs = append(errs, fmt.Errorf("payload field %q of %s is of kind %s with omitempty and no pointer: its zero value would be removed, not written; make it a pointer or drop omitempty",
					name, above[0], e.Kind()))
			}
			continue
		}
		if e.Kind() == reflect.Struct && !marshalsItself(e) && !strings.HasPrefix(e.PkgPath(), "k8s.io/") {
			errs = append(errs, vanishing(e, name+".", above)...)
		}
	}
	return errs
}
