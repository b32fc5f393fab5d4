// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// rawMap makes bpf(2) calls with attributes and buffers that are prepared once: the floor for everybody.
type rawMap struct {
	m      *ebpf.Map
	key    []byte
	value  []byte
	elem   elemAttr
	batch  batchAttr
	keys   []byte
	values []byte
	cursor [2][]byte
}

type elemAttr struct {
	fd, _             uint32
	key, value, flags uint64
}

type batchAttr struct {
	in, out, keys, values uint64
	count, fd             uint32
	elemFlags, flags      uint64
}

func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// newRaw wraps a map; the buffers hold chunk elements of a batch. They are on the heap, which does not move.
func newRaw(m *ebpf.Map, valueSize, chunk int) *rawMap {
	r := &rawMap{
		m: m, key: make([]byte, m.KeySize()), value: make([]byte, valueSize),
		keys: make([]byte, chunk*int(m.KeySize())), values: make([]byte, chunk*valueSize),
		cursor: [2][]byte{make([]byte, 8), make([]byte, 8)},
	}
	r.elem = elemAttr{fd: uint32(m.FD()), key: address(r.key), value: address(r.value)}
	r.batch = batchAttr{fd: uint32(m.FD()), keys: address(r.keys), values: address(r.values)}
	return r
}

func (r *rawMap) call(cmd uintptr) error {
	_, _, errno := unix.Syscall(unix.SYS_BPF, cmd, uintptr(unsafe.Pointer(&r.elem)), unsafe.Sizeof(r.elem))
	if errno != 0 {
		return errno
	}
	return nil
}

// writes is a batch command on the first n elements of the buffers.
func (r *rawMap) writes(cmd uintptr, n int) error {
	r.batch.in, r.batch.out, r.batch.count = 0, 0, uint32(n)
	_, _, errno := unix.Syscall(unix.SYS_BPF, cmd, uintptr(unsafe.Pointer(&r.batch)), unsafe.Sizeof(r.batch))
	runtime.KeepAlive(r)
	if errno != 0 {
		return errno
	}
	return nil
}

// dump reads the whole map and returns how many elements there were.
func (r *rawMap) dump(chunk int) (total int, err error) {
	r.batch.in = 0
	for i := 0; ; i ^= 1 {
		r.batch.out, r.batch.count = address(r.cursor[i]), uint32(chunk)
		_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_MAP_LOOKUP_BATCH, uintptr(unsafe.Pointer(&r.batch)), unsafe.Sizeof(r.batch))
		total += int(r.batch.count)
		if errno == unix.ENOENT {
			return total, nil
		}
		if errno != 0 {
			return total, errors.Join(errno)
		}
		r.batch.in = r.batch.out
	}
}
