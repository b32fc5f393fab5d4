// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// value writes v as encoding/json writes it, but without escaping for HTML: nothing here is a web page.
func (w *writer) value(t *typeInfo, v reflect.Value) error {
	if t.opaque {
		return w.opaque(t, v)
	}
	switch t.kind {
	case reflect.Pointer:
		if v.IsNil() {
			w.null()
			return nil
		}
		return w.value(t.elem, v.Elem())
	case reflect.Struct:
		return w.object(t, v, false)
	case reflect.Map:
		return w.entries(t, v)
	case reflect.Slice:
		if v.IsNil() {
			w.null()
			return nil
		}
		at, err := w.open('[')
		if err != nil {
			return err
		}
		for i := range v.Len() {
			w.comma()
			if err := w.value(t.elem, v.Index(i)); err != nil {
				return under(err, "["+strconv.Itoa(i)+"]")
			}
		}
		w.shut(at)
	case reflect.String:
		w.string(v.String())
	case reflect.Bool:
		w.bool(v.Bool())
	case reflect.Float32, reflect.Float64:
		return w.float(v.Float(), t.t.Bits())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		w.uint(v.Uint())
	default: // the signed integers: types.of lets no other kind through
		w.int(v.Int())
	}
	return nil
}

// object writes a struct; body leaves out what is not part of the body of an API object.
func (w *writer) object(t *typeInfo, v reflect.Value, body bool) error {
	at, err := w.open('{')
	if err != nil {
		return err
	}
fields:
	for i := range t.fields {
		f := &t.fields[i]
		if body && f.outside {
			continue
		}
		fv := v
		for _, i := range f.index {
			if fv.Kind() == reflect.Pointer {
				if fv.IsNil() {
					continue fields
				}
				fv = fv.Elem()
			}
			fv = fv.Field(i)
		}
		if f.omitEmpty && empty(fv) || f.isZero != nil && f.isZero(fv) {
			continue
		}
		w.quoted(f.quoted, f.escaped)
		if err := w.value(f.info, fv); err != nil {
			return under(err, f.name)
		}
	}
	w.shut(at)
	return nil
}

func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Array, reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}

func (w *writer) entries(t *typeInfo, v reflect.Value) error {
	if v.IsNil() {
		w.null()
		return nil
	}
	at, err := w.open('{')
	if err != nil {
		return err
	}
	if strs, ok := v.Interface().(map[string]string); ok {
		for _, k := range sortedNames(strs) {
			w.name(k)
			w.string(strs[k])
		}
		w.shut(at)
		return nil
	}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(x, y reflect.Value) int { return strings.Compare(x.String(), y.String()) })
	for _, k := range keys {
		w.name(k.String())
		if err := w.value(t.elem, v.MapIndex(k)); err != nil {
			return under(err, k.String())
		}
	}
	w.shut(at)
	return nil
}

// sortedNames does without memory for what metadata usually holds.
func sortedNames(m map[string]string) []string {
	keys := make([]string, 0, 16)
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func appendStrings(b []byte, m map[string]string) []byte {
	b = append(b, '{')
	for i, k := range sortedNames(m) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, k), ':')
		b = appendString(b, m[k])
	}
	return append(b, '}')
}

func (w *writer) opaque(t *typeInfo, v reflect.Value) error {
	var x any
	switch {
	case t.kind == reflect.Interface && v.IsNil():
		w.null()
		return nil
	case t.kind == reflect.Interface && t.t.NumMethod() == 0:
		return w.any(v.Interface())
	case v.CanAddr():
		x = v.Addr().Interface()
	default:
		x = v.Interface()
	}
	var raw []byte
	var err error
	if m, ok := x.(json.Marshaler); ok && t.writes && v.Kind() != reflect.Pointer {
		raw, err = m.MarshalJSON()
	} else {
		raw, err = json.Marshal(x)
	}
	if err == nil {
		err = w.json(raw)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", t.t, err)
	}
	return nil
}

// any writes a value without a type.
func (w *writer) any(x any) error {
	switch x := x.(type) {
	case nil:
		w.null()
	case string:
		w.string(x)
	case bool:
		w.bool(x)
	case int64:
		w.int(x)
	case float64:
		return w.float(x, 64)
	case []any:
		if x == nil {
			w.null()
			return nil
		}
		at, err := w.open('[')
		if err != nil {
			return err
		}
		for i, e := range x {
			w.comma()
			if err := w.any(e); err != nil {
				return under(err, "["+strconv.Itoa(i)+"]")
			}
		}
		w.shut(at)
	case map[string]any:
		if x == nil {
			w.null()
			return nil
		}
		return w.untyped(x, false)
	default:
		raw, err := json.Marshal(x)
		if err == nil {
			err = w.json(raw)
		}
		if err != nil {
			return fmt.Errorf("write %T: %w", x, err)
		}
	}
	return nil
}

// untyped writes an object without a type; body leaves out what is not part of the body of an API object.
func (w *writer) untyped(m map[string]any, body bool) error {
	at, err := w.open('{')
	if err != nil {
		return err
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if body && outside(k) {
			continue
		}
		w.name(k)
		if err := w.any(m[k]); err != nil {
			return under(err, k)
		}
	}
	w.shut(at)
	return nil
}

// appendFloat spells a number as encoding/json does.
func appendFloat(b []byte, f float64, bits int) ([]byte, error) {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return b, fmt.Errorf("write number: %v has no spelling in JSON", f)
	}
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (bits == 64 && (abs < 1e-6 || abs >= 1e21) || bits == 32 && (float32(abs) < 1e-6 || float32(abs) >= 1e21)) {
		format = 'e'
	}
	b = strconv.AppendFloat(b, f, format, -1, bits)
	if n := len(b); format == 'e' && n >= 4 && b[n-4] == 'e' && b[n-3] == '-' && b[n-2] == '0' {
		b[n-2] = b[n-1]
		b = b[:n-1]
	}
	return b, nil
}
