// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"sync/atomic"
	"testing"
	"time"
)

// TestWhenOvertaken: a call looks at the clock, and before it gets the lock another one sets a deadline a minute later.
// What is left of it is not counted from the older time, or it would be longer than the cap.
func TestWhenOvertaken(t *testing.T) {
	const longest = time.Hour
	start := time.Now()
	var passed atomic.Int64
	looked := make(chan struct{}, 10)
	b, err := New[string](Policy{Base: longest, Cap: longest, Jitter: NoJitter()}, WithClock(func() time.Time {
		defer func() { looked <- struct{}{} }()
		return start.Add(time.Duration(passed.Load()))
	}))
	if err != nil {
		t.Fatal(err)
	}
	<-looked // New does as well
	h := b.id("a")
	sh := b.store.lock(h)
	waits := make(chan time.Duration)
	go func() { waits <- b.When("a") }()
	<-looked

	passed.Store(int64(time.Minute))
	i, _ := b.store.add(sh, h, int64(time.Minute))
	sh.table.slots[i].set(1, Transient, deadlineAt(int64(time.Minute), longest))
	sh.mu.Unlock()
	if wait := <-waits; wait > longest || wait < longest-time.Millisecond {
		t.Errorf("the wait is %v, want %v", wait, longest)
	}
}

// TestObservedWhenIsAboveZero: a deadline is rounded down, and may be no later than the failure it is about. A queue that is
// told to wait for zero asks again at once, with the same answer for as long as the rounding goes, which is for ever where
// time stands still while somebody works: in a bubble of testing/synctest.
func TestObservedWhenIsAboveZero(t *testing.T) {
	start := time.Now()
	var passed time.Duration
	b, err := New[string](Exp(time.Second, time.Hour), WithClock(func() time.Time { return start.Add(passed) }),
		WithClass(Conflict, Policy{Base: time.Microsecond, Cap: time.Microsecond, Jitter: NoJitter()}))
	if err != nil {
		t.Fatal(err)
	}
	limiter := b.Observed()
	for _, passed = range []time.Duration{0, 1, 1<<tickShift - 1, 1 << tickShift, time.Hour} {
		if d := b.Observe("a", &Error{Class: Conflict}); d.Early || d.Delay != time.Microsecond {
			t.Errorf("after %v: %+v", passed, d)
		}
		wait := limiter.When("a")
		if wait <= 0 || wait > 1<<tickShift {
			t.Errorf("after %v: the queue is told to wait for %v", passed, wait)
		}
		passed += wait
		if at := passed >> tickShift; at<<tickShift != passed {
			t.Errorf("%v is no time that a deadline can have", passed)
		}
	}
}
