// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-go/ashlar/ratelimit"
	"github.com/ashlar-go/ashlar/ratelimit/ratelimittest"
)

// As in reports_test.go, each test is named after the public report of the defect that must not happen here.

// A clock that goes back mints tokens. https://github.com/golang/go/issues/56287
func TestGo56287ClockGoesBack(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		clock := ratelimittest.NewClock()
		rate, burst := float64(1+r.IntN(5)), 1+r.IntN(5)
		bucket, err := ratelimit.Bucket[int](rate, burst, ratelimit.WithClock(clock.Now))
		if err != nil {
			t.Fatal(err)
		}
		fair, err := ratelimit.Fair(func(k int) int { return k % 3 }, rate, burst+1, ratelimit.WithClock(clock.Now))
		if err != nil {
			t.Fatal(err)
		}
		backoff := mustNew[int](t, ratelimit.Exp(time.Second, 10*time.Second), ratelimit.WithClock(clock.Now))
		granted, fairly, at, latest := 0, 0, time.Duration(0), time.Duration(0)
		for key := range 300 {
			step := time.Duration(r.IntN(2000)-900) * time.Millisecond
			clock.Sleep(step)
			at += step
			latest = max(latest, at)
			if _, ok := bucket.Admit(key); ok {
				granted++
			}
			if _, ok := fair.Admit(key); ok {
				fairly++
			}
			if wait := max(backoff.When(key%5), backoff.Remaining(key%5)); wait > 10*time.Second {
				t.Fatalf("a wait of %v is above the cap", wait)
			}
			most := rate*latest.Seconds() + float64(burst)
			if float64(granted) > most || float64(fairly) > most+1 {
				t.Fatalf("%d and %d let in, %.2f and one more are the most by then", granted, fairly, most)
			}
		}
		clock.Sleep(-24 * time.Hour) // who asks again is not sent away for longer
		for key := range 300 {
			short, _ := bucket.Admit(key)
			fair, _ := fair.Admit(key)
			if most := time.Duration(float64(time.Second) * 400 / rate); max(short, fair) > most {
				t.Fatalf("waits of %v and %v after the clock was set back, %v is the most", short, fair, most)
			}
		}
		if latest > 10*time.Second && granted < int(latest.Seconds()/4) {
			t.Fatalf("only %d let in within %v at %v a second", granted, latest, rate)
		}
	}
}

// A restart aligns all keys in one second, for ever. https://github.com/apache/hertzbeat/pull/4328,
// https://github.com/bookingcom/shipper/pull/209
func TestHertzbeat4328Smear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, window = 10_000, time.Minute
		g := ratelimit.Smear(window, func(k int) bool { return k < 0 })
		if _, ok := g.Admit(-1); !ok {
			t.Error("a key that is to be skipped is held back")
		}
		var c ratelimittest.Crowd[int]
		for i := range keys {
			c.Arrivals = append(c.Arrivals, ratelimittest.Arrival[int]{At: time.Duration(i) * time.Millisecond / 10, Key: i})
		}
		for i := range keys { // events of owned objects ask again at once, which must not change anything
			c.Arrivals = append(c.Arrivals, ratelimittest.Arrival[int]{At: 2 * time.Second, Key: i})
		}
		r := ratelimittest.NoStarvation(t, g, c, window)
		second, ran := map[int]int{}, map[int]bool{}
		for _, a := range r.Admitted {
			if !ran[a.Key] {
				ran[a.Key] = true
				second[int(a.At.Seconds())]++
			}
		}
		for s, n := range second {
			if n*50 > keys {
				t.Errorf("second %d has the first run of %d of %d keys, 2 %% are the most", s, n, keys)
			}
		}
		time.Sleep(window)
		if _, ok := g.Admit(keys + 1); !ok {
			t.Error("the window is over, and a fresh key is held back")
		}
	})
}

// What ran once in the window is not part of the crowd any more: an object that was created after the start and is well a
// moment later would else lose sight of its children for the rest of the window.
func TestSmearHoldsFirstRunsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fresh := true
		g := ratelimit.Smear(time.Minute, func(string) bool { return fresh })
		if wait, ok := g.Admit("created after the start"); !ok {
			t.Errorf("it waits for %v", wait)
		}
		fresh = false
		for range 3 {
			if wait, ok := g.Admit("created after the start"); !ok {
				t.Errorf("its next run waits for %v", wait)
			}
			time.Sleep(time.Second)
		}
		wait, ok := g.Admit("was there before")
		if ok {
			t.Error("a key of the crowd came at once: the test shows nothing")
		}
		time.Sleep(wait)
		if wait, ok := g.Admit("was there before"); !ok {
			t.Errorf("at its time it waits for another %v", wait)
		}
		fresh = true // changed meanwhile
		if _, ok := g.Admit("another of the crowd"); !ok {
			t.Error("a key that changed waits")
		}
	})
}

