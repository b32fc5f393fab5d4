// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit

import "time"

// When registers a failure of key and returns how long it has to wait. A call before the last wait is over is not a new
// failure: it returns what is left of that wait. So a key that events trigger while it fails does not climb to the cap
// within a second.
//
// It is meant for a queue without [Backoff.Observe]; nothing it does allocates, unless memory has to grow.
func (b *Backoff[K]) When(key K) time.Duration {
	wait, count, evicted := b.register(b.id(key))
	if b.observer != nil {
		b.emitEvicted(evicted)
		if count > 0 {
			b.emit(Event{Kind: EventRetry, Key: key, Class: Transient, Count: count, Delay: wait})
		}
	}
	return wait
}

// register is When for a hash; count is zero when nothing was counted.
func (s *shared) register(h uint64) (wait time.Duration, count, evicted int) {
	now := s.now() // outside the lock, of which it would be the longest part
	sh := s.store.lock(h)
	i, ok := s.store.find(sh, h, now)
	if !ok {
		i, evicted = s.store.add(sh, h, now)
	}
	sl := &sh.table.slots[i]
	if remaining(now, sl.deadline()) > 0 && !s.everyCall {
		now = s.now() // the deadline may have been set since, and would seem to be further away than it is
		if wait = remaining(now, sl.deadline()); wait > 0 {
			sh.mu.Unlock()
			return wait, 0, evicted
		}
	}
	count = min(sl.count()+1, maxCount)
	wait = s.curves[Transient].after(count, mix(h^uint64(sl.deadline()), uint64(count)))
	sl.set(count, Transient, deadlineAt(now, wait))
	sh.mu.Unlock()
	return wait, count, evicted
}
