// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit

import "time"

// Observed is the limiter of the observed face: a workqueue.TypedRateLimiter that counts nothing, because
// [Backoff.Observe] has.
type Observed[K comparable] struct{ b *Backoff[K] }

// Observed returns the limiter to give to a queue whose items are observed.
func (b *Backoff[K]) Observed() *Observed[K] { return &Observed[K]{b} }

// When is [Backoff.Remaining], but never zero, which would mean "again at once": where that is zero, it is the little that
// rounding may have cut off. Asked about a key that is not remembered (it was evicted, or nobody observed it), it answers
// like for a first failure: a queue that asks has seen one.
func (o *Observed[K]) When(key K) time.Duration {
	var wait time.Duration
	if o.b.peek(key, func(sl *slot, now int64) { wait = remaining(now, max(sl.deadline(), now>>tickShift+1)) }) {
		return wait
	}
	return o.b.curves[Transient].after(1, mix(o.b.id(key), 1))
}

// Forget does nothing: controller-runtime calls it for every RequeueAfter, those included that only say "not yet".
func (o *Observed[K]) Forget(K) {}

// NumRequeues is [Backoff.NumRequeues].
func (o *Observed[K]) NumRequeues(key K) int { return o.b.NumRequeues(key) }
