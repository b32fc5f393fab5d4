// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimittest_test

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-go/ashlar/ratelimit"
	"github.com/ashlar-go/ashlar/ratelimit/ratelimittest"
)

// recorder is a testing.TB that keeps what fails.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Helper()           {}
func (r *recorder) Error(args ...any) { r.errors = append(r.errors, fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

// racing is a gate with a mistake: a token for whoever comes first, and no place in line for the others.
type racing struct {
	next time.Time
}

func (g *racing) Admit(int) (time.Duration, bool) {
	now := time.Now()
	if now.Before(g.next) {
		return g.next.Sub(now), false
	}
	g.next = now.Add(100 * time.Millisecond)
	return 0, true
}

// spinning sends everybody away for no time at all.
type spinning struct{}

func (spinning) Admit(int) (time.Duration, bool) { return 0, false }

func crowd(n int) ratelimittest.Crowd[int] {
	var c ratelimittest.Crowd[int]
	for i := range n {
		c.Arrivals = append(c.Arrivals, ratelimittest.Arrival[int]{Key: i})
	}
	return c
}

// TestNoStarvation: the prover finds the starving key of a gate that lets newcomers overtake, and the gates of the
// library pass with the same crowd.
func TestNoStarvation(t *testing.T) {
	t.Parallel()
	rivals := crowd(20)
	rivals.Rival = func(n int) int { return 1000 + n }
	for name, tt := range map[string]struct {
		reason string
		gate   func() (ratelimit.Gate[int], error)
		crowd  ratelimittest.Crowd[int]
		fails  string
	}{
		"racing alone":    {"it serves a crowd in any order", func() (ratelimit.Gate[int], error) { return &racing{}, nil }, crowd(20), ""},
		"racing, rivals":  {"who comes back finds a newcomer before it, every time", func() (ratelimit.Gate[int], error) { return &racing{}, nil }, rivals, "19 of 20 keys are still waiting"},
		"spinning":        {"a wait of zero is a hot loop", func() (ratelimit.Gate[int], error) { return spinning{}, nil }, crowd(1), "0 was sent away for 0s at 0s"},
		"bucket, rivals":  {"newcomers go to the end of the line", func() (ratelimit.Gate[int], error) { return ratelimit.Bucket[int](10, 1) }, rivals, ""},
		"bucket of three": {"also with a burst", func() (ratelimit.Gate[int], error) { return ratelimit.Bucket[int](10, 3) }, rivals, ""},
		"fair, rivals": {"of the same tenant", func() (ratelimit.Gate[int], error) {
			return ratelimit.Fair(func(int) string { return "all" }, 10, 2)
		}, rivals, ""},
		"remotes, rivals": {"", func() (ratelimit.Gate[int], error) {
			r, err := ratelimit.NewRemotes[string](10, 1)
			return ratelimit.PerRemote(r, func(int) string { return "one" }), err
		}, rivals, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate, err := tt.gate()
				if err != nil {
					t.Fatal(err)
				}
				r := &recorder{TB: t}
				report := ratelimittest.NoStarvation(r, gate, tt.crowd, 10*time.Second)
				all := strings.Join(r.errors, "\n")
				if tt.fails == "" && all != "" || !strings.Contains(all, tt.fails) {
					t.Errorf("%s: %q after %d asks, want %q", tt.reason, all, report.Asks, tt.fails)
				}
			})
		})
	}
}

// never sends everybody away for good, until the test has seen enough of it.
type never struct{ asks int }

func (g *never) Admit(int) (time.Duration, bool) {
	g.asks++
	return math.MaxInt64, g.asks > 100
}

// TestNoStarvationEnds: a wait that ends after the end of time is no reason to ask again at once, and a bound of zero does
// not mean that there is none.
func TestNoStarvationEnds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ at, bound time.Duration }{
		"no time is left": {time.Second, time.Minute},
		"bound of zero":   {0, 0},
	} {
		clock := ratelimittest.NewClock()
		r := &recorder{TB: t}
		c := ratelimittest.Crowd[int]{Sleep: clock.Sleep, Arrivals: []ratelimittest.Arrival[int]{{At: tt.at}}}
		report := ratelimittest.NoStarvation[int](r, &never{}, c, tt.bound)
		if report.Asks != 1 || len(report.Waiting) != 1 || !strings.Contains(fmt.Sprint(r.errors), "1 of 1 keys are still waiting") {
			t.Errorf("%s: %q after %d asks", name, r.errors, report.Asks)
		}
	}
}

