// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync

import (
	"bytes"
	"encoding/json"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// same reports whether two Go values are one value on the wire. It is compiled once per pair of types, so that
// comparing plain data neither looks types up nor allocates. Both values are addressable or reached through pointers.
//
// Absent, nil and empty are one thing for lists and maps, and nil and zero for scalars behind a pointer on one side
// only: a typed reader cannot tell them apart either.
type same func(a, b reflect.Value) bool

// Types whose Go value is finer than their wire form.
var special = map[reflect.Type]same{
	reflect.TypeFor[metav1.Time](): func(a, b reflect.Value) bool {
		return sameSecond(a.Addr().Interface().(*metav1.Time), b.Addr().Interface().(*metav1.Time))
	},
	reflect.TypeFor[metav1.MicroTime](): func(a, b reflect.Value) bool {
		x, y := a.Addr().Interface().(*metav1.MicroTime), b.Addr().Interface().(*metav1.MicroTime)
		return x.IsZero() == y.IsZero() && (x.IsZero() || x.UnixMicro() == y.UnixMicro())
	},
	reflect.TypeFor[time.Time](): func(a, b reflect.Value) bool {
		return a.Addr().Interface().(*time.Time).Equal(*b.Addr().Interface().(*time.Time))
	},
	reflect.TypeFor[resource.Quantity](): func(a, b reflect.Value) bool {
		x, y := a.Addr().Interface().(*resource.Quantity), b.Addr().Interface().(*resource.Quantity)
		return x.Cmp(*y) == 0
	},
}

// sameSecond compares at the grain metav1.Time has on the wire.
func sameSecond(a, b *metav1.Time) bool {
	return a.IsZero() == b.IsZero() && (a.IsZero() || a.Unix() == b.Unix())
}

type typePair struct{ a, b reflect.Type }

type compiler struct{ done map[typePair]*same }

// compile returns how to compare a value of type a with one of type b.
func (c *compiler) compile(a, b reflect.Type) same {
	key := typePair{a, b}
	if s, ok := c.done[key]; ok { // a type that holds itself: the entry is filled in by then
		return func(x, y reflect.Value) bool { return (*s)(x, y) }
	}
	s := new(same)
	c.done[key] = s
	*s = c.pair(a, b)
	return *s
}

func (c *compiler) pair(a, b reflect.Type) same {
	if a == b {
		if s, ok := special[a]; ok {
			return s
		}
	}
	if a.Kind() == reflect.Pointer || b.Kind() == reflect.Pointer {
		return c.pointers(a, b)
	}
	if marshalsItself(a) || marshalsItself(b) || a.Kind() != b.Kind() {
		return sameJSON
	}
	switch a.Kind() {
	case reflect.Bool:
		return func(x, y reflect.Value) bool { return x.Bool() == y.Bool() }
	case reflect.String:
		return func(x, y reflect.Value) bool { return x.String() == y.String() }
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return func(x, y reflect.Value) bool { return x.Int() == y.Int() }
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return func(x, y reflect.Value) bool { return x.Uint() == y.Uint() }
	case reflect.Float32, reflect.Float64:
		return func(x, y reflect.Value) bool { return x.Float() == y.Float() }
	case reflect.Slice, reflect.Array:
		return c.lists(a, b)
	case reflect.Map:
		return c.maps(a, b)
	case reflect.Struct:
		return c.structs(a, b)
	}
	return sameJSON
}

func (c *compiler) pointers(a, b reflect.Type) same {
	ea, eb := a, b
	if a.Kind() == reflect.Pointer {
		ea = a.Elem()
	}
	if b.Kind() == reflect.Pointer {
		eb = b.Elem()
	}
	inner := c.compile(ea, eb)
	both := a.Kind() == b.Kind()
	return func(x, y reflect.Value) bool {
		if x.Kind() == reflect.Pointer {
			if x.IsNil() {
				if both {
					return y.IsNil()
				}
				return y.IsZero()
			}
			x = x.Elem()
		}
		if y.Kind() == reflect.Pointer {
			if y.IsNil() {
				return !both && x.IsZero()
			}
			y = y.Elem()
		}
		return inner(x, y)
	}
}

func (c *compiler) lists(a, b reflect.Type) same {
	inner := c.compile(a.Elem(), b.Elem())
	return func(x, y reflect.Value) bool {
		n := x.Len()
		if n != y.Len() {
			return false
		}
		for i := range n {
			if !inner(x.Index(i), y.Index(i)) {
				return false
			}
		}
		return true
	}
}

func (c *compiler) maps(a, b reflect.Type) same {
	if a.Key() != b.Key() {
		return sameJSON
	}
	if a == b && a == reflect.TypeFor[map[string]string]() {
		return func(x, y reflect.Value) bool {
			m, n := *x.Addr().Interface().(*map[string]string), *y.Addr().Interface().(*map[string]string)
			if len(m) != len(n) {
				return false
			}
			for k, v := range m {
				if w, ok := n[k]; !ok || v != w {
					return false
				}
			}
			return true
		}
	}
	inner := c.compile(a.Elem(), b.Elem())
	// Map items are not addressable and the comparisons of special types need that, so both are copied.
	return func(x, y reflect.Value) bool {
		if x.Len() != y.Len() {
			return false
		}
		l, r := reflect.New(a.Elem()).Elem(), reflect.New(b.Elem()).Elem()
		for it := x.MapRange(); it.Next(); {
			w := y.MapIndex(it.Key())
			if !w.IsValid() {
				return false
			}
			l.Set(it.Value())
			r.Set(w)
			if !inner(l, r) {
				return false
			}
		}
		return true
	}
}

// structs compares by JSON name. Two different types with the same fields are as good as one; a field that only one of
// them has must be absent in it.
func (c *compiler) structs(a, b reflect.Type) same {
	type part struct {
		a, b field
		same same
	}
	fa, fb := jsonFields(a), jsonFields(b)
	if len(fa) != len(fb) {
		return sameJSON
	}
	byName := make(map[string]field, len(fb))
	for _, f := range fb {
		byName[f.name] = f
	}
	parts := make([]part, 0, len(fa))
	for _, f := range fa {
		g, ok := byName[f.name]
		if !ok || f.quoted != g.quoted {
			return sameJSON
		}
		parts = append(parts, part{f, g, c.compile(f.typ, g.typ)})
	}
	return func(x, y reflect.Value) bool {
		for i := range parts {
			p := &parts[i]
			v, w := p.a.in(x), p.b.in(y)
			switch {
			case v.IsValid() && w.IsValid():
				if !p.same(v, w) {
					return false
				}
			case v.IsValid():
				if !says0(v) {
					return false
				}
			case w.IsValid():
				if !says0(w) {
					return false
				}
			}
		}
		return true
	}
}

// says0 reports whether a typed value is what a reader sees of an absent field.
func says0(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	}
	return v.IsZero()
}

// sameJSON is the last resort: both wire forms, compared as data. Values that cannot be marshalled differ; the write
// that follows says why.
func sameJSON(a, b reflect.Value) bool {
	x, err := marshal(a)
	if err != nil {
		return false
	}
	y, err := marshal(b)
	if err != nil {
		return false
	}
	return bytes.Equal(x, y) || sameDocument(x, y)
}

// sameDocument compares two JSON texts as data.
func sameDocument(x, y []byte) bool {
	p, err := decodeNumbers(x)
	if err != nil {
		return false
	}
	q, err := decodeNumbers(y)
	return err == nil && reflect.DeepEqual(p, q)
}

// marshal passes a pointer where it can: some types have MarshalJSON on the pointer only.
func marshal(v reflect.Value) ([]byte, error) {
	if v.CanAddr() {
		return json.Marshal(v.Addr().Interface())
	}
	return json.Marshal(v.Interface())
}

func decodeNumbers(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}
