// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode"
)

// span is a run of bytes.
type span struct{ from, to int }

// leaf is a field that has no fields: a number, or an array of numbers.
type leaf struct {
	path   string // Go path, "" for a type that is a number itself
	name   string // path as the kernel side spells it: lower case, no underscores, or the btf tag
	from   int
	size   int
	signed bool
	float  bool
	array  bool // an array, a union, a bit field
	elem   int  // size of the numbers of an array, 0 where they are not known: copied as bytes then
}

// layout is what the bytes of a Go type mean.
type layout struct {
	typ    reflect.Type
	size   int
	leaves []leaf
	pad    []span // bytes no field has: holes and fields named _
	blank  []span // fields named _ alone
}

// layoutOf walks a type. Everything without a fixed layout is refused by name, all of it at once.
func layoutOf(side string, t reflect.Type) (layout, error) {
	l := layout{typ: t, size: int(t.Size())}
	covered := make([]bool, t.Size())
	var errs []error
	var walk func(t reflect.Type, path, name string, at int)
	refuse := func(path string, t reflect.Type, why string) {
		errs = append(errs, &LayoutError{Side: side, Field: path, Want: t.String(), Got: why})
	}
	cover := func(path, name string, t reflect.Type, at int, signed, array bool) {
		for i := range int(t.Size()) {
			covered[at+i] = true
		}
		f := leaf{path: path, name: name, from: at, size: int(t.Size()), signed: signed, array: array}
		if array {
			for t.Kind() == reflect.Array {
				t = t.Elem()
			}
			f.elem = int(t.Size())
			f.signed = t.Kind() >= reflect.Int8 && t.Kind() <= reflect.Int64
		}
		f.float = t.Kind() == reflect.Float32 || t.Kind() == reflect.Float64
		l.leaves = append(l.leaves, f)
	}
	walk = func(t reflect.Type, path, name string, at int) {
		switch t.Kind() {
		case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
			cover(path, name, t, at, true, false)
		case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
			cover(path, name, t, at, false, false)
		case reflect.Array:
			if number(t.Elem()) {
				cover(path, name, t, at, false, true)
				return
			}
			for i := range t.Len() {
				walk(t.Elem(), fmt.Sprintf("%s[%d]", path, i), fmt.Sprintf("%s[%d]", name, i), at+i*int(t.Elem().Size()))
			}
		case reflect.Struct:
			for i := range t.NumField() {
				f := t.Field(i)
				if f.Name != "_" {
					walk(f.Type, join(path, f.Name), join(name, kernelName(f)), at+int(f.Offset))
				} else if f.Type.Size() == 0 {
					continue // structs.HostLayout in generated types: a mark, and no bytes
				} else if !number(f.Type) {
					refuse(join(path, "_"), f.Type, "where only a number or an array of numbers may be left blank")
				} else {
					l.blank = append(l.blank, span{at + int(f.Offset), at + int(f.Offset) + int(f.Type.Size())})
				}
			}
		case reflect.Int, reflect.Uint, reflect.Uintptr:
			refuse(path, t, "whose size depends on the machine: give it one, as in uint32 or uint64")
		case reflect.Bool:
			refuse(path, t, "which may not hold the other 254 values of a byte: use uint8")
		default:
			refuse(path, t, "which has no fixed layout")
		}
	}
	walk(t, "", "", 0)
	if len(errs) == 0 && l.size == 0 {
		refuse("", t, "which has no bytes")
	}
	for i := 0; i < len(covered); i++ {
		if covered[i] {
			continue
		}
		from := i
		for i < len(covered) && !covered[i] {
			i++
		}
		l.pad = append(l.pad, span{from, i})
	}
	return l, errors.Join(errs...)
}

func number(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Uint16, reflect.Uint32,
		reflect.Uint64, reflect.Float32, reflect.Float64:
		return true
	case reflect.Array:
		return number(t.Elem())
	}
	return false
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// kernelName is how a field is called on the other side, in the form that names are compared in: SrcPort is srcport, as
// src_port is.
func kernelName(f reflect.StructField) string {
	if tag := f.Tag.Get("btf"); tag != "" {
		return plain(tag)
	}
	return plain(f.Name)
}

func plain(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

// snake is the name a field gets in BTF of ours: SrcPort becomes src_port, HTTPCode http_code.
func snake(f reflect.StructField) string {
	if tag := f.Tag.Get("btf"); tag != "" {
		return tag
	}
	runes := []rune(f.Name)
	var out strings.Builder
	for i, r := range runes {
		starts := unicode.IsUpper(r) && i > 0 && runes[i-1] != '_' &&
			(!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]))
		if starts {
			out.WriteByte('_')
		}
		out.WriteRune(unicode.ToLower(r))
	}
	return out.String()
}

// find returns the bytes of a field by its Go path, which may name a struct.
func (l layout) find(path string) (out []span) {
	for _, f := range l.leaves {
		if f.path == path || strings.HasPrefix(f.path, path+".") || strings.HasPrefix(f.path, path+"[") {
			out = append(out, span{f.from, f.from + f.size})
		}
	}
	return out
}
