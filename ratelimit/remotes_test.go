// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/ratelimit"
	"github.com/ashlar-go/ashlar/ratelimit/ratelimittest"
)

var errThrottled = &ratelimit.Error{Class: ratelimit.Throttled, Err: errBoom}

// TestRemotesThrottleAfterRecovery: an answer gives a step of the rate back, and the remote throttles within the same second.
// That it has throttled counts all the same.
func TestRemotesThrottleAfterRecovery(t *testing.T) {
	t.Parallel()
	clock := ratelimittest.NewClock()
	r, err := ratelimit.NewRemotes[string](100, 10, ratelimit.WithClock(clock.Now))
	if err != nil {
		t.Fatal(err)
	}
	rate := func(what string, want float64) {
		t.Helper()
		if got := r.State("a").Rate; got != want {
			t.Errorf("%s: the rate is %v, want %v", what, got, want)
		}
	}
	clock.Sleep(time.Hour)
	r.Report("a", errThrottled)
	rate("throttled", 50)
	clock.Sleep(1100 * time.Millisecond)
	r.Report("a", nil)
	rate("a second later it answers", 55)
	clock.Sleep(100 * time.Millisecond)
	r.Report("a", errThrottled)
	rate("it throttles again", 27.5)
	r.Report("a", errThrottled)
	rate("and again at once", 27.5)
	clock.Sleep(900 * time.Millisecond)
	r.Report("a", nil)
	rate("an answer within the second", 27.5)
	clock.Sleep(100 * time.Millisecond)
	r.Report("a", nil)
	rate("an answer after the second", 32.5)
}

// TestRemotesFindTheQuota: a remote that answers ten calls of each second and throttles the others is soon called about as
// often as it allows, although each second begins with answers.
func TestRemotesFindTheQuota(t *testing.T) {
	t.Parallel()
	clock := ratelimittest.NewClock()
	r, err := ratelimit.NewRemotes[string](100, 10, ratelimit.WithClock(clock.Now))
	if err != nil {
		t.Fatal(err)
	}
	calls, answers := 0, 0
	for second := range 120 {
		left := 10
		for range 1000 {
			clock.Sleep(time.Millisecond)
			if _, ok := r.Admit("a"); !ok {
				continue
			}
			if second >= 60 {
				calls++
			}
			if left--; left < 0 {
				r.Report("a", errThrottled)
				continue
			}
			if second >= 60 {
				answers++
			}
			r.Report("a", nil)
		}
	}
	if calls > 60*15 || answers < 60*6 {
		t.Errorf("%d calls in a minute, of which the remote allows 600 and has answered %d", calls, answers)
	}
}

// TestRemotesSlowerMintsNothing: half a rate is half as many calls from then on; that a burst takes twice as long to
// collect does not give half of one away.
func TestRemotesSlowerMintsNothing(t *testing.T) {
	t.Parallel()
	clock := ratelimittest.NewClock()
	r, err := ratelimit.NewRemotes[string](100, 100, ratelimit.WithClock(clock.Now))
	if err != nil {
		t.Fatal(err)
	}
	calls := func() (n int) {
		for {
			if _, ok := r.Admit("a"); !ok {
				return n
			}
			n++
		}
	}
	if n := calls(); n != 100 {
		t.Fatalf("%d calls at once", n)
	}
	r.Report("a", errThrottled)
	if n := calls(); n != 0 {
		t.Errorf("%d calls at once, because the remote has throttled", n)
	}
	n := 0
	for range 1000 {
		clock.Sleep(time.Millisecond)
		n += calls()
	}
	if n < 49 || n > 51 {
		t.Errorf("%d calls in a second at a rate of 50", n)
	}
}

// TestRemotesProbeThrottled: the answer to a probe is "slow down". That closes the breaker, and an observer is told both.
func TestRemotesProbeThrottled(t *testing.T) {
	t.Parallel()
	clock := ratelimittest.NewClock()
	var events []ratelimit.EventKind
	r, err := ratelimit.NewRemotes[string](100, 10, ratelimit.WithClock(clock.Now), ratelimit.WithBreaker(1, ratelimit.Flat(time.Second)),
		ratelimit.WithObserver(func(e ratelimit.Event) {
			events = append(events, e.Kind)
			if e.Key != "a" {
				t.Errorf("%s tells nothing of the remote: %v", e.Kind, e.Key)
			}
		}))
	if err != nil {
		t.Fatal(err)
	}
	r.Report("a", errBoom)
	clock.Sleep(time.Second)
	if _, ok := r.Admit("a"); !ok {
		t.Fatal("no probe")
	}
	r.Report("a", errThrottled)
	want := []ratelimit.EventKind{ratelimit.EventOpened, ratelimit.EventClosed, ratelimit.EventSlowed}
	if fmt.Sprint(events) != fmt.Sprint(want) {
		t.Errorf("events %v, want %v", events, want)
	}
}

