// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmaptest

import (
	"bytes"
	"hash/maphash"
	"os"
	"slices"
	"syscall"

	"github.com/cilium/ebpf"
)

// Flags of include/uapi/linux/bpf.h.
const (
	flagNoPrealloc  = 1 << 0
	flagNoCommonLRU = 1 << 1
	flagReadOnly    = 1 << 3
	flagWriteOnly   = 1 << 4
)

// errNotSupp is ENOTSUPP, which the kernel lets out of bpf(2).
const errNotSupp = syscall.Errno(524)

// object is a map.
type object struct {
	id     uint32
	spec   ebpf.MapSpec
	refs   int
	frozen bool
	cpus   int
	seed   maphash.Seed

	// A hash table is a list of buckets, in which keys have an order. The other types have one list: arrays by index,
	// tries from the leaves to the root.
	buckets [][]*element
	where   map[string]*element // hash tables
	age     uint64              // of an LRU: counts uses
	inner   map[uint32]*object  // maps of maps: those in slots, by id, for their references
	uses    map[uint32]int
	ring    *ringBuffer
}

type element struct {
	key, value []byte
	used       uint64
}

func (m *object) perCPU() bool {
	return m.spec.Type == ebpf.PerCPUHash || m.spec.Type == ebpf.LRUCPUHash || m.spec.Type == ebpf.PerCPUArray
}

func (m *object) hash() bool {
	switch m.spec.Type {
	case ebpf.Hash, ebpf.LRUHash, ebpf.PerCPUHash, ebpf.LRUCPUHash, ebpf.HashOfMaps:
		return true
	}
	return false
}

func (m *object) lru() bool { return m.spec.Type == ebpf.LRUHash || m.spec.Type == ebpf.LRUCPUHash }

func (m *object) array() bool {
	return m.spec.Type == ebpf.Array || m.spec.Type == ebpf.PerCPUArray || m.spec.Type == ebpf.ArrayOfMaps
}

func (m *object) ofMaps() bool {
	return m.spec.Type == ebpf.ArrayOfMaps || m.spec.Type == ebpf.HashOfMaps
}

func stride(size int) int { return (size + 7) &^ 7 }

// size is how long a value is in a call.
func (m *object) size() int {
	if m.perCPU() {
		return m.cpus * stride(int(m.spec.ValueSize))
	}
	return int(m.spec.ValueSize)
}

func (k *Kernel) make(spec *ebpf.MapSpec) (*object, error) {
	m := &object{spec: *spec, cpus: k.cpus, seed: maphash.MakeSeed(), where: map[string]*element{}, inner: map[uint32]*object{}, uses: map[uint32]int{}}
	s := &m.spec
	s.Flags &^= flagReadOnly | flagWriteOnly // of the descriptor
	if s.MaxEntries == 0 || len(s.Name) > 15 {
		return nil, syscall.EINVAL
	}
	if m.ofMaps() {
		if s.InnerMap == nil {
			return nil, syscall.EBADF
		}
		s.ValueSize = 4
	}
	switch {
	case s.Type == ebpf.RingBuf:
		page := uint32(os.Getpagesize())
		if s.KeySize|s.ValueSize != 0 || s.MaxEntries&(s.MaxEntries-1) != 0 || s.MaxEntries%page != 0 {
			return nil, syscall.EINVAL
		}
		m.ring = newRing(int(s.MaxEntries))
		return m, nil
	case s.KeySize == 0 || s.ValueSize == 0:
		return nil, syscall.EINVAL
	case m.array():
		if s.KeySize != 4 {
			return nil, syscall.EINVAL
		}
		m.buckets = make([][]*element, 1)
		for i := range s.MaxEntries {
			e := &element{key: make([]byte, 4), value: make([]byte, m.size())}
			putU32(e.key, i)
			m.buckets[0] = append(m.buckets[0], e)
		}
	case s.Type == ebpf.LPMTrie:
		if s.Flags&flagNoPrealloc == 0 || s.KeySize < 5 || s.KeySize > 260 {
			return nil, syscall.EINVAL
		}
		m.buckets = make([][]*element, 1)
	case m.hash():
		if m.lru() && s.Flags&flagNoCommonLRU != 0 {
			c := uint32(k.cpus)
			s.MaxEntries = (s.MaxEntries + c - 1) / c * c
		}
		n := 1
		for n < int(s.MaxEntries) {
			n *= 2
		}
		m.buckets = make([][]*element, n)
	default:
		return nil, syscall.EINVAL
	}
	return m, nil
}

