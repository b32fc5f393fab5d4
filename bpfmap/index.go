// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"encoding/binary"
	"hash/maphash"
)

// index remembers, from pass to pass, what is wanted and what the kernel is known to hold. Keys are compared as bytes,
// as the kernel does. It lives in a few flat slices: a pass over entries that are known allocates nothing.
//
// Wanted entries come in the order of the last pass, mostly, and so does what the kernel holds. So the next slot is
// guessed before the hash is computed, in both directions: a pass waits for memory more than for anything else, and a
// guess that does not depend on the slot before lets the processor fetch several at once.
type index struct {
	ks, vs int
	from   int // where the value begins in an entry
	step   int // size of an entry
	seed   maphash.Seed
	table  []uint64 // hash<<32 | slot+1; open addressing, at most half full
	hashes []uint32
	data   []byte // entries: key, value, each on 8 bytes
	state  []slot
	pass   uint32 // number of the current pass

	order, next []uint32 // slots in the order of the last read, and of the one under way
	at          int      // position in order that comes next
	fetched     byte     // of use to nobody, but it keeps the loads of ahead
}

type slot struct {
	wanted uint32 // last pass that wanted it
	seen   uint32 // last pass that read it from the kernel
	place  uint32 // position in the order of the last read
	flags  uint8
}

const (
	held    uint8 = 1 << iota // the kernel had this very value when it was last written or read
	present                   // the kernel had the key then
	fresh                     // another value is wanted than in the pass before
	taken                     // it was held, others undid it, and it was not written again yet
)

const noSlot = ^uint32(0)

func newIndex(ks, vs int) *index {
	return &index{ks: ks, vs: vs, from: stride(ks), step: stride(ks) + stride(vs), seed: maphash.MakeSeed(), table: make([]uint64, 64)}
}

func (x *index) key(s uint32) []byte {
	at := int(s) * x.step
	return x.data[at : at+x.ks]
}

func (x *index) value(s uint32) []byte {
	at := int(s)*x.step + x.from
	return x.data[at : at+x.vs]
}

// is compares a key without a call where it has 8 or 4 bytes, as most have.
func (x *index) is(s uint32, key []byte) bool {
	at := int(s) * x.step
	switch x.ks {
	case 8:
		return binary.NativeEndian.Uint64(x.data[at:]) == binary.NativeEndian.Uint64(key)
	case 4:
		return binary.NativeEndian.Uint32(x.data[at:]) == binary.NativeEndian.Uint32(key)
	}
	return string(x.data[at:at+x.ks]) == string(key)
}

// reading begins a read of the kernel, read ends it.
func (x *index) reading() { x.next, x.at = x.next[:0], 0 }

func (x *index) read() { x.order, x.next = x.next, x.order }

// ahead fetches the entries that n rows will probably need. Loads that do not wait for each other overlap, and those of
// row cannot: each comparison decides what comes next.
func (x *index) ahead(n int) {
	var sum byte
	for _, s := range x.order[min(x.at, len(x.order)):min(x.at+n, len(x.order))] {
		sum += x.data[int(s)*x.step] + x.state[s].flags
	}
	x.fetched = sum
}

// row finds the slot of the next key that is read.
func (x *index) row(key []byte) (s uint32, ok bool) {
	if x.at < len(x.order) {
		if s := x.order[x.at]; x.is(s, key) {
			x.at++
			x.state[s].place = uint32(len(x.next))
			x.next = append(x.next, s)
			return s, true
		}
	}
	s, ok = x.lookup(key, x.hash(key))
	if !ok {
		return s, false // new: what was expected probably comes next
	}
	if place := x.state[s].place; uint64(place) < uint64(len(x.order)) && x.order[place] == s {
		x.at = int(place) + 1 // those in between are gone
	}
	x.state[s].place = uint32(len(x.next))
	x.next = append(x.next, s)
	return s, true
}

func (x *index) hash(key []byte) uint32 { return uint32(maphash.Bytes(x.seed, key)) }

// find returns the slot of a key, trying the guess first.
func (x *index) find(key []byte, guess uint32) (s uint32, ok bool) {
	if uint64(guess) < uint64(len(x.state)) && x.is(guess, key) { // noSlot is -1 where an int has 32 bits
		return guess, true
	}
	return x.lookup(key, x.hash(key))
}

func (x *index) lookup(key []byte, h uint32) (uint32, bool) {
	mask := uint32(len(x.table) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		e := x.table[i]
		if e == 0 {
			return noSlot, false
		}
		if uint32(e>>32) == h {
			if s := uint32(e) - 1; x.is(s, key) {
				return s, true
			}
		}
	}
}

// add makes a slot for a key that has none.
func (x *index) add(key, value []byte) uint32 {
	if 2*(len(x.state)+1) > len(x.table) {
		x.table = make([]uint64, 2*len(x.table))
		for s, h := range x.hashes {
			x.place(h, uint32(s))
		}
	}
	s, h := uint32(len(x.state)), x.hash(key)
	x.data = append(x.data, make([]byte, x.step)...)
	x.hashes = append(x.hashes, h)
	x.state = append(x.state, slot{place: noSlot})
	copy(x.key(s), key)
	copy(x.value(s), value)
	x.place(h, s)
	return s
}

func (x *index) place(h, s uint32) {
	mask := uint32(len(x.table) - 1)
	i := h & mask
	for x.table[i] != 0 {
		i = (i + 1) & mask
	}
	x.table[i] = uint64(h)<<32 | uint64(s+1)
}

// compact drops the slots that are neither wanted nor in the kernel, once they are many.
func (x *index) compact() {
	dead := 0
	for i := range x.state {
		if x.dead(uint32(i)) {
			dead++
		}
	}
	if dead < 1024 || dead < len(x.state)/4 {
		return
	}
	old := *x
	x.table = make([]uint64, len(old.table))
	x.data, x.hashes, x.state, x.order, x.next = nil, nil, nil, nil, nil
	for s := range old.state {
		if old.dead(uint32(s)) {
			continue
		}
		n := x.add(old.key(uint32(s)), old.value(uint32(s)))
		x.state[n] = old.state[s]
		x.state[n].place = noSlot
	}
}

func (x *index) dead(s uint32) bool {
	return x.state[s].wanted != x.pass && x.state[s].flags&present == 0
}

// mask says which bytes of a value are compared. Nil compares all.
type mask []byte

// equal compares a value of the kernel with one of ours. Bytes that are not compared are zero in ours, but the kernel's
// may be anything.
func (m mask) equal(ours, kernel []byte) bool {
	if m == nil {
		return string(ours) == string(kernel)
	}
	i := 0
	for ; i+8 <= len(m); i += 8 {
		if (binary.NativeEndian.Uint64(ours[i:])^binary.NativeEndian.Uint64(kernel[i:]))&binary.NativeEndian.Uint64(m[i:]) != 0 {
			return false
		}
	}
	for ; i < len(m); i++ {
		if (ours[i]^kernel[i])&m[i] != 0 {
			return false
		}
	}
	return true
}

// copy takes the bytes that the mask marks.
func (m mask) copy(dst, src []byte) {
	for i := range m {
		dst[i] = dst[i]&^m[i] | src[i]&m[i]
	}
}
