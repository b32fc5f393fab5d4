// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit

import "time"

// Decision is what follows from an outcome.
type Decision struct {
	Class  Class         // of the failure; zero for a success
	Count  int           // transient failures in a row
	Delay  time.Duration // until the key may run again; 0 when an early run has taken longer than that
	Early  bool          // the run was an early one: count and deadline are what they were
	GaveUp bool          // the budget of WithGiveUpAfter is used up, and the key is forgotten
}

// Retry reports whether the key is to be tried again.
func (d Decision) Retry() bool { return d.Class != 0 && d.Class != Terminal && !d.GaveUp }

// Observe is told how a run of key ended; it is the only method that changes the observed face. A nil err forgets the
// key. A Terminal failure, see [Classify], forgets it as well: nothing is left behind. Any other one that has waited for
// its deadline gets a new deadline from the curve of its class; the deadline is as far away as the error asks with
// After, at least.
//
// A failure of an early run changes nothing, except that the deadline moves to where After asks: a server's word is not
// the curve's.
func (b *Backoff[K]) Observe(key K, err error) Decision {
	if err == nil {
		b.Forget(key)
		return Decision{}
	}
	verdict := classify(err, nil)
	d, evicted := b.observe(b.id(key), verdict.Class, verdict.After)
	if b.observer != nil {
		b.emitEvicted(evicted)
		kind := EventRetry
		switch {
		case d.Early:
			kind = EventEarly
		case d.GaveUp:
			kind = EventGaveUp
		case d.Class == Terminal:
			kind = EventTerminal
		}
		b.emit(Event{Kind: kind, Key: key, Class: d.Class, Count: d.Count, Delay: d.Delay, Err: err})
	}
	return d
}

func (s *shared) observe(h uint64, class Class, after time.Duration) (Decision, int) {
	sh := s.store.lock(h)
	now := s.now() // under the lock, or a deadline set meanwhile would seem to be further away than it is
	defer sh.mu.Unlock()
	i, ok := s.store.find(sh, h, now)
	if class == Terminal {
		if ok {
			s.store.remove(sh, i)
		}
		return Decision{Class: Terminal}, 0
	}
	floor := s.floor(h, now, after)
	if ok {
		sl := &sh.table.slots[i]
		if early := sl.early(); early || sl.deadline() > now>>tickShift {
			sl.state &^= earlyBit
			if at := deadlineAt(now, floor); floor > 0 && at > sl.deadline() {
				sl.state = sl.state&^maxTick | uint64(at)
			}
			return Decision{Class: class, Count: sl.count(), Delay: remaining(now, sl.deadline()), Early: true}, 0
		}
	}
	evicted := 0
	if !ok {
		i, evicted = s.store.add(sh, h, now)
	}
	t := sh.table
	sl := &t.slots[i]
	d := Decision{Class: class, Count: sl.count()}
	if class == Transient {
		d.Count = min(d.Count+1, maxCount)
		if s.spent(t, i, d.Count, now) {
			s.store.remove(sh, i)
			d.GaveUp = true
			return d, evicted
		}
	}
	// A count that is as high as it can get must not freeze the jitter, so the last deadline is in it as well.
	seed := h ^ uint64(sl.deadline())
	sl.set(d.Count, class, 0)
	n := d.Count
	if class != Transient {
		n = sl.streak()
	}
	d.Delay = max(s.curves[class].after(n, mix(seed, uint64(n)<<3|uint64(class))), floor)
	sl.state |= uint64(deadlineAt(now, d.Delay))
	return d, evicted
}

// floor is what a server asked for, bounded, and spread upwards by up to a fifth, so that those who were turned away
// together do not come back together. A little is added for what is lost when a deadline is rounded.
func (s *shared) floor(h uint64, now int64, after time.Duration) time.Duration {
	if after <= 0 {
		return 0
	}
	after = min(after, s.maxAfter-1<<tickShift)
	room := min(after/5, s.maxAfter-after)
	spread := time.Duration(scale(mix(h, uint64(now)), uint64(room)+1))
	return after + max(spread, 1<<tickShift)
}

// spent reports whether a failure is the last one by the give-up budget, and notes when the first one was.
func (s *shared) spent(t *table, i, count int, now int64) bool {
	if s.giveUpCount > 0 && count >= s.giveUpCount {
		return true
	}
	if s.giveUpAge == 0 {
		return false
	}
	first := t.word(firstColumn, i)
	if first == 0 {
		t.setWord(firstColumn, i, uint32(coarse(now)))
		return false
	}
	return coarse(now)-int64(first) >= s.giveUpAge
}

// Reset clears what is remembered about key when its generation is another one than the last Reset was told, and
// reports whether it did: a new intent, or a deletion, which raises the generation of a Kubernetes object as well if its
// kind has any, must not wait for the failures of the old one. A key that has no failures has nothing to clear, and nothing
// to note a generation with: call Reset before a run, and again when its failure was observed.
func (b *Backoff[K]) Reset(key K, generation int64) bool {
	if b.store.empty() {
		return false
	}
	const words = 1<<32 - 1
	word := uint32((generation%words+words)%words) + 1 // zero: not told yet
	h := b.id(key)
	sh := b.store.lock(h)
	now := b.now()
	i, ok := b.store.find(sh, h, now)
	cleared := false
	if ok {
		switch sh.table.word(generationColumn, i) {
		case word:
		case 0:
			sh.table.setWord(generationColumn, i, word)
		default:
			b.store.remove(sh, i)
			cleared = true
		}
	}
	sh.mu.Unlock()
	if cleared && b.observer != nil {
		b.emit(Event{Kind: EventReset, Key: key})
	}
	return cleared
}
