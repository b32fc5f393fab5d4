// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers

import (
	"container/list"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// maxRemembered bounds what a process remembers; the oldest is forgotten first. Forgetting costs a request or an
// attempt count, never correctness.
const maxRemembered = 100_000

// memory is what this process knows about objects beyond what a possibly stale cache shows of them: what it has written
// or read live, and how often it has called a step.
type memory struct {
	mu    sync.Mutex
	max   int
	of    map[types.UID]*list.Element
	order *list.List // of *remembered, oldest first
}

type remembered struct {
	uid      types.UID
	stored   bool // we have stored the finalizer
	released bool // we have removed it from the terminating object, where it cannot come back
	read     bool // progress is known
	unsure   bool // a write of ours may have arrived although no answer did
	progress entry
	attempts map[string]int
}

func newMemory(max int) *memory {
	return &memory{max: max, of: map[types.UID]*list.Element{}, order: list.New()}
}

// peek returns a copy of what is known about uid.
func (m *memory) peek(uid types.UID) remembered {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.of[uid]; ok {
		return *e.Value.(*remembered)
	}
	return remembered{}
}

func (m *memory) stored(uid types.UID) {
	m.change(uid, func(r *remembered) { r.stored = true })
}

func (m *memory) released(uid types.UID) {
	m.change(uid, func(r *remembered) { *r = remembered{uid: uid, released: true} })
}

func (m *memory) progress(uid types.UID, e entry) {
	m.change(uid, func(r *remembered) { r.read, r.unsure, r.progress = true, false, e })
}

func (m *memory) unsure(uid types.UID) {
	m.change(uid, func(r *remembered) { r.unsure = true })
}

// called counts a call of a step and returns how many there were.
func (m *memory) called(uid types.UID, step string) (n int) {
	m.change(uid, func(r *remembered) {
		if r.attempts == nil {
			r.attempts = map[string]int{}
		}
		r.attempts[step]++
		n = r.attempts[step]
	})
	return n
}

func (m *memory) change(uid types.UID, do func(*remembered)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.of[uid]; ok {
		do(e.Value.(*remembered))
		return
	}
	if m.order.Len() >= m.max {
		oldest := m.order.Front()
		delete(m.of, oldest.Value.(*remembered).uid)
		m.order.Remove(oldest)
	}
	r := &remembered{uid: uid}
	m.of[uid] = m.order.PushBack(r)
	do(r)
}
