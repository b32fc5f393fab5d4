// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"math"
	"time"
)

// Spread returns an interval between 90 % and 110 % of d that depends on key alone: always the same for the same key, in
// every process. Requeued after it, objects that were reconciled together once drift apart, and stay apart.
func Spread(d time.Duration, key string) time.Duration {
	if d <= 0 {
		return 0
	}
	span := uint64(d / 5)
	shortest := d - d/10
	return shortest + min(time.Duration(scale(mix(fnv(key), 0), span+1)), math.MaxInt64-shortest)
}

// fnv is the FNV-1a hash of s, which is the same in every process.
func fnv(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}
