// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"cmp"
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// typeInfo is what the codec knows about a Go type. It reads and writes plain types itself, several times faster than a
// general JSON library, because every document is indexed already; what has code of its own for JSON is opaque and goes
// through that code.
type typeInfo struct {
	t             reflect.Type
	kind          reflect.Kind
	opaque        bool // read and written by its methods, or by a JSON library
	reads, writes bool // opaque, by UnmarshalJSON and MarshalJSON of the pointer
	elem          *typeInfo
	fields        []field
	byName        map[string]int
}

// field is one member of a struct, promoted ones included.
type field struct {
	name      string
	quoted    string // name as it is written
	escaped   bool   // quoted has a backslash
	outside   bool   // not part of the body of an API object
	index     []int
	info      *typeInfo
	omitEmpty bool
	isZero    func(reflect.Value) bool // omitzero
	mergeKey  string                   // of the struct tag patchMergeKey
}

// types makes and remembers typeInfos. It is filled by Pair and only read afterwards.
type types map[reflect.Type]*typeInfo

func implements[I any](t reflect.Type) bool {
	return t.Implements(reflect.TypeFor[I]())
}

func (ts types) of(t reflect.Type) *typeInfo {
	if info := ts[t]; info != nil {
		return info
	}
	info := &typeInfo{t: t, kind: t.Kind()}
	ts[t] = info // before the elements: types may contain themselves
	p := reflect.PointerTo(t)
	byValue := implements[json.Marshaler](t) || implements[encoding.TextMarshaler](t)
	byPointer := implements[json.Marshaler](p) || implements[encoding.TextMarshaler](p) ||
		implements[json.Unmarshaler](p) || implements[encoding.TextUnmarshaler](p)
	if t.Kind() != reflect.Pointer && (byValue || byPointer) {
		info.opaque, info.reads, info.writes = true, implements[json.Unmarshaler](p), implements[json.Marshaler](p)
		return info
	}
	switch t.Kind() {
	case reflect.Bool, reflect.String, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		info.opaque = t == reflect.TypeFor[json.Number]()
	case reflect.Pointer:
		info.elem = ts.of(t.Elem())
	case reflect.Slice:
		// A []byte is base64.
		if info.opaque = t.Elem().Kind() == reflect.Uint8; !info.opaque {
			info.elem = ts.of(t.Elem())
		}
	case reflect.Map:
		k := t.Key()
		if info.opaque = k.Kind() != reflect.String || implements[encoding.TextMarshaler](k) || implements[encoding.TextUnmarshaler](reflect.PointerTo(k)); !info.opaque {
			info.elem = ts.of(t.Elem())
		}
	case reflect.Struct:
		info.opaque = !ts.structFields(info)
	default: // interfaces, arrays, and what no JSON library takes
		info.opaque = true
	}
	return info
}

// structFields collects the members of a struct by encoding/json's rules: the shallowest field of a name wins, then the
// tagged one, and of several equals none. It reports false for the option string, which nobody uses in an API type.
func (ts types) structFields(info *typeInfo) bool {
	type candidate struct {
		field
		depth  int
		tagged bool
	}
	var all []candidate
	ok := true
	var walk func(t reflect.Type, index []int, seen []reflect.Type)
	walk = func(t reflect.Type, index []int, seen []reflect.Type) {
		if slices.Contains(seen, t) {
			ok = false
			return
		}
		seen = append(slices.Clip(seen), t)
		for i := range t.NumField() {
			f := t.Field(i)
			tag := f.Tag.Get("json")
			if tag == "-" {
				continue
			}
			name, opts, _ := strings.Cut(tag, ",")
			at := append(slices.Clip(index), i)
			if f.Anonymous && name == "" {
				et := f.Type
				if et.Kind() == reflect.Pointer {
					et = et.Elem()
					if !f.IsExported() {
						ok = false
					}
				}
				if et.Kind() == reflect.Struct {
					walk(et, at, seen)
					continue
				}
			}
			if !f.IsExported() {
				continue
			}
			c := candidate{depth: len(at), tagged: name != ""}
			if c.name = name; name == "" {
				c.name = f.Name
			}
			c.index, c.mergeKey = at, f.Tag.Get("patchMergeKey")
			for opt := range strings.SplitSeq(opts, ",") {
				switch opt {
				case "omitempty":
					c.omitEmpty = true
				case "omitzero":
					c.isZero = zeroTest(f.Type)
				case "string":
					ok = false
				}
			}
			all = append(all, c)
		}
	}
	walk(info.t, nil, nil)
	if !ok {
		return false
	}
	byName := map[string][]candidate{}
	for _, c := range all {
		byName[c.name] = append(byName[c.name], c)
	}
	info.byName = make(map[string]int, len(byName))
	for _, c := range all {
		same := byName[c.name]
		slices.SortStableFunc(same, func(a, b candidate) int {
			return cmp.Or(cmp.Compare(a.depth, b.depth), -cmp.Compare(boolInt(a.tagged), boolInt(b.tagged)))
		})
		if !slices.Equal(same[0].index, c.index) {
			continue
		}
		if len(same) > 1 && same[1].depth == c.depth && same[1].tagged == c.tagged {
			continue
		}
		c.info = ts.of(info.t.FieldByIndex(c.index).Type)
		c.quoted, c.outside = string(appendString(nil, c.name)), outside(c.name)
		c.escaped = escapes([]byte(c.quoted), len(c.name))
		info.byName[c.name] = len(info.fields)
		info.fields = append(info.fields, c.field)
	}
	return true
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// zeroTest is what omitzero asks: the type's IsZero method, or reflection.
func zeroTest(t reflect.Type) func(reflect.Value) bool {
	type isZeroer interface{ IsZero() bool }
	switch {
	case t.Kind() == reflect.Interface && implements[isZeroer](t):
		return func(v reflect.Value) bool {
			return v.IsNil() || v.Elem().Kind() == reflect.Pointer && v.Elem().IsNil() || v.Interface().(isZeroer).IsZero()
		}
	case t.Kind() == reflect.Pointer && implements[isZeroer](t):
		return func(v reflect.Value) bool { return v.IsNil() || v.Interface().(isZeroer).IsZero() }
	case implements[isZeroer](t):
		return func(v reflect.Value) bool { return v.Interface().(isZeroer).IsZero() }
	case implements[isZeroer](reflect.PointerTo(t)):
		return func(v reflect.Value) bool {
			if !v.CanAddr() {
				w := reflect.New(t).Elem()
				w.Set(v)
				v = w
			}
			return v.Addr().Interface().(isZeroer).IsZero()
		}
	}
	return reflect.Value.IsZero
}

// field returns the member with a name.
func (t *typeInfo) field(name []byte) *field {
	if i, ok := t.byName[string(name)]; ok {
		return &t.fields[i]
	}
	return nil
}

// deref is the type without pointers.
func (t *typeInfo) deref() *typeInfo {
	for !t.opaque && t.t.Kind() == reflect.Pointer {
		t = t.elem
	}
	return t
}
