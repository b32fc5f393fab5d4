// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package ratelimittest helps to choose a curve and to test a gate: [Timeline] shows what a policy makes of a trace of
// events and outcomes, [Sequence] is what a limiter answers when every wait is honoured, and [NoStarvation] runs a crowd
// of keys against a gate, with rivals that always ask first, and finds the key that waits too long.
//
//	text, err := ratelimittest.Timeline(ratelimit.Exp(200*time.Millisecond, 5*time.Minute), ratelimittest.Trace{
//		For:      10 * time.Minute,
//		Triggers: []time.Duration{0, 90 * time.Second},
//		Run:      func(at time.Duration) error { … },
//	})
//
// # Guarantees
//
// Nothing sleeps for real: Timeline and everything that is given a [Clock] run on simulated time, the others in a bubble
// of testing/synctest. What is printed is the same in every run, jitter included.
//
// # Assumptions
//
// Runs take no time, and a queue keeps the earliest time it was given for a key, as those of client-go and
// controller-runtime do.
//
// # Cost
//
// About a microsecond for each time a key asks.
//
// # RBAC
//
// None.
//
// # Not for
//
// Measuring: a simulation knows nothing about locks and caches.
package ratelimittest
