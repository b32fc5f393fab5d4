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