func (m *object) bucket(key []byte) int {
	return int(maphash.Bytes(m.seed, key) & uint64(len(m.buckets)-1))
}

// find returns the element of this very key.
func (m *object) find(key []byte) *element {
	switch {
	case m.array():
		if i := u32(key); i < m.spec.MaxEntries {
			return m.buckets[0][i]
		}
		return nil
	case m.spec.Type == ebpf.LPMTrie:
		for _, e := range m.buckets[0] {
			if samePrefix(e.key, key) {
				return e
			}
		}
		return nil
	}
	return m.where[string(key)]
}

// insert puts a new element in its place.
func (m *object) insert(e *element) {
	i := 0
	if m.hash() {
		i = m.bucket(e.key)
		m.where[string(e.key)] = e
		m.buckets[i] = slices.Insert(m.buckets[i], 0, e)
		return
	}
	at, _ := slices.BinarySearchFunc(m.buckets[0], e, func(a, b *element) int { return trieOrder(a.key, b.key) })
	m.buckets[0] = slices.Insert(m.buckets[0], at, e)
}

func (m *object) remove(e *element) {
	i := 0
	if m.hash() {
		i = m.bucket(e.key)
		delete(m.where, string(e.key))
	}
	m.buckets[i] = slices.DeleteFunc(m.buckets[i], func(x *element) bool { return x == e })
}

func (m *object) len() int {
	if m.hash() {
		return len(m.where)
	}
	return len(m.buckets[0])
}

// evict makes room in an LRU. The kernel does so before it is full, because every CPU keeps some free elements, and
// takes several at once.
func (m *object) evict() {
	batch := min(128, max(1, int(m.spec.MaxEntries)/8))
	room := int(m.spec.MaxEntries)
	if room > 1024 {
		room -= batch
	}
	if len(m.where) < room {
		return
	}
	all := make([]*element, 0, len(m.where))
	for _, e := range m.where {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *element) int { return int(int64(a.used) - int64(b.used)) })
	for _, e := range all[:min(batch, len(all))] {
		m.remove(e)
	}
}

func (m *object) touch(e *element) {
	m.age++
	e.used = m.age
}

// next is the element after key; the first when key is nil or not there; nil after the last.
func (m *object) next(key []byte) *element {
	var e *element
	if key != nil {
		e = m.find(key)
	}
	i, at := 0, 0
	if e != nil {
		if m.hash() {
			i = m.bucket(e.key)
		}
		at = slices.Index(m.buckets[i], e) + 1
	}
	for ; i < len(m.buckets); i, at = i+1, 0 {
		if at < len(m.buckets[i]) {
			return m.buckets[i][at]
		}
	}
	return nil
}

// samePrefix compares two keys of a trie: host bits do not count.
func samePrefix(a, b []byte) bool { return u32(a) == u32(b) && common(a, b) >= int(u32(a)) }

// common is how many leading bits the addresses of two keys share.
func common(a, b []byte) int {
	n := 0
	for i := range a[4:] {
		x := a[4+i] ^ b[4+i]
		if x == 0 {
			n += 8
			continue
		}
		for x&0x80 == 0 {
			n, x = n+1, x<<1
		}
		return n
	}
	return n
}

// trieOrder is the order in which the kernel walks a trie: children before their parent, 0 before 1.
func trieOrder(a, b []byte) int {
	la, lb := int(u32(a)), int(u32(b))
	if n := common(a, b); n < min(la, lb) {
		return bytes.Compare(a[4:], b[4:])
	}
	if la != lb {
		if la < lb { // a is the parent
			return 1
		}
		return -1
	}
	return 0
}
