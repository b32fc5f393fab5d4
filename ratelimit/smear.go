// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

type smear[K comparable] struct {
	over   atomic.Bool
	mu     sync.Mutex
	watch  stopwatch
	window int64
	skip   func(K) bool
	keys   waiting
	seed   maphash.Seed
	n      float64
}

// Smear is a [Gate] for the start of a process, when every object there is asks to run at once: it spreads the first
// runs of all keys evenly over what is left of window, which begins with the call of Smear. Every key gets a time of its
// own and keeps it, so keys that come together after a restart do not stay together for ever. When the window is over
// the gate admits everything, and holds no memory from the next call on; before, a key costs about 24 bytes.
//
// Keys for which skip returns true are not held back, then and later: an object that was created or changed after the
// start should not wait for the crowd. A nil skip holds all of them. A window of zero or less holds nothing.
func Smear[K comparable](window time.Duration, skip func(K) bool) Gate[K] {
	s := &smear[K]{watch: newStopwatch(nil), window: int64(window), skip: skip, seed: maphash.MakeSeed(), keys: waiting{most: math.MaxInt}}
	s.over.Store(window <= 0)
	return s
}

// Admit implements Gate.
func (s *smear[K]) Admit(key K) (time.Duration, bool) {
	if s.over.Load() {
		return 0, true
	}
	skip := s.skip != nil && s.skip(key) // not under the lock: it is the caller's
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.watch.now()
	if now >= s.window {
		s.over.Store(true)
		s.keys.table = table{}
		return 0, true
	}
	h := ident(maphash.Comparable(s.seed, key))
	at := int64(s.keys.get(h))
	switch {
	case skip:
		s.keys.put(h, uint64(max(1, now))) // this is its first run, and there is no second first run
		return 0, true
	case at == 0:
		// Multiples of the golden ratio fill a window far more evenly than a hash does.
		s.n++
		_, part := math.Modf(s.n * (math.Phi - 1))
		at = max(1, now+int64(part*float64(s.window-now)))
		s.keys.put(h, uint64(at))
	}
	if at > max(1, now) { // 1 stands for the beginning: 0 is no entry
		return time.Duration(at - now), false
	}
	return 0, true
}
