// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"sigs.k8s.io/json"
)

// fieldError says at which path a value does not fit.
type fieldError struct {
	path   []string // innermost first
	opaque bool     // the type's own code refused it
	value  ref
	err    error
}

func (e *fieldError) Error() string { return "at " + e.at() + ": " + e.err.Error() }
func (e *fieldError) Unwrap() error { return e.err }

// at is the path as people write it: spec.rules[2].port.
func (e *fieldError) at() string {
	var b strings.Builder
	for i := len(e.path) - 1; i >= 0; i-- {
		if s := e.path[i]; b.Len() > 0 && !strings.HasPrefix(s, "[") {
			b.WriteByte('.')
		}
		b.WriteString(e.path[i])
	}
	return b.String()
}

func under(err error, segment string) error {
	var fe *fieldError
	if !errors.As(err, &fe) {
		fe = &fieldError{err: err}
	}
	fe.path = append(fe.path, segment)
	return fe
}

// decoder fills Go values from a document. The rules are those of sigs.k8s.io/json, which an API server uses: names match
// by case, integers are exact, unknown names are passed over.
type decoder struct {
	skip []ref // values that are taken for absent
}

func (d *decoder) skips(r ref) bool {
	for _, s := range d.skip {
		if s.i == r.i && s.doc == r.doc {
			return true
		}
	}
	return false
}

func shapeOf(r ref) string {
	switch r.kind() {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case '0':
		return "the number " + string(r.bytes())
	}
	return string(r.bytes())
}

func misfit(r ref, t *typeInfo) error {
	want := "a string"
	switch k := t.t.Kind(); k {
	case reflect.Struct, reflect.Map:
		want = "an object"
	case reflect.Slice:
		want = "a list"
	case reflect.Bool:
		want = "true or false"
	case reflect.Float32, reflect.Float64:
		want = "a number"
	case reflect.String:
	default:
		want = "an integer"
		if r.kind() == '0' { // one that does not fit
			want += fmt.Sprintf(" of %d bits", t.t.Bits())
			if k >= reflect.Uint && k <= reflect.Uint64 {
				want += " without a sign"
			}
		}
	}
	return fmt.Errorf("expected %s, found %s", want, shapeOf(r))
}

// value fills v, which is settable, from r.
func (d *decoder) value(r ref, t *typeInfo, v reflect.Value) error {
	if t.opaque {
		return d.opaque(r, t, v)
	}
	k := r.kind()
	if k == 'n' {
		switch t.kind {
		case reflect.Pointer, reflect.Map, reflect.Slice:
			v.SetZero()
		}
		return nil
	}
	switch t.kind {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(t.t.Elem()))
		}
		return d.value(r, t.elem, v.Elem())
	case reflect.Struct:
		if k != '{' {
			return misfit(r, t)
		}
		for m := range r.children() {
			if err := d.member(m, t, v); err != nil {
				return err
			}
		}
	case reflect.Map:
		if k != '{' {
			return misfit(r, t)
		}
		if v.IsNil() {
			v.Set(reflect.MakeMapWithSize(t.t, r.count()))
		}
		return d.entries(r, t, v)
	case reflect.Slice:
		if k != '[' {
			return misfit(r, t)
		}
		n := r.count()
		v.Set(reflect.MakeSlice(t.t, n, n))
		i := 0
		for item := range r.children() {
			if err := d.value(item, t.elem, v.Index(i)); err != nil {
				return under(err, "["+strconv.Itoa(i)+"]")
			}
			i++
		}
	case reflect.String:
		if k != '"' {
			return misfit(r, t)
		}
		v.SetString(r.text())
	case reflect.Bool:
		if k != 't' && k != 'f' {
			return misfit(r, t)
		}
		v.SetBool(k == 't')
	case reflect.Float32, reflect.Float64:
		f, err := strconv.ParseFloat(string(r.bytes()), t.t.Bits())
		if k != '0' || err != nil {
			return misfit(r, t)
		}
		v.SetFloat(f)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		u, err := strconv.ParseUint(string(r.bytes()), 10, 64)
		if k != '0' || err != nil || v.OverflowUint(u) {
			return misfit(r, t)
		}
		v.SetUint(u)
	default: // the signed integers: types.of lets no other kind through
		i, err := strconv.ParseInt(string(r.bytes()), 10, 64)
		if k != '0' || err != nil || v.OverflowInt(i) {
			return misfit(r, t)
		}
		v.SetInt(i)
	}
	return nil
}

