// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// memo is what a writer remembers of its last write of one object. It is an optimisation and a manner, never the fence:
// losing it costs one request or one early message.
type memo struct {
	known           bool
	resourceVersion string // the one our write was given
	generation      int64
	all, payload    uint64 // digests of what was desired
	stored          uint64 // digest of the owned conditions as the server stored them
	observed        int64
	odd             uint64 // view.odd of what the server stored: payload it stores differently

	messageAt  time.Time // last message-only write
	takenAt    time.Time // last time somebody took what we own
	standUntil time.Time // we do not take it back before
	takes      int
	rival      string // who took it
}

// after returns the memo once a decision was written and v is what the server stored.
func (m memo) after(o *owned, d *decision, v *view, w *want, now time.Time) memo {
	sum := w.sum(o)
	m.known = true
	m.resourceVersion = v.resourceVersion
	m.generation = w.generation
	m.all, m.payload = sum.all, sum.payload
	m.stored = o.stored(v.conditions)
	m.observed = v.observed
	m.odd = v.odd
	if d.verb != write {
		return m
	}
	if d.changed == changedMessage {
		m.messageAt = now
	}
	if d.taken {
		m.takenAt, m.takes, m.rival = now, d.takes, d.rival
		m.standUntil = time.Time{}
		if d.contested() {
			stand := standMin << min(d.takes-2, 10)
			m.standUntil = now.Add(min(stand, standMax))
		}
	}
	return m
}

// memory keeps the memos of the max objects written last. The zero value is not usable.
type memory struct {
	mu    sync.Mutex
	max   int
	at    map[types.UID]*memoItem
	first *memoItem // written last
	last  *memoItem // the next to be forgotten
}

type memoItem struct {
	uid        types.UID
	memo       memo
	prev, next *memoItem
}

func newMemory(limit int) *memory { return &memory{max: limit, at: map[types.UID]*memoItem{}} }

func (m *memory) get(uid types.UID) memo {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i, ok := m.at[uid]; ok {
		return i.memo
	}
	return memo{}
}

func (m *memory) put(uid types.UID, n memo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, ok := m.at[uid]
	if ok {
		m.unlink(i)
	} else {
		if len(m.at) >= m.max {
			old := m.last
			m.unlink(old)
			delete(m.at, old.uid)
		}
		i = &memoItem{uid: uid}
		m.at[uid] = i
	}
	i.memo = n
	i.prev, i.next = nil, m.first
	if m.first != nil {
		m.first.prev = i
	}
	m.first = i
	if m.last == nil {
		m.last = i
	}
}

func (m *memory) drop(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i, ok := m.at[uid]; ok {
		m.unlink(i)
		delete(m.at, uid)
	}
}

func (m *memory) unlink(i *memoItem) {
	if i.prev != nil {
		i.prev.next = i.next
	} else {
		m.first = i.next
	}
	if i.next != nil {
		i.next.prev = i.prev
	} else {
		m.last = i.prev
	}
}
