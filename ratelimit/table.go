// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit

import "math/bits"

// table maps 64-bit hashes to words. It is an open-addressed table of 16-byte slots without pointers: the keys are not
// kept, so no string is held back and the garbage collector has nothing to scan. Two keys with the same hash share an
// entry; among a million keys that happens with a probability of about 10^-7, because all bits of the hash but a few are
// compared, and the hash is seeded, so that nobody can arrange it.
type table struct {
	slots []slot
	extra [columns][]uint32 // made when first written
	live  int
}

type slot struct {
	id    uint64 // the hash above the low eight bits, which are free for the owner; zero: empty
	state uint64
}

// column is a word that only some stores need.
type column int

const (
	earlyColumn      column = iota // when the budget for early runs is full again
	generationColumn               // the generation last seen
	firstColumn                    // when the first failure of the row was

	columns
)

const (
	low      = 0xff // the bits of slot.id that are not part of the identity
	minSlots = 8    // a table of this size is kept when it is empty, so that a key that comes and goes costs nothing
	// keepSlots is what a table may have without shrinking before it is empty.
	keepSlots = 128
)

// ident makes h usable: what is compared must not be zero, which means empty.
func ident(h uint64) uint64 {
	if h <= low {
		return h | 1<<63
	}
	return h
}

// home is where h belongs. It grows with h, so that a table is copied into a larger one from front to back.
func (t *table) home(h uint64) int {
	hi, _ := bits.Mul64(h&^low, uint64(len(t.slots)))
	return int(hi)
}

// find returns where h is.
func (t *table) find(h uint64) (int, bool) {
	if t == nil || t.live == 0 {
		return 0, false
	}
	for i := t.home(h); ; {
		id := t.slots[i].id
		if id^h <= low {
			return i, true
		}
		if id == 0 {
			return 0, false
		}
		if i++; i == len(t.slots) {
			i = 0
		}
	}
}

// insert makes an entry for h, which must not be there, and returns where it is. Its state and columns are zero.
func (t *table) insert(h uint64) int {
	if (t.live+1)*20 > len(t.slots)*17 {
		t.resize(t.room(t.live + 1))
	}
	t.live++
	i := t.place(h)
	t.slots[i].id = h &^ low
	return i
}

// place finds the first empty slot for h.
func (t *table) place(h uint64) int {
	i := t.home(h)
	for t.slots[i].id != 0 {
		if i++; i == len(t.slots) {
			i = 0
		}
	}
	return i
}

// room is the size of a table for n entries: filled to 69 % at first and to 85 % before it grows, which keeps a key
// between 19 and 24 bytes.
func (t *table) room(n int) int {
	size := max(minSlots, n*29/20+1)
	if size < 64 && n > t.live {
		size = max(size, min(2*len(t.slots), 64))
	}
	return size
}

func (t *table) resize(size int) {
	old := *t
	t.slots = make([]slot, size)
	for c := range t.extra {
		if old.extra[c] != nil {
			t.extra[c] = make([]uint32, size)
		}
	}
	for i, s := range old.slots {
		if s.id == 0 {
			continue
		}
		at := t.place(s.id)
		t.slots[at] = s
		for c, words := range old.extra {
			if words != nil {
				t.extra[c][at] = words[i]
			}
		}
	}
}

// remove takes the entry at i out and closes the gap, so that there is never a grave to walk past and nothing has to be
// rebuilt while keys come and go. It returns memory when little of it is used; the last entry leaves that to the caller.
func (t *table) remove(i int) {
	t.live--
	for j := i; ; {
		if j++; j == len(t.slots) {
			j = 0
		}
		s := t.slots[j]
		if s.id == 0 {
			break
		}
		// What sits at j may move to i unless its home lies behind i, seen from i.
		if distance(t.home(s.id), j, len(t.slots)) < distance(i, j, len(t.slots)) {
			continue
		}
		t.slots[i] = s
		for _, words := range t.extra {
			if words != nil {
				words[i] = words[j]
			}
		}
		i = j
	}
	t.slots[i] = slot{}
	for _, words := range t.extra {
		if words != nil {
			words[i] = 0
		}
	}
	if t.live > 0 && t.live*8 < len(t.slots) && len(t.slots) > keepSlots {
		t.resize(t.room(t.live))
	}
}

// distance is how far it is from one slot to another, going up.
func distance(from, to, size int) int {
	if to < from {
		return to - from + size
	}
	return to - from
}

func (t *table) word(c column, i int) uint32 {
	if t.extra[c] == nil {
		return 0
	}
	return t.extra[c][i]
}

func (t *table) setWord(c column, i int, word uint32) {
	if t.extra[c] == nil {
		if word == 0 {
			return
		}
		t.extra[c] = make([]uint32, len(t.slots))
	}
	t.extra[c][i] = word
}
