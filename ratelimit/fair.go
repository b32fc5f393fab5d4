// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"sync"
	"time"
)

// fair is start-time fair queuing without a queue: the keys wait in the caller's, and the gate only tells them when to
// come back.
//
// Virtual time v grows by rate/W a second, W being the weight of the active tenants: it is how much a tenant of weight 1
// would have been served had the rate been divided like a fluid. A tenant may start a run when v has reached its tag,
// which is then moved on by 1/weight. One that asks for little has a tag that v has passed long ago, so it only waits for
// a token, in a line that holds no more than a run or two for each tenant; one that asks for more than its share waits
// for v. A tenant is active as long as it has a key that was told to come back, or its tag lies ahead: what counts is
// what it has outstanding, not when it was last seen.
//
// Within a tenant whoever comes first goes first: a key that is sent away gets a ticket, and is told to come back when its
// number is due. Tokens that the tenants with a right to them do not fetch go to whoever asks. So that somebody does, a
// backlog comes back a few times as often as it could run, see patience.
type fair[K, T comparable] struct {
	mu      sync.Mutex
	watch   stopwatch
	seed    maphash.Seed
	tenant  func(K) T
	weights map[T]float64

	line   line
	keys   waiting // the place in the line of a key, or when it was told to come back and its ticket
	rate   float64 // per nanosecond
	v      float64
	at     int64   // the time that v is right for
	weight float64 // of the active tenants
	issued uint32  // tickets of all tenants
	shares map[T]*share[T]
	active []*share[T] // a heap, the smallest until first
}

// share is an active tenant.
type share[T comparable] struct {
	tenant T
	weight float64
	tag    float64 // when it may start its next run, in virtual time
	until  int64   // it is active until then, at least
	issued uint32  // the next ticket
	called uint32  // the ticket whose turn it is; whoever has an earlier one has come late
	late   int64   // the time that the last of those who have come late was sent away to
	index  int     // in the heap
}

// inLine marks a word in keys as a place in the line. Any other word is a coarse time and, in its lower half, a ticket.
const inLine = 1 << 63

// told is when the key with this word was told to come back.
func told(word uint64) int64 {
	if word&inLine != 0 {
		return int64(word &^ inLine)
	}
	return int64(word>>32) << coarseShift
}

// Fair is a [Gate] that divides rate runs a second among the tenants that want them, by weight (see [WithWeight]).
// A tenant that asks for less than its share gets it without waiting for the backlog of another, however long that is;
// what one does not use, the others get. burst keys may run at once after a pause, first come, first served; with a
// burst of 1 up to a ninth of what becomes free may be lost. Within a tenant who comes first runs first, as long as keys
// come back when they were told to and other tenants do not come and go; if they do, a backlog may overtake itself, and a
// newcomer overtakes it only for a token that nobody else came for. A run that a later gate refuses counts for the share of
// its tenant, and somebody else may have it. A key costs about 24 bytes while it waits, a tenant about 150 while one of its
// keys does.
//
// tenant is called for every key and must always give the same answer for it. A rate, burst or weight of zero, NaN and
// the like are errors that name the field. WithWeight, WithClock and WithMaxKeys apply.
func Fair[K, T comparable](tenant func(K) T, rate float64, burst int, opts ...Option) (Gate[K], error) {
	c, err := newConfig(config{maxKeys: defaultMaxKeys}, opts, "WithWeight", "WithClock", "WithMaxKeys")
	if tenant == nil {
		err = errors.Join(errors.New("tenant: the function is nil"), err)
	}
	weights := make(map[T]float64, len(c.weights))
	for name, weight := range c.weights {
		t, ok := name.(T)
		if !ok {
			err = errors.Join(err, fmt.Errorf("WithWeight: the tenant %v is a %T, this gate has tenants of type %T", name, name, *new(T)))
			continue
		}
		weights[t] = weight
	}
	if err := errors.Join(checkRate(rate), checkBurst(burst), err); err != nil {
		return nil, fmt.Errorf("new fair gate: %w", err)
	}
	l := newLine(rate, burst)
	return &fair[K, T]{
		watch: newStopwatch(c.clock), seed: maphash.MakeSeed(), tenant: tenant, weights: weights,
		line: l, keys: waiting{most: c.maxKeys}, rate: 1 / float64(l.every), shares: map[T]*share[T]{},
	}, nil
}

// Admit implements Gate.
func (f *fair[K, T]) Admit(key K) (time.Duration, bool) {
	tenant := f.tenant(key) // not under the lock: it is the caller's
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.watch.now()
	f.advance(now)
	if f.keys.empty() && f.line.take(now) {
		return 0, true // nobody waits, so nobody has to be fair
	}
	f.keys.sweep(func(word uint64) bool { return told(word) < now-int64(lateness) })
	h := ident(maphash.Comparable(f.seed, key))
	word := f.keys.get(h)
	if word&inLine != 0 {
		return f.queue(now, h, int64(word&^inLine))
	}
	s := f.share(tenant, now)
	known, ticket := word != 0, uint32(word)
	if !known {
		ticket = s.issued
	}
	ahead := max(0, float64(int32(ticket-s.called)))
	if s.turn(f.v, ahead, known) {
		// Somebody who is late by a run has not lost it.
		s.tag = max(s.tag, f.v-1/s.weight) + 1/s.weight
		s.retire(known)
		wait, ok := f.queue(now, h, 0)
		f.extend(s, now+int64(wait))
		return wait, ok
	}
	if f.line.surplus(now) && f.line.take(now) {
		s.retire(known)
		f.keys.drop(h)
		return 0, true
	}
	return f.away(s, now, h, ticket, known, ahead), false
}

