// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package ratelimit answers two questions of a controller: when to try a key again, and whether it may run now. The
// limiters of a workqueue count calls instead of failures, see no error, never give memory back, have no jitter, and let
// one noisy tenant starve the rest.
//
//	backoff, err := ratelimit.New[reconcile.Request](ratelimit.Exp(200*time.Millisecond, 5*time.Minute),
//		ratelimit.WithClass(ratelimit.Waiting, ratelimit.Flat(15*time.Second)))
//	gate, err := ratelimit.Fair(func(r reconcile.Request) string { return r.Namespace }, 50, 100)
//	…
//	// controller-runtime: reconcilelimit.Wrap(reconciler, backoff, reconcilelimit.WithGates(gate))
//	// any workqueue: workqueue.NewTypedRateLimitingQueue(backoff)
//	// no queue at all:
//	d := backoff.Observe(key, call())
//	if d.Retry() { time.AfterFunc(d.Delay, again) }
//
// A [Backoff] answers when: it holds a deadline for each key that has failed. A [Gate] answers whether now, when a worker
// holds the key: [Bucket], [Fair], [PerRemote] and [Smear] limit how much runs, and remember the keys they send away
// only.
//
// # Guarantees
//
//   - A failure counts if the run had waited for its deadline, whatever happens in between: the count of a key is the
//     number of deadlines it has honoured. (ClientGo counts calls, because client-go does.)
//   - A wait is above zero and never above the cap of its curve, jitter included; jitter is still there at the cap. It is
//     never shorter than a floor (Retry-After), which has a cap of its own. An early run may come before it, see
//     [Backoff.Admit]; what keeps calls away from who has asked for a pause is [Remotes].
//   - What fails by waiting, by a conflict or by a remote's wish does not climb the curve of failures.
//   - Memory is bounded, but for ClientGo and the window of [Smear], and returned. Nothing runs in the background.
//   - Gates reserve nothing when a key is queued, charge nothing before they say yes, and give whoever is sent away a
//     time of its own to come back. Tokens are counted in whole nanoseconds and no clock can mint them.
//
// # Assumptions
//
// Keys are compared by a seeded 64-bit hash and are not kept: two of a million keys share an entry with a probability of
// about 10^-7, and then share a wait. The clock is the monotonic one, so a Backoff does not outlive its process.
// Deadlines are kept to 66 µs, early runs and the age of a row of failures to 134 ms, all of them for 18 years.
//
// # Cost
//
// No request. A key that has failed costs 16 bytes of a table that is between 69 % and 85 % full: 19 to 24 bytes with
// curve, deadline, class, time to live and jitter. The first early run, the first Reset and WithGiveUpAfter with an age
// add 5 to 6 bytes for each key of that kind of table, each. Nothing allocates unless a table grows; an observer costs an
// allocation an event. A key that has not failed costs nothing, and Forget of it a single load while nobody fails.
//
// # RBAC
//
// None.
//
// # Not for
//
// Limits that hold across processes, and retries within a call: there is no method that sleeps.
package ratelimit
