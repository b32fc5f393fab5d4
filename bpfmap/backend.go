// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// System makes and finds maps. The default is the kernel of this machine; bpfmaptest has one in memory.
//
// Errors are those of bpf(2) and of the file system, so that errors.Is finds the errno.
type System interface {
	// Create makes a map. Key, value and inner sizes of spec are right for its types, or it is refused with EINVAL.
	Create(spec *ebpf.MapSpec) (Backend, error)
	// OpenPin opens a pinned map. ENOENT when there is none.
	OpenPin(path string, readOnly bool) (Backend, error)
	// OpenID opens a map by its id, which needs CAP_SYS_ADMIN.
	OpenID(id uint32) (Backend, error)
	// Pin gives the map one more name. EEXIST when the name is taken.
	Pin(m Backend, path string) error
	// Rename moves a pin over another one in one step: whoever opens to at any time finds the old or the new map.
	Rename(from, to string) error
	// Remove takes a pin away. ENOENT when there is none.
	Remove(path string) error
	// Pins lists what is pinned below a directory, in lexical order.
	Pins(dir string) ([]Pinned, error)
	// Types reads the BTF types of a map's key and value, nil when it has none. Needs CAP_SYS_ADMIN.
	Types(m Backend) (key, value btf.Type, err error)
	// Users lists the programs that are known to use the map. Complete is false when this process may not look at
	// every program, which needs CAP_SYS_ADMIN.
	Users(id uint32) (programs []uint32, complete bool, err error)
	// CPUs is the number of possible CPUs, which is how many values a per-CPU map has for each key.
	CPUs() (int, error)
	// Ring reads a ring buffer.
	Ring(m Backend) (RingSource, error)
}

// Pinned is an object in a bpf file system.
type Pinned struct {
	Path string // where it is pinned
	Kind string // "map", "program" or "link"
	ID   uint32 // of the object, 0 where it could not be read
	Name string // as the kernel knows it
}

// Backend is one open map: what bpf(2) does with it, in bytes. Keys are KeySize bytes long. A value is ValueSize bytes
// long; in a per-CPU map it is ValueSize rounded up to 8, once for each possible CPU. A map of maps takes the file
// descriptor of a map and gives back its id, both 4 bytes.
//
// Batches hold n keys and n values one after the other. The returned count is exact: elements before it were handled,
// the one at it was not, and the error is about that one. (bpf(2) itself leaves the count at n when it refuses a batch
// as a whole.)
type Backend interface {
	// Info describes the map. It costs one call.
	Info() (Info, error)
	// FD is the file descriptor, for a map of maps to take.
	FD() int
	// Lookup reads one value: ENOENT when the key is missing.
	Lookup(key, value []byte) error
	// LookupDelete reads and deletes in one step.
	LookupDelete(key, value []byte) error
	// Update writes one value. Flags: 0, ebpf.UpdateNoExist (EEXIST), ebpf.UpdateExist (ENOENT).
	Update(key, value []byte, flags ebpf.MapUpdateFlags) error
	// Delete deletes one key: ENOENT when it is missing.
	Delete(key []byte) error
	// NextKey gives the key after key, the first one when key is nil or not there. ENOENT after the last.
	NextKey(key, next []byte) error
	// LookupBatch reads up to n elements. In is the cursor the last call left in out, nil to begin; both have
	// max(4, KeySize) bytes. ENOENT says that the end is reached, together with the last elements; ENOSPC that n is
	// too small for the next bucket of a hash table, which leaves the cursor as it was.
	LookupBatch(in, out, keys, values []byte, n int) (int, error)
	// LookupDeleteBatch is LookupBatch that deletes what it reads.
	LookupDeleteBatch(in, out, keys, values []byte, n int) (int, error)
	// UpdateBatch writes n elements and stops at the first that fails.
	UpdateBatch(keys, values []byte, n int) (int, error)
	// DeleteBatch deletes n keys and stops at the first that is missing.
	DeleteBatch(keys []byte, n int) (int, error)
	// Freeze makes the map read-only for system calls. EBUSY or EPERM when it is already.
	Freeze() error
	// Close gives the file descriptor back.
	Close() error
}

// Info describes a map as the kernel keeps it.
type Info struct {
	ID                      uint32       // unique until reboot, in practice
	Name                    string       // at most 15 bytes
	Type                    ebpf.MapType // cannot change
	KeySize, ValueSize      uint32       // in bytes
	MaxEntries              uint32       // may be more than was asked for: some types round up
	Flags                   uint32       // BPF_F_…, as the kernel keeps them
	BTF, KeyType, ValueType uint32       // ids of the BTF object and of the types in it, 0 without
	Frozen                  bool         // refuses writes by system calls
	ReadOnly                bool         // this handle, or all of user space, may not write
}

// RingSource yields the records of a ring buffer.
type RingSource interface {
	// Read copies the next record into buf, which it grows, and blocks until there is one. os.ErrClosed after Close.
	Read(buf []byte) ([]byte, error)
	// Available is how many bytes wait to be read.
	Available() int
	// SetDeadline ends a blocked Read then, with os.ErrDeadlineExceeded. The zero time is no deadline.
	SetDeadline(t time.Time)
	// Close ends a blocked Read.
	Close() error
}