// member fills the field of a struct that has the name of m, if one has.
func (d *decoder) member(m ref, t *typeInfo, v reflect.Value) error {
	name := m.name()
	f := t.field(name)
	if f == nil || d.skips(m) {
		return nil
	}
	for _, i := range f.index[:len(f.index)-1] {
		if v = v.Field(i); v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
	}
	if err := d.value(m, f.info, v.Field(f.index[len(f.index)-1])); err != nil {
		return under(err, f.name)
	}
	return nil
}

func (d *decoder) entries(r ref, t *typeInfo, v reflect.Value) error {
	if strs, ok := v.Interface().(map[string]string); ok {
		for m := range r.children() {
			switch {
			case d.skips(m):
			case m.kind() == '"':
				strs[m.nameText()] = m.text()
			case m.kind() == 'n':
				strs[m.nameText()] = ""
			default:
				return under(misfit(m, t.elem), string(m.name()))
			}
		}
		return nil
	}
	key := reflect.New(t.t.Key()).Elem()
	for m := range r.children() {
		if d.skips(m) {
			continue
		}
		elem := reflect.New(t.t.Elem()).Elem()
		if err := d.value(m, t.elem, elem); err != nil {
			return under(err, string(m.name()))
		}
		key.SetString(m.nameText())
		v.SetMapIndex(key, elem)
	}
	return nil
}

func (d *decoder) opaque(r ref, t *typeInfo, v reflect.Value) error {
	if t.t.Kind() == reflect.Interface && t.t.NumMethod() == 0 {
		if x := d.any(r); x != nil {
			v.Set(reflect.ValueOf(x))
		} else {
			v.SetZero()
		}
		return nil
	}
	var err error
	if t.reads {
		err = v.Addr().Interface().(interface{ UnmarshalJSON([]byte) error }).UnmarshalJSON(r.bytes())
	} else {
		err = json.UnmarshalCaseSensitivePreserveInts(r.bytes(), v.Addr().Interface())
	}
	if err != nil {
		return &fieldError{opaque: true, value: r, err: fmt.Errorf("found %s, which %s refuses: %w", shapeOf(r), t.t, err)}
	}
	return nil
}

// any is a value without a type: integers that fit are int64, as in an unstructured object.
func (d *decoder) any(r ref) any {
	switch r.kind() {
	case '{':
		m := make(map[string]any, r.count())
		for c := range r.children() {
			if !d.skips(c) {
				m[c.nameText()] = d.any(c)
			}
		}
		return m
	case '[':
		list := make([]any, 0, r.count())
		for c := range r.children() {
			list = append(list, d.any(c))
		}
		return list
	case '"':
		return r.text()
	case 't':
		return true
	case 'f':
		return false
	case '0':
		if i, err := strconv.ParseInt(string(r.bytes()), 10, 64); err == nil {
			return i
		}
		f, _ := strconv.ParseFloat(string(r.bytes()), 64) // out of range: infinite, which cannot be written again
		return f
	}
	return nil
}

// follow is the value at the path of a fieldError, innermost step first.
func (r ref) follow(path []string) ref {
	for i := len(path) - 1; i >= 0 && r.ok(); i-- {
		if index, ok := strings.CutPrefix(path[i], "["); ok && r.kind() == '[' {
			n, err := strconv.Atoi(strings.TrimSuffix(index, "]"))
			items := r.items()
			if err != nil || n >= len(items) {
				return none
			}
			r = items[n]
			continue
		}
		r = r.get(path[i])
	}
	return r
}
