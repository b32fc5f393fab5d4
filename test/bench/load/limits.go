// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package load

import "fmt"

// Limits is how many keys fail in the small metrics of ratelimit, ManyLimits in the large ones.
const (
	Limits     = 1000
	ManyLimits = 1_000_000
)

// Attempts is how often a key fails before it succeeds: a cycle is so many calls of When, one of NumRequeues and one of
// Forget.
const Attempts = 8

// LimitCalls is how many calls one cycle over [Limits] keys has.
const LimitCalls = Limits * (Attempts + 2)

// LimitKey is the i-th key. Every call returns strings of its own, as every event brings.
func LimitKey(i int) (namespace, name string) {
	return fmt.Sprintf("team-%02d-production", i%37), fmt.Sprintf("checkout-%08x-%05x", uint32(i)*2654435761, i)
}
