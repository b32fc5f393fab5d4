// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimittest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ashlar-go/ashlar/ratelimit"
)

// Trace is what happens to one key.
type Trace struct {
	For      time.Duration   // how much is shown; above zero
	Triggers []time.Duration // when events want it to run, in any order; those in the same instant are one
	// Run is what a run that starts at a time returns. Nil: it always fails.
	Run func(at time.Duration) error
}

// Timeline shows what a Backoff makes of a trace, one line for each run and for each row of triggers that it holds back:
// when, why it ran, how it ended, how many transient failures are counted, and how long it waits then. Jitter is the one
// of a fixed seed. opts are those of ratelimit.New; an error is what New says, or names the field of the Trace.
//
// The last line is what to compare curves by: the runs are the price; the longest time between two of them is how late a
// recovery that causes no event may be noticed, and the longest time a trigger was held for how late one that does. The run
// that would be the next one after For is the end of both.
//
// A clock or a hash among opts is overruled.
func Timeline(p ratelimit.Policy, trace Trace, opts ...ratelimit.Option) (string, error) {
	if trace.For <= 0 {
		return "", fmt.Errorf("timeline: For: %v is not above zero", trace.For)
	}
	triggers := slices.Compact(slices.Sorted(slices.Values(trace.Triggers)))
	if len(triggers) > 0 && triggers[0] < 0 {
		return "", fmt.Errorf("timeline: Triggers: %v is before the start", triggers[0])
	}
	clock := NewClock()
	opts = append(slices.Clip(opts), ratelimit.WithClock(clock.Now), ratelimit.WithHash(func(string) uint64 { return 1 }))
	b, err := ratelimit.New[string](p, opts...)
	if err != nil {
		return "", fmt.Errorf("timeline: %w", err)
	}
	s := &story{trace: trace, backoff: b, clock: clock}
	s.tab = tabwriter.NewWriter(&s.out, 0, 0, 2, ' ', 0)
	fmt.Fprint(s.tab, "at\twhy\toutcome\tcount\tthen\n")
	s.tell(triggers)
	s.flush()
	_ = s.tab.Flush() // a strings.Builder takes everything
	fmt.Fprintf(&s.out, "%d runs: %d on time, %d early, up to %v apart; %d triggers held, for up to %v\n",
		s.onTime+s.early, s.onTime, s.early, s.apart.Round(time.Millisecond), s.held, s.longest.Round(time.Millisecond))
	lines := strings.Split(s.out.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n"), nil
}

const theKey = "key"

type story struct {
	trace   Trace
	backoff *ratelimit.Backoff[string]
	clock   *Clock
	out     strings.Builder
	tab     *tabwriter.Writer
	now     time.Duration

	onTime, early, held int
	ran, apart, longest time.Duration // last run, longest time between two, longest time for which a trigger was held
	well                bool          // the last run was a success: there is nothing to notice
	row                 int           // triggers held since the last line
	first, last         time.Duration // of them
}

// tell plays the queue: it keeps the earliest time the key is due at.
func (s *story) tell(triggers []time.Duration) {
	due, queued := time.Duration(0), false
	for {
		if len(triggers) > 0 && triggers[0] <= s.trace.For && (!queued || triggers[0] <= due) {
			due, queued = triggers[0], true
			triggers = triggers[1:]
		}
		if !queued {
			return
		}
		if due > s.trace.For {
			s.now = due // too late to be shown, but known
			s.gap()
			return
		}
		s.clock.Sleep(due - s.now)
		s.now, queued = due, false
		waited := s.backoff.Remaining(theKey) > 0
		if wait, ok := s.backoff.Admit(theKey); !ok {
			s.hold()
			due, queued = s.now+wait, true
			continue
		}
		if again := s.run(waited); again >= 0 {
			due, queued = s.now+again, true
		}
	}
}

func (s *story) hold() {
	if s.row == 0 {
		s.first = s.now
	}
	s.held++
	s.row++
	s.last = s.now
}

// flush says how many triggers were held since the last line.
func (s *story) flush() {
	if s.row > 0 {
		s.longest = max(s.longest, s.now-s.first)
	}
	switch {
	case s.row == 1:
		fmt.Fprintf(s.tab, "%v\theld\t\t\t\n", s.first)
	case s.row > 1:
		fmt.Fprintf(s.tab, "%v\theld (%d until %v)\t\t\t\n", s.first, s.row, s.last)
	}
	s.row = 0
}

// gap notes how long ago the last run was, if it has left something to notice.
func (s *story) gap() {
	if s.onTime+s.early > 0 && !s.well {
		s.apart = max(s.apart, s.now-s.ran)
	}
}

// run is one run; it returns after how long the key comes again, below zero if it does not.
func (s *story) run(waited bool) time.Duration {
	s.flush()
	s.gap()
	s.ran = s.now
	err := errors.New("fails")
	if s.trace.Run != nil {
		err = s.trace.Run(s.now)
	}
	why := "run"
	if waited {
		why = "early run"
		s.early++
	} else {
		s.onTime++
	}
	s.well = err == nil
	d := s.backoff.Observe(theKey, err)
	outcome, then, again := d.Class.String(), fmt.Sprint("wait ", d.Delay.Round(time.Millisecond)), d.Delay
	switch {
	case err == nil:
		outcome, then, again = "ok", "done", -1
	case d.GaveUp:
		then, again = "given up", -1
	case !d.Retry():
		then, again = "not again", -1
	case d.Early:
		then = fmt.Sprint("still wait ", d.Delay.Round(time.Millisecond))
	}
	fmt.Fprintf(s.tab, "%v\t%s\t%s\t%d\t%s\n", s.now.Round(time.Millisecond), why, outcome, d.Count, then)
	return again
}
