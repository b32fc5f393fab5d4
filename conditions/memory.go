// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Memory remembers which changes of one object are being held back. The zero Memory is ready to use. It lives in the
// process: after a restart a held change is held once more, never longer than its [Hold].
//
// A Memory is safe for concurrent use, but two passes at once over one object overwrite each other's memory. Several
// Sets may share one.
type Memory struct {
	mu      sync.Mutex
	pending []pending
}

// pending is one change that has been seen and not been shown.
type pending struct {
	typ        string
	generation int64
	worse      bool
	since      time.Time
}

// find returns the change remembered for typ.
func (m *Memory) find(typ string) (pending, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pending {
		if p.typ == typ {
			return p, true
		}
	}
	return pending{}, false
}

// replace stores what the pass over s holds and forgets what it does not hold any more.
func (m *Memory) replace(s *Set, held []pending) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := m.pending[:0]
	for _, p := range m.pending {
		if i, ok := s.index[p.typ]; !ok || i < 0 {
			kept = append(kept, p)
		}
	}
	kept = append(kept, held...)
	clear(kept[len(kept):max(len(kept), len(m.pending))]) // let go of the names
	m.pending = kept
}

// Memories hands out one [Memory] per object. It is safe for concurrent use.
type Memories struct {
	mu    sync.Mutex
	max   int
	byUID map[types.UID]*remembered
	ring  remembered // ring.next is the most recently used, ring.prev the least
}

type remembered struct {
	uid        types.UID
	memory     *Memory
	prev, next *remembered
}

// defaultMemories bounds a Memories that names no limit.
const defaultMemories = 100_000

// NewMemories returns a store of at most max memories, max ≤ 0 meaning 100 000. The least recently used one is dropped
// when the store is full; its object merely holds a pending change once more. Identity is the uid: an object that is
// deleted and created again under its name starts without memory.
func NewMemories(max int) *Memories {
	if max <= 0 {
		max = defaultMemories
	}
	m := &Memories{max: max, byUID: map[types.UID]*remembered{}}
	m.ring.prev, m.ring.next = &m.ring, &m.ring
	return m
}

// Of returns the memory of the object with this uid. It costs O(1).
func (m *Memories) Of(uid types.UID) *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.byUID[uid]
	switch {
	case r != nil:
		r.prev.next, r.next.prev = r.next, r.prev
	case len(m.byUID) >= m.max:
		oldest := m.ring.prev
		oldest.prev.next, oldest.next.prev = oldest.next, oldest.prev
		delete(m.byUID, oldest.uid)
		fallthrough
	default:
		r = &remembered{uid: uid, memory: &Memory{}}
		m.byUID[uid] = r
	}
	r.prev, r.next = &m.ring, m.ring.next
	r.prev.next, r.next.prev = r, r
	return r.memory
}

// Len returns how many objects are remembered.
func (m *Memories) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.byUID)
}
