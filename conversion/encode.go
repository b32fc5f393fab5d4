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
)

// appendValue appends v as JSON, as encoding/json writes it but without escaping for HTML: nothing here is a web page.
func appendValue(b []byte, t *typeInfo, v reflect.Value) ([]byte, error) {
	if t.opaque {
		return appendOpaque(b, t, v)
	}
	switch t.t.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return append(b, "null"...), nil
		}
		return appendValue(b, t.elem, v.Elem())
	case reflect.Struct:
		return appendStruct(b, t, v, nil)
	case reflect.Map:
		return appendMap(b, t, v)
	case reflect.Slice:
		if v.IsNil() {
			return append(b, "null"...), nil
		}
		b = append(b, '[')
		for i := range v.Len() {
			if i > 0 {
				b = append(b, ',')
			}
			var err error
			if b, err = appendValue(b, t.elem, v.Index(i)); err != nil {
				return b, under(err, "["+strconv.Itoa(i)+"]")
			}
		}
		return append(b, ']'), nil
	case reflect.String:
		return appendString(b, v.String()), nil
	case reflect.Bool:
		return strconv.AppendBool(b, v.Bool()), nil
	case reflect.Float32, reflect.Float64:
		return appendFloat(b, v.Float(), t.t.Bits())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return strconv.AppendUint(b, v.Uint(), 10), nil
	}
	return strconv.AppendInt(b, v.Int(), 10), nil // the signed integers: types.of lets no other kind through
}

// appendStruct appends a struct without the members that leave names.
func appendStruct(b []byte, t *typeInfo, v reflect.Value, leave func(string) bool) ([]byte, error) {
	b = append(b, '{')
	first := true
fields:
	for i := range t.fields {
		f := &t.fields[i]
		if leave != nil && leave(f.name) {
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
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(appendString(b, f.name), ':')
		var err error
		if b, err = appendValue(b, f.info, fv); err != nil {
			return b, under(err, f.name)
		}
	}
	return append(b, '}'), nil
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

func appendMap(b []byte, t *typeInfo, v reflect.Value) ([]byte, error) {
	if v.IsNil() {
		return append(b, "null"...), nil
	}
	if strs, ok := v.Interface().(map[string]string); ok {
		return appendStrings(b, strs), nil
	}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(x, y reflect.Value) int {
		switch {
		case x.String() < y.String():
			return -1
		case x.String() > y.String():
			return 1
		}
		return 0
	})
	b = append(b, '{')
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, k.String()), ':')
		var err error
		if b, err = appendValue(b, t.elem, v.MapIndex(k)); err != nil {
			return b, under(err, k.String())
		}
	}
	return append(b, '}'), nil
}

func appendStrings(b []byte, m map[string]string) []byte {
	b = append(b, '{')
	keys := make([]string, 0, 16)
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, k), ':')
		b = appendString(b, m[k])
	}
	return append(b, '}')
}

func appendOpaque(b []byte, t *typeInfo, v reflect.Value) ([]byte, error) {
	var x any
	switch {
	case t.t.Kind() == reflect.Interface && v.IsNil():
		return append(b, "null"...), nil
	case t.t.Kind() == reflect.Interface && t.t.NumMethod() == 0:
		return appendAny(b, v.Interface())
	case v.CanAddr():
		x = v.Addr().Interface()
	default:
		x = v.Interface()
	}
	var raw []byte
	var err error
	if m, ok := x.(json.Marshaler); ok && t.writes && v.Kind() != reflect.Pointer {
		raw, err = m.MarshalJSON() // what it writes is parsed before it is used
	} else {
		raw, err = json.Marshal(x)
	}
	if err != nil {
		return b, fmt.Errorf("write %s: %w", t.t, err)
	}
	return append(b, raw...), nil
}

// appendAny appends a value without a type.
func appendAny(b []byte, x any) ([]byte, error) {
	var err error
	switch x := x.(type) {
	case nil:
		return append(b, "null"...), nil
	case string:
		return appendString(b, x), nil
	case bool:
		return strconv.AppendBool(b, x), nil
	case int64:
		return strconv.AppendInt(b, x, 10), nil
	case float64:
		return appendFloat(b, x, 64)
	case []any:
		if x == nil {
			return append(b, "null"...), nil
		}
		b = append(b, '[')
		for i, e := range x {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendAny(b, e); err != nil {
				return b, under(err, "["+strconv.Itoa(i)+"]")
			}
		}
		return append(b, ']'), nil
	case map[string]any:
		if x == nil {
			return append(b, "null"...), nil
		}
		b = append(b, '{')
		for i, k := range slices.Sorted(maps.Keys(x)) {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendString(b, k), ':')
			if b, err = appendAny(b, x[k]); err != nil {
				return b, under(err, k)
			}
		}
		return append(b, '}'), nil
	}
	raw, err := json.Marshal(x)
	if err != nil {
		return b, fmt.Errorf("write %T: %w", x, err)
	}
	return append(b, raw...), nil
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