// TestPerRemoteOneProbe: calls that were under way when the breaker opened end while the probe is under way. What they
// report, or take back, says nothing about the probe, so there is no second one.
func TestPerRemoteOneProbe(t *testing.T) {
	t.Parallel()
	clock := ratelimittest.NewClock()
	r, err := ratelimit.NewRemotes[string](100, 10, ratelimit.WithClock(clock.Now), ratelimit.WithBreaker(2, ratelimit.Flat(time.Second)))
	if err != nil {
		t.Fatal(err)
	}
	gate := ratelimit.PerRemote(r, func(string) string { return "remote" })
	ends := gate.(interface {
		Report(string, error)
		Refund(string)
	})
	admit := func(key string, want bool) {
		t.Helper()
		if wait, ok := gate.Admit(key); ok != want {
			t.Errorf("%s: Admit = %v, %v, want %v", key, wait, ok, want)
		}
	}
	for _, key := range []string{"a", "b", "slow", "cancelled"} {
		admit(key, true)
	}
	ends.Report("a", errBoom)
	ends.Report("b", errBoom)
	clock.Sleep(time.Second)
	admit("probe", true)
	ends.Report("slow", errBoom)
	ends.Refund("cancelled")
	for range 10 {
		admit("other", false)
		clock.Sleep(time.Second)
	}
	ends.Refund("probe")
	admit("second probe", true)
	ends.Report("second probe", errBoom)
	admit("other", false)
	clock.Sleep(time.Second)
	admit("third probe", true)
	r.Report("remote", errBoom) // of somebody who knows no keys: it may have been the probe
	clock.Sleep(time.Second)
	admit("fourth probe", true)
	ends.Report("slow", nil) // whoever has an answer has one
	admit("other", true)
}

// TestPerRemoteAtTheStart: in a bubble of testing/synctest, and with an explicit clock, the first keys come in the instant
// that the gate was made in. Nobody is in line before them.
func TestPerRemoteAtTheStart(t *testing.T) {
	t.Parallel()
	for _, burst := range []int{1, 2, 5} {
		clock := ratelimittest.NewClock()
		r, err := ratelimit.NewRemotes[string](10, burst, ratelimit.WithClock(clock.Now))
		if err != nil {
			t.Fatal(err)
		}
		gate := ratelimit.PerRemote(r, func(int) string { return "remote" })
		for key := range burst + 1 {
			if wait, ok := gate.Admit(key); ok != (key < burst) {
				t.Errorf("burst %d, key %d: Admit = %v, %v", burst, key, wait, ok)
			}
		}
	}
}

// reporting is a gate whose runs are all well.
type reporting struct{ ratelimit.Gate[int] }

func (g reporting) Admit(key int) (time.Duration, bool) {
	wait, ok := g.Gate.Admit(key)
	if ok {
		g.Gate.(interface{ Report(int, error) }).Report(key, nil)
	}
	return wait, ok
}

// TestPerRemoteRecovers: a crowd comes while a remote is at its slowest, and gets places for half an hour. It does not have
// to stay away that long when the remote is well again and its rate is back.
func TestPerRemoteRecovers(t *testing.T) {
	t.Parallel()
	clock := ratelimittest.NewClock()
	r, err := ratelimit.NewRemotes[string](100, 10, ratelimit.WithClock(clock.Now))
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		r.Report("remote", errThrottled)
		clock.Sleep(time.Second)
	}
	c := ratelimittest.Crowd[int]{Sleep: clock.Sleep}
	for key := range 3000 {
		c.Arrivals = append(c.Arrivals, ratelimittest.Arrival[int]{Key: key})
	}
	ratelimittest.NoStarvation[int](t, reporting{ratelimit.PerRemote(r, func(int) string { return "remote" })}, c, 6*time.Minute)
	if s := r.State("remote"); s.Rate != 100 {
		t.Errorf("the rate is %v in the end", s.Rate)
	}
}
