// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimittest

import (
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/ratelimit"
)

// NoStarvation simulates a crowd for as long as its last arrival may take, and fails the test unless every key was let in
// within bound of its arrival and the gate kept its contract. It is a proof for the crowd it is given, rivals included,
// and for no other: give it the crowd you are afraid of.
func NoStarvation[K comparable](t testing.TB, g ratelimit.Gate[K], c Crowd[K], bound time.Duration) Report[K] {
	t.Helper()
	if len(c.Arrivals) == 0 {
		t.Fatal("nobody arrives: that shows nothing")
	}
	last := time.Duration(0)
	for _, a := range c.Arrivals {
		last = max(last, a.At)
	}
	c.For = max(1, last+bound) // zero would be for ever
	r := Simulate(g, c)
	for _, fault := range r.Faults[:min(3, len(r.Faults))] {
		t.Error(fault)
	}
	if longest := r.Longest(); longest.Wait() > bound || len(r.Waiting) > 0 {
		t.Errorf("%v waits for %v since %v and has asked %d times; %v was the bound, %d of %d keys are still waiting",
			longest.Key, longest.Wait(), longest.Arrived, longest.Asks, bound, len(r.Waiting), len(c.Arrivals))
	}
	return r
}
