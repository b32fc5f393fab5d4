// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap_test

import "unsafe"

// soil fills bytes of a value that no field has.
func soil[T any](v *T, from, to int, with byte) {
	b := unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
	for i := from; i < to; i++ {
		b[i] = with
	}
}
