// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package reconcilelimit wires ratelimit into a controller-runtime reconciler. A limiter alone never sees the error,
// is asked late and under the lock of the queue, and is told to forget a key by every RequeueAfter; so the failures of
// an object under a stream of events are counted wrongly, and whoever throttles with RequeueAfter resets the curve.
//
//	backoff, err := ratelimit.New[reconcile.Request](ratelimit.Exp(200*time.Millisecond, 5*time.Minute))
//	…
//	r, limiter := reconcilelimit.Wrap(reconciler, backoff,
//		reconcilelimit.WithGates(gate),
//		reconcilelimit.WithGeneration(generationOf))
//	return ctrl.NewControllerManagedBy(mgr).
//		For(&v1.Database{}).
//		WithOptions(controller.Options{RateLimiter: limiter}).
//		Complete(r)
//
// # Guarantees
//
//   - The curve of a key changes once for each run, by the error of that run, and only if the run had waited for its
//     deadline. What this package itself returns as RequeueAfter changes nothing.
//   - A trigger while a key waits runs at once if the key has an early run left (three, and one more every 10 s), and
//     otherwise when it has one again, or at the deadline: it is never lost. With WithGeneration a new generation, a
//     deletion included, always runs.
//   - Success, a RequeueAfter of the reconciler, and TerminalError forget the key.
//   - A gate is asked when a worker holds the key. A no costs that worker microseconds, and what earlier gates have
//     charged is given back.
//   - A panic counts as a failure and goes on as it came.
//
// # Assumptions
//
// Both results of Wrap are used, in one controller: the limiter alone counts nothing. The Backoff is used in no other
// way. A key runs in one worker at a time, as every workqueue ensures.
//
// # Cost
//
// No request. A healthy key costs nothing to remember and a few nanoseconds a run; see package ratelimit for the rest.
//
// # RBAC
//
// None.
//
// # Not for
//
// Limiting the requests of a client: a reconciler may make many in one run.
package reconcilelimit
