// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"time"
)

// lateness is how long after its time a key that a gate has sent away may come back without losing its place.
const lateness = time.Minute

type bucket[K comparable] struct {
	mu    sync.Mutex
	watch stopwatch
	line  line
	keys  waiting
	seed  maphash.Seed
}

// Bucket is a [Gate] that lets rate keys a second run, and up to burst at once after a pause. Keys that are sent away
// get a place in a line: the n-th comes back when the n-th token is due, not together with all the others. Where that is
// more than two minutes ahead it is also told to look now and then whether those before it have left a token. A key costs
// about 24 bytes while it is in line and nothing otherwise; see [WithMaxKeys].
//
// A rate or burst of zero, NaN and the like are errors that name the field. WithClock and WithMaxKeys apply.
func Bucket[K comparable](rate float64, burst int, opts ...Option) (Gate[K], error) {
	c, err := newConfig(config{maxKeys: defaultMaxKeys}, opts, "WithClock", "WithMaxKeys")
	if err := errors.Join(checkRate(rate), checkBurst(burst), err); err != nil {
		return nil, fmt.Errorf("new bucket: %w", err)
	}
	return &bucket[K]{
		watch: newStopwatch(c.clock), line: newLine(rate, burst), keys: waiting{most: c.maxKeys}, seed: maphash.MakeSeed(),
	}, nil
}

// Admit implements Gate.
func (b *bucket[K]) Admit(key K) (time.Duration, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.watch.now()
	if b.keys.empty() && b.line.take(now) {
		return 0, true
	}
	h := ident(maphash.Comparable(b.seed, key))
	return b.line.admit(now, &b.keys, h)
}

// admit asks for the key with the hash h, whose place is kept in keys.
func (l *line) admit(now int64, keys *waiting, h uint64) (time.Duration, bool) {
	at := int64(keys.get(h))
	if at > now {
		if l.surplus(now) && l.take(now) {
			keys.drop(h)
			return 0, true
		}
		return patience(now, at, keys, h), false
	}
	keys.sweep(func(at uint64) bool { return int64(at) < now-int64(lateness) })
	place, ok := l.ask(now, at)
	if ok {
		keys.drop(h)
		return 0, true
	}
	keys.put(h, uint64(place))
	return patience(now, place, keys, h), false
}

// patience is how long a key with a place is sent away for: until then, but for a look every two minutes whether those
// before it have left tokens, because they did not come or because the rate has risen. A long line looks less often, or
// looking would be all that it does: a hundred times a second.
func patience(now, place int64, keys *waiting, h uint64) time.Duration {
	left, longest := place-now, max(2*int64(time.Minute), int64(keys.table.live)*int64(10*time.Millisecond))
	if left > longest {
		left = min(left, longest+int64(scale(mix(h, uint64(now)), uint64(longest/4)))) // they do not come together
	}
	return time.Duration(left)
}

// Refund gives the token back. The key goes to the end of the line when it comes again.
func (b *bucket[K]) Refund(K) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.line.refund()
}
