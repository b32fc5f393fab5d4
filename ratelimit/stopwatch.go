// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit

import "time"

// stopwatch is a clock that does not go back.
type stopwatch struct {
	clock func() time.Time // nil: the monotonic clock
	start time.Time
	last  int64
}

func newStopwatch(clock func() time.Time) stopwatch {
	s := stopwatch{clock: clock, start: time.Now()}
	if clock != nil {
		s.start = clock()
	}
	return s
}

func (s *stopwatch) now() int64 {
	passed := int64(0)
	if s.clock == nil {
		passed = int64(time.Since(s.start))
	} else {
		passed = int64(s.clock().Sub(s.start))
	}
	s.last = max(s.last, min(passed, 1<<61)) // 73 years: what is added to it does not wrap
	return s.last
}
