// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimittest

import (
	"sync"
	"time"
)

// Clock is a time that only moves when it is told to. It is safe for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a Clock that shows 2026-01-01 00:00 UTC.
func NewClock() *Clock { return &Clock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} }

// Now is what ratelimit.WithClock takes.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Sleep moves the clock on by d and returns at once. A negative d moves it back, as clocks do.
func (c *Clock) Sleep(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
