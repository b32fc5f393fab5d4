// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"fmt"
	"reflect"
	"unsafe"
)

// codec moves values of T to and from the bytes of the kernel.
type codec[T any] struct {
	size int // bytes of one element
	// zero are the bytes of T that no field has. The kernel compares and stores them, and Go may leave anything in them:
	// two keys that are == could differ there, so they are cleared on every way down.
	zero []span
	// enc and dec replace the plain copy where T is not laid out as the kernel's bytes.
	enc func(dst []byte, v T) error
	dec func(src []byte) T
	lay layout
	one int          // value size as the kernel counts it, where that is not size: one CPU's
	btf reflect.Type // for BTF, where that is not the type of lay
}

// wire is what goes into the specification of a map.
func (c *codec[T]) wire() wire {
	w := wire{size: c.elem(), typ: c.lay.typ}
	if c.btf != nil {
		w.typ = c.btf
	}
	return w
}

// described is what the bytes mean; a prefix has no fields to compare.
func (c *codec[T]) described() described { return described{c.elem(), c.lay.leaves} }

func (c *codec[T]) elem() int {
	if c.one > 0 {
		return c.one
	}
	return c.size
}

// direct is the codec of a type whose memory is what the kernel has.
func direct[T any](side string) (codec[T], error) {
	l, err := layoutOf(side, reflect.TypeFor[T]())
	if err != nil {
		return codec[T]{}, err
	}
	return codec[T]{size: l.size, zero: l.pad, lay: l}, nil
}

// put and get pass T by value: a pointer handed to enc would cost every call an allocation.
func (c *codec[T]) put(dst []byte, v T) error {
	if c.enc != nil {
		return c.enc(dst, v)
	}
	copy(dst[:c.size], unsafe.Slice((*byte)(unsafe.Pointer(&v)), c.size))
	for _, s := range c.zero {
		clear(dst[s.from:s.to])
	}
	return nil
}

func (c *codec[T]) get(src []byte) (v T) {
	if c.dec != nil {
		return c.dec(src)
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&v)), c.size), src[:c.size])
	return v
}

// fits holds the sizes of a Go type against the map's.
func (c *codec[T]) fits(side string, size int) error {
	if c.size != size {
		return &LayoutError{Side: side, Want: fmt.Sprintf("%d bytes (%s)", c.size, c.lay.typ), Got: fmt.Sprintf("the map has %d bytes", size)}
	}
	return nil
}

// block is a buffer for n elements of a size, aligned for every type.
func block(n int) []byte {
	if n == 0 {
		return nil
	}
	words := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)
}
