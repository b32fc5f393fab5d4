// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync

import (
	"encoding/json"
	"math"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sameData reports whether a Go value has the wire form that was decoded into data: nil, bool, int64, float64, string,
// []any or map[string]any, as in an unstructured object. Like same it is compiled once per type, and costs plain data no
// allocation.
type sameData func(v reflect.Value, data any) bool

var specialData = map[reflect.Type]sameData{
	reflect.TypeFor[metav1.Time](): func(v reflect.Value, data any) bool {
		t := v.Addr().Interface().(*metav1.Time)
		s, ok := data.(string)
		if !ok {
			return data == nil && t.IsZero()
		}
		at, err := time.Parse(time.RFC3339, s)
		return err == nil && !t.IsZero() && at.Unix() == t.Unix()
	},
	reflect.TypeFor[resource.Quantity](): func(v reflect.Value, data any) bool {
		q := v.Addr().Interface().(*resource.Quantity)
		switch d := data.(type) {
		case string:
			p, err := resource.ParseQuantity(d)
			return err == nil && p.Cmp(*q) == 0
		case int64:
			return q.CmpInt64(d) == 0
		}
		return false
	},
	reflect.TypeFor[map[string]string](): func(v reflect.Value, data any) bool {
		m := *v.Addr().Interface().(*map[string]string)
		d, ok := data.(map[string]any)
		if !ok {
			return data == nil && m == nil
		}
		if len(d) != len(m) {
			return false
		}
		for k, x := range m {
			if s, ok := d[k].(string); !ok || s != x {
				return false
			}
		}
		return true
	},
}

type dataCompiler struct{ done map[reflect.Type]*sameData }

func (c *dataCompiler) compile(t reflect.Type) sameData {
	if s, ok := c.done[t]; ok { // a type that holds itself: the entry is filled in by then
		return func(v reflect.Value, data any) bool { return (*s)(v, data) }
	}
	s := new(sameData)
	c.done[t] = s
	*s = c.kind(t)
	return *s
}

// field compares what a field's tag makes of its value.
func (c *dataCompiler) field(f field) sameData {
	if !f.quoted {
		return c.compile(f.typ)
	}
	return func(v reflect.Value, data any) bool {
		s, ok := data.(string)
		if !ok {
			return false
		}
		raw, err := marshal(v)
		return err == nil && string(raw) == s
	}
}

func (c *dataCompiler) kind(t reflect.Type) sameData {
	if s, ok := specialData[t]; ok {
		return s
	}
	if t.Kind() == reflect.Pointer {
		inner := c.compile(t.Elem())
		return func(v reflect.Value, data any) bool {
			if v.IsNil() {
				return data == nil
			}
			return inner(v.Elem(), data)
		}
	}
	if marshalsItself(t) {
		return sameMarshalled
	}
	switch t.Kind() {
	case reflect.Bool:
		return func(v reflect.Value, data any) bool { b, ok := data.(bool); return ok && b == v.Bool() }
	case reflect.String:
		return func(v reflect.Value, data any) bool { s, ok := data.(string); return ok && s == v.String() }
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return func(v reflect.Value, data any) bool {
			switch n := data.(type) {
			case int64:
				return n == v.Int()
			case float64:
				return n == math.Trunc(n) && n == float64(v.Int())
			}
			return false
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return func(v reflect.Value, data any) bool {
			switch n := data.(type) {
			case int64:
				return n >= 0 && uint64(n) == v.Uint()
			case float64:
				return n == math.Trunc(n) && n == float64(v.Uint())
			}
			return false
		}
	case reflect.Float32, reflect.Float64:
		return func(v reflect.Value, data any) bool {
			switch n := data.(type) {
			case int64:
				return float64(n) == v.Float()
			case float64:
				return n == v.Float() || float32(n) == float32(v.Float()) && v.Kind() == reflect.Float32
			}
			return false
		}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 { // base64 on the wire
			return sameMarshalled
		}
		return c.list(t)
	case reflect.Array:
		return c.list(t)
	case reflect.Struct:
		return c.structure(t)
	}
	return sameMarshalled
}

func (c *dataCompiler) list(t reflect.Type) sameData {
	inner := c.compile(t.Elem())
	return func(v reflect.Value, data any) bool {
		list, ok := data.([]any)
		if !ok {
			return data == nil && v.Kind() == reflect.Slice && v.IsNil()
		}
		if len(list) != v.Len() {
			return false
		}
		for i, item := range list {
			if !inner(v.Index(i), item) {
				return false
			}
		}
		return true
	}
}

// structure compares field by field. Data with a key the type does not have differs; null is absent.
func (c *dataCompiler) structure(t reflect.Type) sameData {
	type part struct {
		field
		same sameData
	}
	var parts []part
	for _, f := range jsonFields(t) {
		parts = append(parts, part{f, c.field(f)})
	}
	return func(v reflect.Value, data any) bool {
		m, ok := data.(map[string]any)
		if !ok {
			return false
		}
		seen := 0
		for i := range parts {
			p := &parts[i]
			item, live := m[p.name]
			if live {
				seen++
			}
			x := p.in(v)
			if p.absent(x) || p.omitEmpty && empty(x) {
				if item != nil {
					return false
				}
				continue
			}
			if !live || !p.same(x, item) {
				return false
			}
		}
		return seen == len(m)
	}
}

// empty is encoding/json's omitempty for what absent does not cover: structs never are.
func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Struct:
		return false
	case reflect.Array:
		return v.Len() == 0
	}
	return v.IsZero()
}

func sameMarshalled(v reflect.Value, data any) bool {
	raw, err := marshal(v)
	if err != nil {
		return false
	}
	other, err := json.Marshal(data)
	return err == nil && sameDocument(raw, other)
}
