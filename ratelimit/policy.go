// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Policy is the curve of one class of failures: how long to wait after the first, the second, the n-th of them.
//
// The first max(Fast, 1) waits are Base long, each later one is Factor times as long as the one before, and none is
// longer than Cap. Jitter then shortens or spreads each of them; the result is never negative and never above Cap, and
// still spread where the curve has reached Cap.
type Policy struct {
	Base   time.Duration // first wait; above zero
	Cap    time.Duration // longest wait, jitter included; Base or more
	Factor float64       // growth of each wait over the one before; 1 or more, zero means 2
	Fast   int           // how many waits are Base long before they grow; zero means 1
	Jitter Jitter        // zero: [EqualJitter]
}

// Exp doubles from base to longest.
func Exp(base, longest time.Duration) Policy { return Policy{Base: base, Cap: longest} }

// Flat always waits d.
func Flat(d time.Duration) Policy { return Policy{Base: d, Cap: d, Factor: 1} }

// FastSlow waits fast for the first n times and slow from then on. With n zero or less it is always slow.
func FastSlow(fast, slow time.Duration, n int) Policy {
	if n <= 0 {
		return Flat(slow)
	}
	if fast <= 0 {
		return Policy{Base: fast, Cap: slow, Fast: n} // New refuses it
	}
	return Policy{Base: fast, Cap: slow, Factor: max(1, float64(slow)/float64(fast)), Fast: n}
}

// maxSteps is how many failures a curve may take to reach its cap: the streak of a class is kept in one byte.
const maxSteps = 255

// validate names the field that is wrong. The name of the policy comes before it.
func (p Policy) validate() error {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf(field+": "+format, args...))
	}
	if p.Base <= 0 {
		bad("Base", "%v is not above zero", p.Base)
	}
	if p.Cap < p.Base {
		bad("Cap", "%v is below Base %v", p.Cap, p.Base)
	}
	if p.Factor != 0 && !(p.Factor >= 1) || math.IsInf(p.Factor, 0) { // written so that NaN fails
		bad("Factor", "%v is not a finite number of 1 or more", p.Factor)
	}
	if p.Fast < 0 {
		bad("Fast", "%d is negative", p.Fast)
	}
	if err := p.Jitter.validate(); err != nil {
		errs = append(errs, err)
	}
	if len(errs) == 0 && p.steps() > maxSteps {
		bad("Factor", "with Factor %v and Fast %d the curve does not reach Cap within %d failures", p.factor(), p.Fast, maxSteps)
	}
	return errors.Join(errs...)
}

func (p Policy) factor() float64 {
	if p.Factor == 0 {
		return 2
	}
	return p.Factor
}

// steps is how many failures it takes until the wait does not change any more.
func (p Policy) steps() int {
	first := max(1, p.Fast)
	if p.factor() == 1 || p.Base == p.Cap {
		return 1
	}
	climb := math.Log(float64(p.Cap)/float64(p.Base)) / math.Log(p.factor())
	if !(climb < maxSteps) {
		return maxSteps + 1
	}
	n := first + int(math.Ceil(climb))
	for n <= maxSteps && p.wait(n-1) < p.Cap {
		n++ // the logarithm was rounded down
	}
	return n
}

// wait is the n-th wait without jitter, n from zero.
func (p Policy) wait(n int) time.Duration {
	climb := n - max(1, p.Fast) + 1
	if climb <= 0 || p.factor() == 1 {
		return p.Base
	}
	// A whole power of two is exact in a float64, and so is its product with any Base a curve can have in practice. The
	// comparison is with a value below 2^63, so that nothing can wrap, as it can where only values above it are caught.
	d := float64(p.Base) * math.Pow(p.factor(), float64(climb))
	return max(p.Base, within(d, p.Cap))
}

// Bounds are the shortest and the longest wait that the n-th failure in a row can get, n from 1. Both grow with n, and
// 0 < low ≤ high ≤ Cap. It is meant for tests and for people; a policy that [New] would refuse gives 0, 0.
func (p Policy) Bounds(n int) (low, high time.Duration) {
	if p.validate() != nil {
		return 0, 0
	}
	return p.Jitter.bounds(p.wait(max(0, n-1)), p.Cap)
}

// curve is a policy made ready: a wait is a look-up and one multiplication, with no float and no logarithm on the way.
type curve []step

type step struct {
	low  time.Duration
	span uint64 // high - low + 1
}

func (p Policy) curve() curve {
	c := make(curve, p.steps())
	for n := range c {
		low, high := p.Jitter.bounds(p.wait(n), p.Cap)
		c[n] = step{low: low, span: uint64(high-low) + 1}
	}
	return c
}

// after is the wait of the n-th failure, n from 1, at the point of its range that r says.
func (c curve) after(n int, r uint64) time.Duration {
	s := &c[min(n, len(c))-1]
	return s.low + time.Duration(scale(r, s.span))
}
