// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"sync"
	"sync/atomic"
)

// maxSpare is the largest table that is kept for the next key until the garbage collector comes by.
const maxSpare = 1024

// maxShards is how many locks a store has: with 8 workers, two of them hardly ever want the same one, and a processor often
// finds it in its own cache. It is 8 KiB, which stay when every key is forgotten.
const maxShards = 128

// store is the memory of a Backoff: tables behind a lock each. It has no goroutine; what has expired is swept by the
// calls that come anyway.
type store struct {
	shards []shard
	mask   uint64
	ttl    tick  // how long after its deadline an entry lives; zero: for ever
	max    int64 // most entries
	_      [64]byte
	total  atomic.Int64 // entries; nothing else is written in this cache line
	_      [56]byte
	spare  sync.Pool // tables that were emptied: the garbage collector has them, unless a key comes first
}

type shard struct {
	mu     sync.Mutex
	table  *table
	cursor int // where the sweep goes on
	_      [40]byte
}

func newStore(ttl tick, maxKeys int) *store {
	shards := maxShards
	for shards > 1 && maxKeys/shards < 32 {
		shards /= 2 // or a shard would be full long before the store is
	}
	return &store{shards: make([]shard, shards), mask: uint64(shards - 1), ttl: ttl, max: int64(maxKeys)}
}

func (s *store) empty() bool { return s.total.Load() == 0 }

// lock returns the shard of h, locked.
func (s *store) lock(h uint64) *shard {
	sh := &s.shards[h&s.mask]
	sh.mu.Lock()
	return sh
}

// expired: the entry has been due for longer than the time to live, so it counts for nothing any more.
func (s *store) expired(sl *slot, now int64) bool {
	return s.ttl > 0 && now>>tickShift > sl.deadline()+s.ttl
}

// find returns the entry of h in its locked shard, if it is alive.
func (s *store) find(sh *shard, h uint64, now int64) (int, bool) {
	i, ok := sh.table.find(h)
	if ok && s.expired(&sh.table.slots[i], now) {
		s.remove(sh, i)
		return 0, false
	}
	return i, ok
}

// add makes an entry for h, which is not there, in its locked shard. When the store is full it takes the place of
// another one, and evicted counts that. The lock may be released in between, so the entry may be there in the end.
func (s *store) add(sh *shard, h uint64, now int64) (i, evicted int) {
	s.sweep(sh, now, 4) // memory grows here only, so it is enough to sweep here
	for !s.claim() {
		if sh.table != nil && sh.table.live > 0 {
			s.evict(sh)
			evicted++
			continue
		}
		sh.mu.Unlock()
		evicted += s.evictElsewhere(h)
		sh.mu.Lock()
		if i, ok := sh.table.find(h); ok {
			return i, evicted
		}
	}
	if sh.table == nil {
		if sh.table, _ = s.spare.Get().(*table); sh.table == nil {
			sh.table = &table{}
		}
	}
	return sh.table.insert(h), evicted
}

// claim counts one more entry, unless there are as many as there may be.
func (s *store) claim() bool {
	for {
		n := s.total.Load()
		if n >= s.max {
			return false
		}
		if s.total.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// remove drops an entry; a table that is empty then is returned, unless it is tiny.
func (s *store) remove(sh *shard, i int) {
	sh.table.remove(i)
	s.total.Add(-1)
	if sh.table.live == 0 && len(sh.table.slots) > minSlots {
		if len(sh.table.slots) <= maxSpare {
			s.spare.Put(sh.table)
		}
		sh.table = nil
	}
}

// sample is how many entries are compared to find one that may go.
const sample = 8

// evict drops the entry that is nearest to its expiry among a few: the one with the earliest deadline.
func (s *store) evict(sh *shard) {
	t := sh.table
	victim := -1
	for i, seen := sh.start(), 0; seen < min(sample, t.live); {
		if t.slots[i].id != 0 {
			if seen++; victim < 0 || t.slots[i].deadline() < t.slots[victim].deadline() {
				victim = i
			}
		}
		if i++; i == len(t.slots) {
			i = 0
		}
		sh.cursor = i
	}
	s.remove(sh, victim)
}

// evictElsewhere drops one entry of another shard than that of h, whose own has none.
func (s *store) evictElsewhere(h uint64) int {
	for n := uint64(1); n <= s.mask; n++ {
		sh := s.lock(h + n)
		if sh.table != nil && sh.table.live > 0 {
			s.evict(sh)
			sh.mu.Unlock()
			return 1
		}
		sh.mu.Unlock()
	}
	return 0
}

// sweep looks at a few slots and drops what has expired.
func (s *store) sweep(sh *shard, now int64, slots int) {
	if s.ttl == 0 {
		return
	}
	for i := sh.start(); slots > 0 && sh.table != nil && sh.table.live > 0; slots-- {
		if sl := &sh.table.slots[i]; sl.id != 0 && s.expired(sl, now) {
			s.remove(sh, i)
			i = sh.start() // another one may have moved here
			continue
		}
		if i++; i == len(sh.table.slots) {
			i = 0
		}
		sh.cursor = i
	}
}

// start is the cursor, which may point behind a table that has shrunk.
func (sh *shard) start() int {
	if sh.table == nil || sh.cursor >= len(sh.table.slots) {
		sh.cursor = 0
	}
	return sh.cursor
}

// len drops everything that has expired and counts the rest.
func (s *store) len(now int64) int {
	if s.empty() {
		return 0
	}
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		if sh.table != nil {
			sh.cursor = 0
			s.sweep(sh, now, 2*len(sh.table.slots))
		}
		sh.mu.Unlock()
	}
	return int(s.total.Load())
}