func TestTimelineRefuses(t *testing.T) {
	t.Parallel()
	for want, trace := range map[string]ratelimittest.Trace{"timeline: For: 0s is not above zero": {}, "timeline: Triggers: -1s is before the start": {For: time.Second, Triggers: []time.Duration{0, -time.Second}}, "timeline: new backoff: policy: Base: 0s is not above zero": {For: time.Second}} {
		if text, err := ratelimittest.Timeline(ratelimit.Policy{Cap: 1}, trace); err == nil || err.Error() != want || text != "" {
			t.Errorf("%q, %v, want %s", text, err, want)
		}
	}
}

// TestTimelineTells: what a run is called, and how it ends.
func TestTimelineTells(t *testing.T) {
	t.Parallel()
	trace := ratelimittest.Trace{For: time.Hour, Triggers: []time.Duration{0, time.Second, 2 * time.Second}}
	flat := ratelimit.Policy{Base: 10 * time.Second, Cap: 10 * time.Second, Jitter: ratelimit.NoJitter()}
	text, err := ratelimittest.Timeline(flat, trace, ratelimit.WithGiveUpAfter(3, 0), ratelimit.WithEarlyRuns(1, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"0s   run        Transient  1      wait 10s", "1s   early run  Transient  1      still wait 9s", "2s   held", "20s  run        Transient  3      given up", "4 runs: 3 on time, 1 early, up to 10s apart; 1 triggers held, for up to 8s"} {
		if !strings.Contains(text, want) {
			t.Errorf("the timeline does not say %q:\n%s", want, text)
		}
	}
	trace.Run = func(time.Duration) error { return &ratelimit.Error{Class: ratelimit.Terminal} }
	if text, _ = ratelimittest.Timeline(flat, trace); !strings.Contains(text, "not again") {
		t.Errorf("a terminal failure is not told:\n%s", text)
	}
}

// TestTimelineEnds: what is under way when the time is over belongs to the last line, or the slowest curve looks best; and
// two events in the same instant are one, as they are in a queue.
func TestTimelineEnds(t *testing.T) {
	t.Parallel()
	slow := ratelimit.Policy{Base: time.Second, Cap: time.Hour, Jitter: ratelimit.NoJitter()}
	for name, tt := range map[string]struct {
		trace ratelimittest.Trace
		want  string
	}{
		"a wait":          {ratelimittest.Trace{For: 30 * time.Minute}, "11 runs: 11 on time, 0 early, up to 17m4s apart; 0 triggers held, for up to 0s"},
		"a trigger":       {ratelimittest.Trace{For: 30 * time.Minute, Triggers: []time.Duration{29 * time.Minute}}, "11 runs: 11 on time, 0 early, up to 17m4s apart; 1 triggers held, for up to 5m7s"},
		"it is well":      {ratelimittest.Trace{For: 30 * time.Minute, Run: func(time.Duration) error { return nil }}, "1 runs: 1 on time, 0 early, up to 0s apart; 0 triggers held, for up to 0s"},
		"the same moment": {ratelimittest.Trace{For: 30 * time.Minute, Triggers: []time.Duration{time.Minute, 0, time.Minute}}, "11 runs: 11 on time, 0 early, up to 17m4s apart; 1 triggers held, for up to 3s"},
	} {
		tt.trace.Triggers = append(tt.trace.Triggers, 0)
		text, err := ratelimittest.Timeline(slow, tt.trace, ratelimit.WithEarlyRuns(0, time.Second))
		if err != nil || !strings.HasSuffix(text, tt.want+"\n") {
			t.Errorf("%s: %v\n%swant %s", name, err, text, tt.want)
		}
	}
}

func TestClockIsSafe(t *testing.T) {
	t.Parallel()
	c := ratelimittest.NewClock()
	start := c.Now()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				c.Sleep(time.Second)
				c.Now()
			}
		})
	}
	wg.Wait()
	if passed := c.Now().Sub(start); passed != 800*time.Second {
		t.Errorf("%v have passed", passed)
	}
}
