// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"hash/maphash"
	"math"
	"math/bits"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// quick hashes a declared object as it lies in memory, a few times cheaper than encoding it. Equal hashes of one set
// mean an equal declaration; unequal ones mean nothing, because one document can be spelled by different Go values
// (nil and empty maps, quantities with and without their cached text). The hash is never 0 and holds within a process.
func (s *Set) quick(o Object, owner identity) uint64 {
	h := quickHash{seed: s.seed}
	sum := mix(h.text(string(owner.uid)), h.text(owner.ref.Namespace))
	sum = mix(sum, h.text(owner.ref.Name))
	if u, ok := o.(runtime.Unstructured); ok {
		sum = mix(sum, h.tree(u.UnstructuredContent()))
	} else {
		v := reflect.ValueOf(o)
		sum = mix(sum, h.text(v.Type().String()))
		sum = mix(sum, h.value(v))
	}
	return sum | 1
}

type quickHash struct{ seed maphash.Seed }

func (h quickHash) text(s string) uint64 { return maphash.String(h.seed, s) }

// mix is order-dependent. The constants are the fractional parts of the golden ratio and of the square root of three.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0x9e3779b97f4a7c15, b^0xbb67ae8584caa73b)
	return hi ^ lo
}

var timeType = reflect.TypeFor[time.Time]()

func (h quickHash) value(v reflect.Value) uint64 {
	switch v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			return 3
		}
		return 2
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return mix(5, uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return mix(7, v.Uint())
	case reflect.Float32, reflect.Float64:
		return mix(11, math.Float64bits(v.Float()))
	case reflect.String:
		return h.text(v.String())
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return 13
		}
		return mix(17, h.value(v.Elem()))
	case reflect.Slice, reflect.Array:
		return h.list(v)
	case reflect.Map:
		return h.dict(v)
	case reflect.Struct:
		sum := uint64(19)
		n := v.NumField()
		if v.Type() == timeType {
			n = 2 // the location is a pointer into tables of the time zone
		}
		for i := range n {
			sum = mix(sum, h.value(v.Field(i)))
		}
		return sum
	}
	return 23 // functions and channels, which API types do not have
}

func (h quickHash) list(v reflect.Value) uint64 {
	sum := mix(29, uint64(v.Len()))
	if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
		return mix(sum, maphash.Bytes(h.seed, v.Bytes()))
	}
	for i := range v.Len() {
		sum = mix(sum, h.value(v.Index(i)))
	}
	return sum
}

// dict adds entries up, so that the order of iteration does not show.
func (h quickHash) dict(v reflect.Value) uint64 {
	sum := mix(31, uint64(v.Len()))
	if v.Len() == 0 {
		return sum
	}
	if v.CanInterface() {
		if m, ok := v.Interface().(map[string]string); ok {
			for k, e := range m {
				sum += mix(h.text(k), h.text(e))
			}
			return sum
		}
	}
	for it := v.MapRange(); it.Next(); {
		sum += mix(h.value(it.Key()), h.value(it.Value()))
	}
	return sum
}

// tree is value for JSON trees, without reflection.
func (h quickHash) tree(v any) uint64 {
	switch t := v.(type) {
	case nil:
		return 13
	case string:
		return h.text(t)
	case bool:
		if t {
			return 3
		}
		return 2
	case int64:
		return mix(5, uint64(t))
	case float64:
		return mix(11, math.Float64bits(t))
	case map[string]any:
		sum := mix(31, uint64(len(t)))
		for k, e := range t {
			sum += mix(h.text(k), h.tree(e))
		}
		return sum
	case []any:
		sum := mix(29, uint64(len(t)))
		for _, e := range t {
			sum = mix(sum, h.tree(e))
		}
		return sum
	}
	return h.value(reflect.ValueOf(v))
}
