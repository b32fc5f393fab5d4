// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit

import "math"

// line is a token bucket with a line in front of it. Who finds no token is given a time to come back, each one a token
// later than the one before, and newcomers go to the end: so a crowd that is turned away does not come back as a crowd,
// and nobody is overtaken for ever. Nothing is charged before somebody is let in, so a place that nobody claims costs
// no token.
//
// It counts in whole nanoseconds, where no rounding can hold a token back or mint one.
type line struct {
	every int64 // between two tokens
	slack int64 // how far behind its schedule the bucket may be: its burst without the one token
	next  int64 // when the next token is due on schedule
	end   int64 // the time that the last in line was given
	late  int64 // the same for those who came in time and found nothing
}

func newLine(rate float64, burst int) line {
	l := line{end: -1, late: -1} // time begins at zero, and nobody is in line then
	l.setRate(0, rate, burst)
	return l
}

// setRate changes the rate; places that were given out stay as they are. What is missing from a full bucket is as many
// tokens as before, so that another rate neither gives tokens away nor takes any.
func (l *line) setRate(now int64, rate float64, burst int) {
	missing := float64(l.next-now) / float64(max(1, l.every))
	l.every = max(1, int64(math.Round(min(1e9/rate, 1<<60))))
	l.slack = l.every * int64(burst-1)
	if burst > 1 && l.slack/int64(burst-1) != l.every || l.slack > 1<<61 {
		l.slack = 1 << 61
	}
	if missing > 0 {
		l.next = now + int64(min(math.Round(missing*float64(l.every)), 1<<61))
	}
}

func (l *line) take(now int64) bool {
	if now < l.next-l.slack {
		return false
	}
	l.next = max(l.next, now) + l.every
	return true
}

// surplus: there are two tokens, or the only one a bucket can hold has been there for an eighth of the time until the next.
// Somebody who could have had one did not come.
func (l *line) surplus(now int64) bool {
	if l.slack == 0 {
		return l.next <= now-l.every/8
	}
	return l.next-l.slack <= now-l.every
}

// refund takes a token back that was not made use of.
func (l *line) refund() { l.next -= l.every }

// ask lets somebody in who has the place at, zero for none, or returns the place to come back at.
func (l *line) ask(now, at int64) (place int64, ok bool) {
	switch {
	case at > now:
		return at, false
	case at == 0 && max(l.end, l.late) >= now && !l.surplus(now):
		// there are others in line
	case l.take(now):
		return 0, true
	}
	tail := &l.end
	if at != 0 {
		tail = &l.late
	}
	*tail = max(*tail+l.every, l.next-l.slack, now+1)
	return *tail, false
}