// turn reports whether a key may use a right of its tenant: if there is one, and those before it do not come for it. The
// longer that takes, the more of those behind may overtake: after a quarter of a run all, but for newcomers.
func (s *share[T]) turn(v, ahead float64, known bool) bool {
	unused := (v - s.tag) * s.weight
	switch {
	case unused < -tolerance:
		return false
	case ahead == 0:
		return true
	}
	return known && ahead < math.Pow(float64(s.issued-s.called), 4*unused)
}

// retire counts a ticket that is not needed any more, if there was one.
func (s *share[T]) retire(known bool) {
	if known && s.called != s.issued {
		s.called++
	}
}

// tolerance is what rounding may make of a tag, as a part of a run.
const tolerance = 1e-3

// queue asks the line for a key that its tenant has a right to run, and remembers the place it gets.
func (f *fair[K, T]) queue(now int64, h uint64, at int64) (time.Duration, bool) {
	place, ok := f.line.ask(now, at)
	if ok {
		f.keys.drop(h)
		return 0, true
	}
	if place != at {
		f.keys.put(h, uint64(place)|inLine)
	}
	return time.Duration(place - now), false
}

// away tells a key when it is its turn, if no other tenant comes or goes.
func (f *fair[K, T]) away(s *share[T], now int64, h uint64, ticket uint32, known bool, ahead float64) time.Duration {
	if !known && !f.keys.full() {
		s.issued++
		f.issued++
	}
	at := now + max(1, f.lasts(max(0.125, (s.tag-f.v)*s.weight+ahead), s))
	if known && ahead == 0 {
		s.late = max(min(s.late, 1<<61)+f.lasts(1, s), at)
		at = s.late
	}
	at = min(at, now+f.patience(h, now))
	f.keys.put(h, uint64(min(coarse(at), 1<<31-1))<<32|uint64(ticket))
	f.extend(s, at)
	return time.Duration(at - now)
}

// lasts is how long it is until a tenant has a right to so many runs.
func (f *fair[K, T]) lasts(runs float64, s *share[T]) int64 {
	return int64(min(runs/s.weight*f.weight/f.rate, 1<<60))
}

// patience is the longest time a key is sent away for. The more keys wait the longer it is, so that a backlog asks a
// thousand times a second, or four times the rate, however large it is. It must not be longer, because when other tenants
// leave there would be nobody to take what they leave.
func (f *fair[K, T]) patience(h uint64, now int64) int64 {
	seconds := max(1, float64(f.keys.table.live)/max(1000, 4e9*f.rate))
	part := 0.75 + 0.25*float64(mix(h, uint64(now))>>11)/(1<<53)
	return int64(min(seconds, 1<<30) * part * float64(time.Second))
}

// Refund gives the token back: whoever comes for it may have it. The tenant has had its turn, though. If that came back as
// well, a tenant that is always refused elsewhere would use each of its rights again and again, and fill the line that the
// others wait in. The key goes to the end of its tenant when it comes again.
func (f *fair[K, T]) Refund(K) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.line.refund()
}

// share returns the share of a tenant, which is active from now on.
func (f *fair[K, T]) share(tenant T, now int64) *share[T] {
	s := f.shares[tenant]
	if s == nil {
		weight, ok := f.weights[tenant]
		if !ok {
			weight = 1
		}
		s = &share[T]{tenant: tenant, weight: weight, tag: f.v, until: now, issued: f.issued, called: f.issued, index: len(f.active)}
		f.shares[tenant] = s
		f.active = append(f.active, s)
		f.weight += weight
		f.up(s.index)
	}
	return s
}

// extend keeps a tenant active.
func (f *fair[K, T]) extend(s *share[T], until int64) {
	if until > s.until {
		s.until = until
		f.down(s.index)
	}
}

// advance moves virtual time to now; tenants that have nothing outstanding any more leave on the way.
func (f *fair[K, T]) advance(now int64) {
	for len(f.active) > 0 && f.active[0].until <= now {
		first := f.active[0]
		f.flow(max(first.until, f.at))
		if ahead := first.tag - f.v; ahead*first.weight > tolerance {
			f.extend(first, f.at+f.lasts(ahead*first.weight, first)+1)
			continue
		}
		f.leave()
	}
	f.flow(now)
}

// flow moves virtual time on while nobody comes or goes.
func (f *fair[K, T]) flow(to int64) {
	if f.weight > 0 {
		f.v += float64(to-f.at) * f.rate / f.weight
	}
	f.at = to
}

// leave takes the first of the heap out.
func (f *fair[K, T]) leave() {
	first := f.active[0]
	last := len(f.active) - 1
	f.swap(0, last)
	f.active[last] = nil
	f.active = f.active[:last]
	f.down(0)
	f.weight -= first.weight
	delete(f.shares, first.tenant)
	if last == 0 {
		f.weight, f.v = 0, 0 // and what rounding has left
		if cap(f.active) > 1024 {
			f.active, f.shares = nil, map[T]*share[T]{} // a map does not shrink by itself
		}
	}
}

func (f *fair[K, T]) swap(i, j int) {
	a := f.active
	a[i], a[j] = a[j], a[i]
	a[i].index, a[j].index = i, j
}

func (f *fair[K, T]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if f.active[parent].until <= f.active[i].until {
			return
		}
		f.swap(i, parent)
		i = parent
	}
}

func (f *fair[K, T]) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(f.active) {
			return
		}
		if child+1 < len(f.active) && f.active[child+1].until < f.active[child].until {
			child++
		}
		if f.active[i].until <= f.active[child].until {
			return
		}
		f.swap(i, child)
		i = child
	}
}
