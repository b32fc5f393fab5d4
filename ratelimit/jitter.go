// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"fmt"
	"math/bits"
	"time"
)

// Jitter spreads waits, so that what failed together does not come back together. It holds no state: the spread of a
// wait is a hash of the key, the number of the failure and the last deadline, with a seed of each [Backoff] of its own, so
// it needs no lock, and two replicas spread the same key differently. The zero Jitter is [EqualJitter].
type Jitter struct {
	kind jitterKind
	part float64
}

type jitterKind uint8

const (
	equalJitter jitterKind = iota
	noJitter
	fullJitter
	proportionalJitter
)

// EqualJitter waits between half of the curve and the curve: half is certain, half is spread.
func EqualJitter() Jitter { return Jitter{} }

// NoJitter waits exactly what the curve says.
func NoJitter() Jitter { return Jitter{kind: noJitter} }

// FullJitter waits between next to nothing and the curve. It spreads best and promises least.
func FullJitter() Jitter { return Jitter{kind: fullJitter} }

// ProportionalJitter waits the curve plus or minus part of it, part between 0 and 1. Where that would pass Cap the range
// is moved down, not cut, so that the waits are still spread there.
func ProportionalJitter(part float64) Jitter { return Jitter{kind: proportionalJitter, part: part} }

// String names the kind.
func (j Jitter) String() string {
	switch j.kind {
	case noJitter:
		return "none"
	case fullJitter:
		return "full"
	case proportionalJitter:
		return fmt.Sprintf("±%v", j.part)
	}
	return "equal"
}

func (j Jitter) validate() error {
	if j.kind == proportionalJitter && !(j.part > 0 && j.part < 1) { // written so that NaN fails
		return fmt.Errorf("Jitter: the part %v of ProportionalJitter is not between 0 and 1", j.part)
	}
	return nil
}

// bounds are the ends of the range that a wait of d is spread over.
func (j Jitter) bounds(d, longest time.Duration) (low, high time.Duration) {
	switch j.kind {
	case noJitter:
		return d, d
	case fullJitter:
		return 1, d
	case proportionalJitter:
		middle := min(float64(d), float64(longest)/(1+j.part))
		return within(middle*(1-j.part), longest), within(middle*(1+j.part), longest)
	}
	return max(1, d-d/2), d
}

// within makes a duration of a float that may not fit in one.
func within(d float64, longest time.Duration) time.Duration {
	if !(d < float64(longest)) {
		return longest
	}
	return max(1, time.Duration(d))
}

// scale maps a random word to [0, n).
func scale(r, n uint64) uint64 {
	hi, _ := bits.Mul64(r, n)
	return hi
}

// mix makes a random word of a hash and a small number; it is the finaliser of SplitMix64.
func mix(h, n uint64) uint64 {
	h += n * 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