func TestHertzbeat4328Spread(t *testing.T) {
	t.Parallel()
	const d = 10 * time.Minute
	bins := [20]int{}
	for i := range 10_000 {
		key := fmt.Sprintf("default/object-%d", i)
		s := ratelimit.Spread(d, key)
		if s != ratelimit.Spread(d, key) {
			t.Fatal("not always the same")
		}
		within(t, "Spread", s, 9*time.Minute, 11*time.Minute)
		bins[min(19, int((s-9*time.Minute)/(6*time.Second)))]++
	}
	for i, n := range bins {
		if n < 400 || n > 600 {
			t.Errorf("bin %d of 20 has %d of 10 000", i, n)
		}
	}
	for _, d := range []time.Duration{0, -1, 1, 1<<63 - 1} {
		if s := ratelimit.Spread(d, "a"); s < 0 || d > 0 && s < d-d/10 {
			t.Errorf("Spread(%v) = %v", d, s)
		}
	}
}

// Thousands of remotes that come by once, with a failure each, do not make it forget those that are down.
func TestClusterAPI8306CrowdOfRemotes(t *testing.T) {
	t.Parallel()
	clock := ratelimittest.NewClock()
	r, err := ratelimit.NewRemotes[int](100, 10, ratelimit.WithMaxKeys(200), ratelimit.WithClock(clock.Now))
	if err != nil {
		t.Fatal(err)
	}
	const down = 50
	for i := range down {
		r.Report(-1-i, &ratelimit.Error{Class: ratelimit.Throttled, After: time.Hour})
	}
	for i := range 20_000 {
		r.Report(i, errBoom)
		clock.Sleep(time.Millisecond)
	}
	kept := 0
	for i := range down {
		if r.State(-1-i).Pause > 0 {
			kept++
		}
	}
	if n := r.Len(); n > 200 || kept < down/2 {
		t.Errorf("%d of %d remotes that are down are remembered, %d remotes altogether", kept, down, n)
	}
}

// Remotes that cannot be reached keep all workers in timeouts. https://github.com/kubernetes-sigs/cluster-api/issues/8306
func TestClusterAPI8306BreakerCostsNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []ratelimit.EventKind
		r, err := ratelimit.NewRemotes[string](100, 10, ratelimit.WithBreaker(5, ratelimit.Exp(10*time.Second, time.Minute)),
			ratelimit.WithObserver(func(e ratelimit.Event) { events = append(events, e.Kind) }))
		if err != nil {
			t.Fatal(err)
		}
		timeouts := 0
		call := func() {
			if _, ok := r.Admit("down"); !ok {
				return
			}
			timeouts++
			time.Sleep(10 * time.Second)
			r.Report("down", errBoom)
		}
		for range 5 {
			call()
		}
		s := r.State("down")
		if !s.Open || timeouts != 5 {
			t.Fatalf("after 5 failures: %+v, %d calls", s, timeouts)
		}
		within(t, "the pause", s.Pause, 5*time.Second, 10*time.Second)
		if wait, ok := r.Admit("down"); ok || wait < s.Pause {
			t.Errorf("Admit = %v, %v while the breaker is open for %v", wait, ok, s.Pause)
		}
		if _, ok := r.Admit("up"); !ok {
			t.Error("another remote pays for it")
		}
		time.Sleep(s.Pause)
		probes := 0
		for range 100 {
			if wait, ok := r.Admit("down"); ok {
				probes++
			} else if wait <= 0 || wait > 2*time.Second {
				t.Fatalf("who is not the probe waits %v", wait)
			}
		}
		if probes != 1 {
			t.Errorf("%d probes, want exactly one", probes)
		}
		r.Report("down", errBoom) // it is still down: the next pause is longer
		within(t, "the second pause", r.State("down").Pause, 10*time.Second, 20*time.Second)
		r.Report("down", errBoom) // of a call that began before: no third pause
		within(t, "the second pause", r.State("down").Pause, 10*time.Second, 20*time.Second)

		time.Sleep(r.State("down").Pause)
		if _, ok := r.Admit("down"); !ok {
			t.Fatal("no second probe")
		}
		time.Sleep(31 * time.Second) // the probe never comes back
		if _, ok := r.Admit("down"); !ok {
			t.Error("a probe that is lost keeps the breaker open for ever")
		}
		r.Report("down", nil)
		if s := r.State("down"); s.Open || s.Pause != 0 {
			t.Errorf("the remote has answered: %+v", s)
		}
		want := []ratelimit.EventKind{ratelimit.EventOpened, ratelimit.EventOpened, ratelimit.EventClosed}
		if fmt.Sprint(events) != fmt.Sprint(want) {
			t.Errorf("events %v, want %v", events, want)
		}
	})
}
