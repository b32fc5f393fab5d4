// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit

import "time"

// Gate answers whether a key may run now. It is asked when a worker has taken the key from the queue, not when the key
// is put there: what is reserved then is lost when the queue drops a duplicate. When the answer is no, wait says after
// how long it is worth asking again; it is above zero.
//
// A gate that charges for a yes may also have Refund(key): it takes the charge back when a later gate said no. One that
// learns from outcomes may also have Report(key, error). Package reconcilelimit calls both.
//
// Implementations may be called at the same time, and must not block.
type Gate[K comparable] interface {
	Admit(key K) (wait time.Duration, ok bool)
}
