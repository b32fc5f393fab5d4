// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"errors"
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"
)

// Backoff remembers for each key when it may be tried again. It has two faces.
//
// The Backoff itself is a workqueue.TypedRateLimiter: [Backoff.When] counts a failure. That is the face for code that
// has a queue and nothing else.
//
// The observed face changes only in [Backoff.Observe], which is told the error of each run; [Backoff.Observed] is the
// limiter for the queue then. That is the face for a reconciler, because controller-runtime asks its limiter later and
// under the lock of its queue, and forgets a key whenever a reconciler returns RequeueAfter. Package reconcilelimit
// wires it. Use one face of a Backoff, not both.
//
// All methods may be called at the same time. None blocks, and none allocates unless memory has to grow.
type Backoff[K comparable] struct {
	*shared
	hash func(K) uint64 // nil: a seeded hash of the runtime
	salt uint64         // tells scopes apart
}

// shared is what all scopes of a Backoff have in common.
type shared struct {
	store    *store
	seed     maphash.Seed
	clock    func() time.Time // nil: the monotonic clock
	start    time.Time
	latest   atomic.Int64 // what clock has shown
	observer func(Event)

	curves      [classes]curve
	everyCall   bool // count every When, as client-go does
	maxAfter    time.Duration
	giveUpCount int
	giveUpAge   int64 // coarse; zero: not set
	early       earlyBudget
}

const (
	defaultMaxKeys  = 1 << 20
	defaultMaxAfter = time.Hour
	minTTL          = 10 * time.Minute
)

// New returns a Backoff whose transient failures follow p; Exp(200*time.Millisecond, 5*time.Minute) suits most
// controllers. What is wrong with p or an option is an error that names the field.
func New[K comparable](p Policy, opts ...Option) (*Backoff[K], error) {
	return build[K](defaults(p), opts,
		"WithClass", "WithTTL", "WithMaxAfter", "WithMaxKeys", "WithGiveUpAfter", "WithEarlyRuns", "WithClock", "WithObserver", "WithHash")
}

// defaults is what a Backoff is without options, when its transient failures follow p.
func defaults(p Policy) config {
	return config{
		maxKeys:  defaultMaxKeys,
		maxAfter: defaultMaxAfter,
		policies: [classes]Policy{
			Transient: p,
			Throttled: Exp(time.Second, 5*time.Minute),
			Conflict:  {Base: 10 * time.Millisecond, Cap: time.Second, Jitter: FullJitter()},
			Waiting:   {Base: 10 * time.Second, Cap: 11 * time.Second, Factor: 1, Jitter: ProportionalJitter(0.1)},
		},
		earlyRuns:  3,
		earlyEvery: 10 * time.Second,
	}
}

func build[K comparable](base config, opts []Option, allowed ...string) (*Backoff[K], error) {
	c, err := newConfig(base, opts, allowed...)
	if perr := c.policies[Transient].validate(); perr != nil {
		err = errors.Join(fmt.Errorf("policy: %w", perr), err)
	}
	hash, ok := c.hash.(func(K) uint64)
	if c.hash != nil && !ok {
		err = errors.Join(err, fmt.Errorf("WithHash: a %T cannot hash keys of type %T", c.hash, *new(K)))
	}
	if err != nil {
		return nil, fmt.Errorf("new backoff: %w", err)
	}
	s := &shared{
		seed: maphash.MakeSeed(), clock: c.clock, observer: c.observe, maxAfter: c.maxAfter,
		giveUpCount: c.giveUpCount, early: newEarlyBudget(c.earlyRuns, c.earlyEvery),
	}
	longest := minTTL / 2
	for class := Transient; class < Terminal; class++ {
		s.curves[class] = c.policies[class].curve()
		longest = max(longest, c.policies[class].Cap)
	}
	if c.giveUpAge > 0 {
		s.giveUpAge = int64(c.giveUpAge)>>coarseShift + 2 // never before its time, whatever the shifts cut off
	}
	ttl := c.ttl
	if ttl == 0 && longest < 1<<61 {
		ttl = 2 * longest
	}
	if ttl > 0 {
		ttl = max(ttl, 1<<tickShift) // it is kept in ticks, of which zero means for ever
	}
	s.store = newStore(int64(ttl)>>tickShift, c.maxKeys)
	s.start = time.Now()
	if s.clock != nil {
		s.start = s.clock()
	}
	return &Backoff[K]{shared: s, hash: hash}, nil
}

// now is the time since the Backoff was made, in nanoseconds. It does not go back, or a wait would grow above its cap.
func (s *shared) now() int64 {
	if s.clock == nil {
		return max(0, int64(time.Since(s.start)))
	}
	for now := int64(s.clock().Sub(s.start)); ; {
		last := s.latest.Load()
		if now <= last {
			return last
		}
		if s.latest.CompareAndSwap(last, now) {
			return now
		}
	}
}

// id is the hash of a key.
func (b *Backoff[K]) id(key K) uint64 {
	var h uint64
	if b.hash == nil {
		h = maphash.Comparable(b.seed, key)
	} else {
		h = mix(b.hash(key), 1) // its low bits choose the shard, its high bits the slot
	}
	if b.salt != 0 {
		h = mix(h^b.salt, 0)
	}
	return ident(h)
}

// Scope returns a view of b under another name: its keys are apart from those of b and of other scopes, while memory,
// policy and bounds are shared. Two queues that share a limiter without it count each other's failures.
func (b *Backoff[K]) Scope(name string) *Backoff[K] {
	h := fnv(name) // as fixed as the hash of keys
	if b.hash == nil {
		h = maphash.String(b.seed, name)
	}
	return &Backoff[K]{shared: b.shared, hash: b.hash, salt: mix(h, b.salt) | 1}
}

// Forget drops what is remembered about key.
func (b *Backoff[K]) Forget(key K) {
	if b.store.empty() {
		return // the steady state of a healthy controller: every success ends here
	}
	h := b.id(key)
	sh := b.store.lock(h)
	if i, ok := sh.table.find(h); ok {
		b.store.remove(sh, i)
	}
	sh.mu.Unlock()
}

// NumRequeues is the number of transient failures in a row, up to 65535. It is 0 for a key that is not remembered.
func (b *Backoff[K]) NumRequeues(key K) int {
	if b.store.empty() {
		return 0
	}
	count := 0
	b.peek(key, func(sl *slot, _ int64) { count = sl.count() })
	return count
}

// Remaining is how long key still has to wait: 0 when it may run, and for a key that is not remembered.
func (b *Backoff[K]) Remaining(key K) time.Duration {
	if b.store.empty() {
		return 0
	}
	var wait time.Duration
	b.peek(key, func(sl *slot, now int64) { wait = remaining(now, sl.deadline()) })
	return wait
}

// peek shows the entry of a key, if there is one.
func (b *Backoff[K]) peek(key K, show func(*slot, int64)) bool {
	h := b.id(key)
	sh := b.store.lock(h)
	now := b.now()
	i, ok := b.store.find(sh, h, now)
	if ok {
		show(&sh.table.slots[i], now)
	}
	sh.mu.Unlock()
	return ok
}

// Len is the number of keys that are remembered, those of all scopes together. It drops those that have expired, which
// costs about a nanosecond for each key: called when metrics are collected, it returns memory even if no key ever fails
// again.
func (b *Backoff[K]) Len() int { return b.store.len(b.now()) }

// emit tells the observer.
func (s *shared) emit(e Event) {
	if s.observer != nil {
		s.observer(e)
	}
}

func (s *shared) emitEvicted(n int) {
	for range n {
		s.emit(Event{Kind: EventEvicted})
	}
}
