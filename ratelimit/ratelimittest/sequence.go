// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimittest

import "time"

// Sequence returns the waits that a limiter gives to n failures of key in a row, each after the wait of the one before
// was honoured with sleep: the Sleep of the limiter's [Clock], or time.Sleep in a bubble of testing/synctest. It works
// with every workqueue.TypedRateLimiter.
func Sequence[K comparable](limiter interface{ When(K) time.Duration }, key K, n int, sleep func(time.Duration)) []time.Duration {
	waits := make([]time.Duration, n)
	for i := range waits {
		waits[i] = limiter.When(key)
		sleep(waits[i])
	}
	return waits
}
