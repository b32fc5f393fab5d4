// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// btfOf builds the BTF type of a Go type that layoutOf accepted, so that bpftool, and the next start of this program,
// can see what the bytes mean. Fields named _ are left out, which leaves holes.
func btfOf(t reflect.Type) btf.Type {
	switch t.Kind() {
	case reflect.Array:
		return &btf.Array{Index: integer("__u32", 4, btf.Unsigned), Type: btfOf(t.Elem()), Nelems: uint32(t.Len())}
	case reflect.Struct:
		name := t.Name()
		if strings.Contains(name, "[") { // of a generic type, which is no C name
			name = ""
		}
		s := &btf.Struct{Name: name, Size: uint32(t.Size())}
		for i := range t.NumField() {
			if f := t.Field(i); f.Name != "_" {
				s.Members = append(s.Members, btf.Member{Name: snake(f), Type: btfOf(f.Type), Offset: btf.Bits(8 * f.Offset)})
			}
		}
		return s
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return integer(fmt.Sprintf("__s%d", t.Bits()), uint32(t.Size()), btf.Signed)
	case reflect.Float32, reflect.Float64:
		return &btf.Float{Name: map[int]string{32: "float", 64: "double"}[t.Bits()], Size: uint32(t.Size())}
	}
	return integer(fmt.Sprintf("__u%d", t.Bits()), uint32(t.Size()), btf.Unsigned)
}

func integer(name string, size uint32, enc btf.IntEncoding) btf.Type {
	return &btf.Int{Name: name, Size: size, Encoding: enc}
}

// described is what a map says its bytes mean: from BTF, or from our sidecar.
type described struct {
	size   int
	leaves []leaf
}

// describe flattens a BTF type the way layoutOf flattens a Go type. Unions and bit fields are bytes; the members of
// an anonymous struct belong to the struct around it.
func describe(t btf.Type) (described, error) {
	size, err := btf.Sizeof(t)
	if err != nil {
		return described{}, fmt.Errorf("read BTF: %w", err)
	}
	d := described{size: size}
	add := func(name string, at, size int, array bool, number btf.Type) {
		f := leaf{path: name, name: plain(name), from: at, size: size, array: array}
		for array && number != nil {
			of, ok := btf.UnderlyingType(number).(*btf.Array)
			if !ok {
				break
			}
			number = of.Type
		}
		if number != nil {
			number = btf.UnderlyingType(number)
			if array {
				f.elem, _ = btf.Sizeof(number)
			}
		}
		switch n := number.(type) {
		case *btf.Int:
			f.signed = n.Encoding&btf.Signed != 0
		case *btf.Enum:
			f.signed = n.Signed
		case *btf.Float:
			f.float = true
		}
		d.leaves = append(d.leaves, f)
	}
	var walk func(t btf.Type, name string, at, depth int)
	walk = func(t btf.Type, name string, at, depth int) {
		size, err := btf.Sizeof(t)
		if err != nil || depth > 32 {
			return
		}
		switch t := btf.UnderlyingType(t).(type) {
		case *btf.Struct:
			for _, m := range t.Members {
				path := name
				if m.Name != "" {
					path = join(name, m.Name)
				}
				if m.BitfieldSize != 0 {
					from := int(m.Offset) / 8
					add(path, at+from, (int(m.Offset)+int(m.BitfieldSize)+7)/8-from, true, nil)
					continue
				}
				walk(m.Type, path, at+int(m.Offset)/8, depth+1)
			}
		case *btf.Datasec: // the variables of a program
			for _, v := range t.Vars {
				if of, ok := v.Type.(*btf.Var); ok {
					walk(of.Type, join(name, of.Name), at+int(v.Offset), depth+1)
				}
			}
		case *btf.Array:
			elem, err := btf.Sizeof(t.Type)
			if err != nil {
				return
			}
			if scalar(t.Type) {
				add(name, at, size, true, t)
				return
			}
			for i := range int(t.Nelems) {
				walk(t.Type, fmt.Sprintf("%s[%d]", name, i), at+i*elem, depth+1)
			}
		case *btf.Union:
			add(name, at, size, true, nil)
		default:
			add(name, at, size, false, t)
		}
	}
	walk(t, "", 0, 0)
	return d, nil
}

func scalar(t btf.Type) bool {
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Struct, *btf.Union:
		return false
	case *btf.Array:
		return scalar(t.Type)
	}
	return true
}

// compare lists every field of a Go type that the map has elsewhere, in another size or not at all, and every field of
// the map that Go does not have. Names are compared without case and underscores. A field of one side may cover several
// of the other side if they are its parts, as [16]byte covers a struct in6_addr.
func (l layout) compare(side string, d described) (errs []error) {
	if l.size != d.size {
		errs = append(errs, &LayoutError{Side: side, Want: fmt.Sprintf("%d bytes (%s)", l.size, l.typ), Got: fmt.Sprintf("the map has %d bytes", d.size)})
	}
	for _, g := range l.leaves {
		fits := true
		var there []string
		for _, k := range d.leaves {
			if k.from >= g.from+g.size || g.from >= k.from+k.size {
				continue
			}
			there = append(there, fmt.Sprintf("%s (%d bytes at %d)", orType(k.path), k.size, k.from))
			if k.name == g.name {
				fits = fits && k.from == g.from && k.size == g.size
			} else {
				fits = fits && (within(k, g) && part(k.name, g.name) || within(g, k) && part(g.name, k.name))
			}
		}
		if fits && len(there) > 0 {
			continue
		}
		got := "the map has nothing there"
		if len(there) > 0 {
			got = "the map has " + brief(3, there)
		}
		for _, k := range d.leaves {
			if k.name == g.name {
				got += fmt.Sprintf(", and %s at %d with %d bytes", orType(k.path), k.from, k.size)
			}
		}
		errs = append(errs, &LayoutError{Side: side, Field: g.path, Want: fmt.Sprintf("%d bytes at %d", g.size, g.from), Got: got})
	}
	for _, k := range d.leaves {
		if !l.knows(k) && k.from+k.size <= l.size && !strings.Contains(k.name, "pad") {
			errs = append(errs, &LayoutError{Side: side, Want: fmt.Sprintf("no field at %d", k.from), Got: fmt.Sprintf("the map has %s (%d bytes)", k.path, k.size)})
		}
	}
	return errs
}

// knows says whether Go has something, at least a blank field, where the map has a field.
func (l layout) knows(k leaf) bool {
	for _, g := range l.leaves {
		if k.from < g.from+g.size && g.from < k.from+k.size {
			return true
		}
	}
	for _, b := range l.blank {
		if k.from >= b.from && k.from+k.size <= b.to {
			return true
		}
	}
	return false
}

func within(inner, outer leaf) bool {
	return inner.from >= outer.from && inner.from+inner.size <= outer.from+outer.size
}

func part(name, of string) bool {
	return of == "" || name == of || strings.HasPrefix(name, of+".") || strings.HasPrefix(name, of+"[")
}

func orType(path string) string {
	if path == "" {
		return "a number"
	}
	return path
}

func against(l layout, side string, t btf.Type) []error {
	d, err := describe(t)
	if err != nil {
		return []error{err}
	}
	return l.compare(side, d)
}
