// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit

import "time"

// earlyBudget is how often a key may run before its deadline. It is a leaky bucket in one word per key: the time at
// which the budget is full again. All times are coarse, and rounded so that never more is granted than was promised.
type earlyBudget struct {
	every int64
	full  int64 // budget × every
}

func newEarlyBudget(n int, every time.Duration) earlyBudget {
	e := int64(every)>>coarseShift + 2 // one for what the shift cuts off, one because times are cut off, too
	return earlyBudget{every: e, full: int64(n) * e}
}

// take grants a run at now, or says in how many coarse units the next one will be granted; -1: never.
func (e earlyBudget) take(word uint32, now int64) (next uint32, wait int64, ok bool) {
	at := max(int64(word), now) + e.every
	switch {
	case e.full == 0:
		return word, -1, false
	case at-now > e.full:
		return word, at - now - e.full, false
	}
	return uint32(min(at, 1<<32-1)), 0, true
}

// Admit answers whether key may run now; it makes a Backoff a [Gate]. A key that does not wait may. One that waits may
// run early, a few times (see [WithEarlyRuns]), because the event that triggers it may be the one that repairs it. When
// it may not, wait says how long it is until it may, at the latest until its deadline: whoever puts the key back for
// that long has swallowed no event.
//
// An early run that fails neither raises the count nor moves the deadline.
func (b *Backoff[K]) Admit(key K) (wait time.Duration, ok bool) {
	if b.store.empty() {
		return 0, true
	}
	h := b.id(key)
	sh := b.store.lock(h)
	now := b.now()
	i, found := b.store.find(sh, h, now)
	if !found {
		sh.mu.Unlock()
		return 0, true
	}
	sl := &sh.table.slots[i]
	if wait = remaining(now, sl.deadline()); wait == 0 {
		sl.state &^= earlyBit // of a run whose end nobody observed
		sh.mu.Unlock()
		return 0, true
	}
	next, units, ok := b.early.take(sh.table.word(earlyColumn, i), coarse(now))
	if ok {
		sh.table.setWord(earlyColumn, i, next)
		sl.state |= earlyBit
		sh.mu.Unlock()
		return 0, true
	}
	class, count := sl.class(), sl.count()
	sh.mu.Unlock()
	if units > 0 {
		// The next unit begins somewhere within this one.
		wait = min(wait, time.Duration((now>>coarseShift+units)<<coarseShift-now))
	}
	if b.observer != nil {
		b.emit(Event{Kind: EventHeld, Key: key, Class: class, Count: count, Delay: wait})
	}
	return wait, false
}

// Refund takes an [Backoff.Admit] back that was not made use of, because another gate said no.
func (b *Backoff[K]) Refund(key K) {
	if b.store.empty() {
		return
	}
	h := b.id(key)
	sh := b.store.lock(h)
	if i, ok := sh.table.find(h); ok {
		if sl := &sh.table.slots[i]; sl.early() {
			sl.state &^= earlyBit
			sh.table.setWord(earlyColumn, i, uint32(max(1, int64(sh.table.word(earlyColumn, i))-b.early.every)))
		}
	}
	sh.mu.Unlock()
}
