// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimittest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/ratelimit"
	"github.com/ashlar-go/ashlar/ratelimit/ratelimittest"
)

func ExampleClock() {
	clock := ratelimittest.NewClock()
	start := clock.Now()
	clock.Sleep(time.Minute) // returns at once
	fmt.Println(clock.Now().Sub(start))
	// Output: 1m0s
}

// printer prints what a test would report.
type printer struct{ testing.TB }

func (printer) Helper()                           {}
func (printer) Error(args ...any)                 { fmt.Println(args...) }
func (printer) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// Ten keys at a gate that lets in one a second: the last one waits for nine seconds.
func ExampleNoStarvation() {
	clock := ratelimittest.NewClock()
	gate, err := ratelimit.Bucket[int](1, 1, ratelimit.WithClock(clock.Now))
	if err != nil {
		fmt.Println(err)
		return
	}
	crowd := ratelimittest.Crowd[int]{Sleep: clock.Sleep}
	for key := range 10 {
		crowd.Arrivals = append(crowd.Arrivals, ratelimittest.Arrival[int]{Key: key})
	}
	var t printer // a test's *testing.T
	report := ratelimittest.NoStarvation(t, gate, crowd, 10*time.Second)
	fmt.Println(len(report.Admitted), report.Longest().Wait())
	// Output: 10 9s
}
