// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package ashlar is the map of a library of reconciliation building blocks for
// people who write Kubernetes operators and eBPF controllers.
//
// Ashlar is not a framework: every block is a function or a small value that
// drops into a Reconcile that already exists. This package holds no code. Import
// the block you need:
//
//   - [github.com/ashlar-go/ashlar/conditions]: facts and a dependency graph in,
//     the condition list out, with the root cause named.
//   - [github.com/ashlar-go/ashlar/statussync]: one server-side apply of the
//     status per change, none when nothing changed, fenced so that an old verdict
//     never replaces a newer one.
//   - [github.com/ashlar-go/ashlar/finalizers]: cleanup in ordered, resumable steps
//     that a crash, a stale cache or another controller cannot make it forget.
//   - [github.com/ashlar-go/ashlar/ownership]: which children are ours, decided by a
//     pure planner; [github.com/ashlar-go/ashlar/ownership/apply] carries the plan out.
//   - [github.com/ashlar-go/ashlar/conversion]: objects of one version become objects of
//     another and lose nothing; [github.com/ashlar-go/ashlar/conversion/migrate] moves
//     what is stored.
//   - [github.com/ashlar-go/ashlar/ratelimit]: when to try again, may I run now;
//     [github.com/ashlar-go/ashlar/ratelimit/reconcilelimit] wires it into a reconciler.
//   - [github.com/ashlar-go/ashlar/bpfmap]: typed kernel maps whose layout is checked,
//     and of which only the difference is written;
//     [github.com/ashlar-go/ashlar/bpfmap/prog] replaces programs under traffic, and
//     [github.com/ashlar-go/ashlar/bpfmap/sign] says which may be loaded.
//
// # One picture
//
//	                     desired (spec)                     observed (API server, kernel)
//	                           │                                        │
//	             conversion ───┘ any served version                     │
//	                           ▼                                        ▼
//	ratelimit ──► Reconcile ──► finalizers ──► ownership ──► bpfmap   plan = decide(observed, desired)   pure
//	(when to try)              (may I let go?) (children)    (kernel) apply(plan)                        thin
//	                                 │             │            │
//	                                 └──────── facts ───────────┘
//	                                             ▼
//	                                        conditions     facts + dependency graph → conditions, root cause
//	                                             ▼
//	                                        statussync     one status write, fenced by observedGeneration
//
// Data flows one way, and no block imports another: what passes between them is
// plain data ([k8s.io/apimachinery/pkg/apis/meta/v1.Condition], an object, a result
// struct). They meet only in the example operators.
//
// # Four habits
//
//   - Decide, then do. A pure planner returns decisions with reasons; a thin
//     executor holds the client. Preview, tests and exploration use the planner.
//   - Outcomes, not error archaeology. Small enums say what happened; errors say
//     what went wrong and name the object, the field and the rule.
//   - Nothing when nothing changed. A converged object costs no request.
//   - The safe thing is the default. Every write names the incarnation of the
//     object it was decided on; a create can only create; a delete names uid,
//     resourceVersion and an explicit propagation policy; inputs are never mutated.
//
// # One grammar
//
// Where a package has one of these verbs, it means the same thing everywhere:
//
//   - New validates a declaration once and returns every mistake as an error.
//   - Plan is the pure decision; a plan prints, and says why.
//   - Apply carries a plan out.
//   - Sync is Plan followed by Apply.
//   - Check lists findings at start-up: read-only, one sentence each.
//   - Explain is text for humans.
//   - Sweep finds leftovers of the dead, and reports unless told to delete.
//
// Every result has a RequeueAfter (0: nothing is due), so that a reconciler takes
// the soonest. Observation is WithObserver, time is WithClock. Live reads go
// through an uncached reader given by the caller; everything else reads the cache.
//
// # Keys on the wire
//
// All live under ashlar-go.github.io/: the label owner.<set> (the owner's uid), the
// annotation owner-ref.<set> (its coordinates), the annotations applied (a hash),
// cleanup (progress) and conversion (what a version cannot hold), and the finalizer
// hold-<hash of the owner's uid>.
package ashlar
