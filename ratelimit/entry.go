// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit

import "time"

// tick is a time since a Backoff was made, in units of 65.536 µs. 43 bits of it are 18 years.
type tick = int64

const (
	tickShift = 16
	maxTick   = 1<<43 - 1
	// coarseShift makes ticks of a table's extra columns out of nanoseconds: units of 134 ms, 18 years in 32 bits.
	coarseShift = 27
)

// Layout of slot.state: 16 bits for the count of transient failures, 3 for the class of the last outcome, one that says
// that an early run is under way, 43 for the deadline. The low byte of slot.id is the streak of that class.
const (
	countShift = 48
	maxCount   = 1<<16 - 1
	classShift = 45
	earlyBit   = 1 << 44
)

func pack(count int, class Class, deadline tick) uint64 {
	return uint64(count)<<countShift | uint64(class)<<classShift | uint64(deadline)
}

func (s *slot) count() int     { return int(s.state >> countShift) }
func (s *slot) class() Class   { return Class(s.state >> classShift & 7) }
func (s *slot) deadline() tick { return int64(s.state & maxTick) }
func (s *slot) early() bool    { return s.state&earlyBit != 0 }
func (s *slot) streak() int    { return int(s.id & low) }

// set stores an outcome; the streak goes on when the class is the one before.
func (s *slot) set(count int, class Class, deadline tick) {
	streak := 1
	if s.class() == class {
		streak = min(s.streak()+1, low)
	}
	s.id = s.id&^low | uint64(streak)
	s.state = pack(count, class, deadline)
}

// deadlineAt is when a wait of d that starts now (in nanoseconds) is over. It is rounded down: who comes back exactly in
// time must not be taken for early.
func deadlineAt(now int64, d time.Duration) tick {
	at := now + int64(d)
	if at < now {
		return maxTick // so far ahead that it does not fit
	}
	return min(at>>tickShift, maxTick)
}

// remaining is how long it is until deadline.
func remaining(now int64, deadline tick) time.Duration {
	return time.Duration(max(0, deadline<<tickShift-now))
}

// coarse is a time for an extra column. Zero means "not set", so time begins at one.
func coarse(now int64) int64 { return min(now>>coarseShift, 1<<32-3) + 1 }
