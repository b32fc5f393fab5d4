// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"sync"

	"github.com/ashlar-go/ashlar/ownership"
	"k8s.io/apimachinery/pkg/types"
)

// memory remembers what was written, by uid, bounded by keeping two generations: when the young one holds half the
// bound it becomes the old one and the former old one is dropped. What is asked for moves back into the young one.
type memory struct {
	half       int
	mu         sync.Mutex
	young, old map[types.UID]entry
}

type entry struct {
	evidence ownership.Evidence
	deleted  bool
	refused  refusal
}

// refusal is an adoption that another field manager refused. The same one would be refused again. Several owners may try,
// so it is remembered by uid and document.
type refusal struct{ resourceVersion, why string }

func refusedKey(d ownership.Decision) types.UID { return d.UID + "/" + types.UID(d.Evidence.Hash) }

func newMemory(limit int) *memory {
	return &memory{half: max(1, limit/2), young: map[types.UID]entry{}, old: map[types.UID]entry{}}
}

func (m *memory) recall(uid types.UID) (ownership.Evidence, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.get(uid)
	return e.evidence, ok && !e.deleted
}

func (m *memory) isDeleted(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, _ := m.get(uid)
	return e.deleted
}

// refusedBefore says why an adoption need not be tried, or "".
func (m *memory) refusedBefore(d ownership.Decision) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.get(refusedKey(d))
	if !ok || e.refused.resourceVersion != d.ResourceVersion {
		return ""
	}
	return e.refused.why
}

func (m *memory) markRefused(d ownership.Decision, why string) {
	m.put(refusedKey(d), entry{refused: refusal{d.ResourceVersion, why}})
}

func (m *memory) remember(uid types.UID, e ownership.Evidence) { m.put(uid, entry{evidence: e}) }

func (m *memory) markDeleted(uid types.UID) { m.put(uid, entry{deleted: true}) }

func (m *memory) forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.young, uid)
	delete(m.old, uid)
}

func (m *memory) len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.young) + len(m.old)
}

func (m *memory) get(uid types.UID) (entry, bool) {
	if e, ok := m.young[uid]; ok {
		return e, true
	}
	e, ok := m.old[uid]
	if ok {
		delete(m.old, uid)
		m.set(uid, e)
	}
	return e, ok
}

func (m *memory) put(uid types.UID, e entry) {
	if uid == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.old, uid)
	m.set(uid, e)
}

func (m *memory) set(uid types.UID, e entry) {
	if len(m.young) >= m.half {
		m.old, m.young = m.young, map[types.UID]entry{}
	}
	m.young[uid] = e
}
