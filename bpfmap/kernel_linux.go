// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// kernel is a map of this machine. The cilium handle owns the descriptor; the calls go straight to bpf(2), which costs
// nothing on top of the system call, has no type to marshal and keeps the count that the kernel left.
type kernel struct {
	m        *ebpf.Map
	fd       atomic.Uint32 // closed once it is no descriptor: the number may be somebody else's by then
	readOnly bool
	mu       sync.Mutex // around what uses the cilium handle, which is not safe beside its Close
}

func newKernel(m *ebpf.Map, readOnly bool) *kernel {
	k := &kernel{m: m, readOnly: readOnly}
	k.fd.Store(uint32(m.FD()))
	return k
}

// pointer is a pointer in 64 bits whatever the machine has. It stays a pointer for the garbage collector and for stacks
// that move.
type pointer [8 / unsafe.Sizeof(uintptr(0))]unsafe.Pointer

func at(b []byte) (p pointer) {
	i := 0
	if runtime.GOARCH == "mips" { // the one 32-bit big-endian port
		i = len(p) - 1
	}
	p[i] = unsafe.Pointer(unsafe.SliceData(b))
	return p
}

// elemAttr and batchAttr are the parts of union bpf_attr in include/uapi/linux/bpf.h that element and batch commands use.
type elemAttr struct {
	fd    uint32
	_     uint32
	key   pointer
	value pointer // or the next key
	flags uint64
}

type batchAttr struct {
	in, out, keys, values pointer
	count                 uint32
	fd                    uint32
	elemFlags, flags      uint64
}

// bpf is one system call. A few block (a map of maps waits for a grace period), so the scheduler is told.
func bpf(cmd uintptr, attr unsafe.Pointer, size uintptr) error {
	if _, _, errno := unix.Syscall(unix.SYS_BPF, cmd, uintptr(attr), size); errno != 0 {
		return errno
	}
	return nil
}

func (k *kernel) elem(cmd uintptr, key, value []byte, flags uint64) error {
	attr := elemAttr{fd: k.fd.Load(), key: at(key), value: at(value), flags: flags}
	err := bpf(cmd, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	runtime.KeepAlive(k) // or a finalizer closes the descriptor under the call
	return err
}

func (k *kernel) batch(cmd uintptr, in, out, keys, values []byte, n int) (int, error) {
	attr := batchAttr{in: at(in), out: at(out), keys: at(keys), values: at(values), count: uint32(n), fd: k.fd.Load()}
	err := bpf(cmd, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	runtime.KeepAlive(k)
	return int(attr.count), err
}

// write makes the count of a failed write exact: the kernel stores it only once it has begun, and then it is below n.
func write(n, count int, err error) (int, error) {
	if err != nil && count >= n {
		return 0, err
	}
	return count, err
}

func (k *kernel) Lookup(key, value []byte) error {
	return k.elem(unix.BPF_MAP_LOOKUP_ELEM, key, value, 0)
}

func (k *kernel) LookupDelete(key, value []byte) error {
	return k.elem(unix.BPF_MAP_LOOKUP_AND_DELETE_ELEM, key, value, 0)
}

func (k *kernel) Update(key, value []byte, flags ebpf.MapUpdateFlags) error {
	return k.elem(unix.BPF_MAP_UPDATE_ELEM, key, value, uint64(flags))
}

func (k *kernel) Delete(key []byte) error {
	return k.elem(unix.BPF_MAP_DELETE_ELEM, key, nil, 0)
}

func (k *kernel) NextKey(key, next []byte) error {
	return k.elem(unix.BPF_MAP_GET_NEXT_KEY, key, next, 0)
}

func (k *kernel) LookupBatch(in, out, keys, values []byte, n int) (int, error) {
	return read(k.batch(unix.BPF_MAP_LOOKUP_BATCH, in, out, keys, values, n))
}

func (k *kernel) LookupDeleteBatch(in, out, keys, values []byte, n int) (int, error) {
	return read(k.batch(unix.BPF_MAP_LOOKUP_AND_DELETE_BATCH, in, out, keys, values, n))
}

// read makes the count of a failed read exact: the walk sets it to zero first, so it is right except where the call was
// refused as a whole. Only these two errors come with elements.
func read(n int, err error) (int, error) {
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINTR) {
		return 0, err
	}
	return n, err
}

func (k *kernel) UpdateBatch(keys, values []byte, n int) (int, error) {
	count, err := k.batch(unix.BPF_MAP_UPDATE_BATCH, nil, nil, keys, values, n)
	return write(n, count, err)
}

func (k *kernel) DeleteBatch(keys []byte, n int) (int, error) {
	count, err := k.batch(unix.BPF_MAP_DELETE_BATCH, nil, nil, keys, nil, n)
	return write(n, count, err)
}

func (k *kernel) FD() int { return int(int32(k.fd.Load())) }

func (k *kernel) Freeze() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fd.Load() == closed {
		return unix.EBADF
	}
	return k.m.Freeze()
}

func (k *kernel) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fd.Store(closed)
	return k.m.Close()
}

// closed is no descriptor: a call after Close is EBADF, and reaches no other map.
const closed = ^uint32(0)

// mapInfo is struct bpf_map_info as far as it is read here.
type mapInfo struct {
	typ, id, keySize, valueSize, maxEntries, flags uint32
	name                                           [16]byte
	ifindex, vmlinuxValueType                      uint32
	netnsDev, netnsIno                             uint64
	btf, keyType, valueType, vmlinuxID             uint32
	extra                                          uint64
}

func (k *kernel) Info() (Info, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fd.Load() == closed { // the kernel says EBADFD, and only here
		return Info{}, unix.EBADF
	}
	var raw mapInfo
	attr := struct {
		fd, size uint32
		info     pointer
	}{fd: k.fd.Load(), size: uint32(unsafe.Sizeof(raw))}
	attr.info = at(unsafe.Slice((*byte)(unsafe.Pointer(&raw)), unsafe.Sizeof(raw)))
	err := bpf(unix.BPF_OBJ_GET_INFO_BY_FD, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	runtime.KeepAlive(k)
	if err != nil {
		return Info{}, err
	}
	info := Info{
		ID: raw.id, Name: unix.ByteSliceToString(raw.name[:]), Type: ebpf.MapType(raw.typ),
		KeySize: raw.keySize, ValueSize: raw.valueSize, MaxEntries: raw.maxEntries, Flags: raw.flags,
		BTF: raw.btf, KeyType: raw.keyType, ValueType: raw.valueType,
		ReadOnly: k.readOnly || raw.flags&unix.BPF_F_RDONLY != 0,
	}
	if more, err := k.m.Info(); err == nil { // frozen is only in /proc/self/fdinfo, which a sandbox may lack
		info.Frozen = more.Frozen()
	}
	return info, nil
}
