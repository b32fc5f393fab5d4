// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimittest_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/ashlar-go/ashlar/ratelimit"
	"github.com/ashlar-go/ashlar/ratelimit/ratelimittest"
)

// An object that fails for two minutes while events come every second for a while: what the curve, the early runs and
// the outcomes make of it.
func ExampleTimeline() {
	trace := ratelimittest.Trace{For: 3 * time.Minute, Triggers: []time.Duration{0}}
	for s := range 20 {
		trace.Triggers = append(trace.Triggers, time.Duration(10+s)*time.Second)
	}
	trace.Run = func(at time.Duration) error {
		switch {
		case at < time.Minute:
			return errors.New("connection refused")
		case at < 2*time.Minute:
			return &ratelimit.Error{Class: ratelimit.Waiting, Err: errors.New("pods are starting")}
		}
		return nil
	}
	text, err := ratelimittest.Timeline(ratelimit.Exp(time.Second, time.Minute), trace)
	fmt.Print(text, err)
	// Output:
	// at         why                 outcome    count  then
	// 0s         run                 Transient  1      wait 588ms
	// 588ms      run                 Transient  2      wait 1.706s
	// 2.295s     run                 Transient  3      wait 2.791s
	// 5.085s     run                 Transient  4      wait 5.26s
	// 10s        early run           Transient  4      still wait 345ms
	// 10.345s    run                 Transient  5      wait 15.37s
	// 11s        early run           Transient  5      still wait 14.715s
	// 12s        early run           Transient  5      still wait 13.715s
	// 13s        held (8 until 20s)
	// 20.133s    early run           Transient  5      still wait 5.582s
	// 21s        held (5 until 25s)
	// 25.715s    run                 Transient  6      wait 23.477s
	// 26s        held (4 until 29s)
	// 30.333s    early run           Transient  6      still wait 18.858s
	// 49.192s    run                 Transient  7      wait 49.904s
	// 1m39.095s  run                 Waiting    7      wait 9.124s
	// 1m48.219s  run                 Waiting    7      wait 9.796s
	// 1m58.015s  run                 Waiting    7      wait 9.97s
	// 2m7.985s   run                 ok         0      done
	// 16 runs: 11 on time, 5 early, up to 49.904s apart; 17 triggers held, for up to 7.133s
	// <nil>
}

func ExampleSequence() {
	p := ratelimit.Exp(200*time.Millisecond, 2*time.Second)
	p.Jitter = ratelimit.NoJitter()
	clock := ratelimittest.NewClock()
	b, _ := ratelimit.New[string](p, ratelimit.WithClock(clock.Now))
	fmt.Println(ratelimittest.Sequence(b, "key", 6, clock.Sleep))
	// Output: [200ms 400ms 800ms 1.6s 2s 2s]
}

func ExampleSimulate() {
	clock := ratelimittest.NewClock()
	gate, _ := ratelimit.Bucket[int](10, 1, ratelimit.WithClock(clock.Now))
	var crowd ratelimittest.Crowd[int]
	crowd.Sleep = clock.Sleep
	for key := range 50 {
		crowd.Arrivals = append(crowd.Arrivals, ratelimittest.Arrival[int]{Key: key})
	}
	report := ratelimittest.Simulate(gate, crowd)
	longest := report.Longest()
	fmt.Printf("%d let in, %d asks, key %d waited longest: %v\n", len(report.Admitted), report.Asks, longest.Key, longest.Wait())
	// Output: 50 let in, 99 asks, key 49 waited longest: 4.9s
}
