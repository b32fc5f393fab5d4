// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package finalizers runs ordered cleanup when a Kubernetes object is deleted, and keeps the object until it is over.
// A finalizer by hand is four writes to get right (add before the first side effect, never to a terminating object,
// never over somebody else's entry, remove last), and it says nothing about order, progress or what it waits for.
//
// Declare the cleanup once, and put one call into Reconcile:
//
//	f, err := finalizers.New("example.com/cleanup", []finalizers.Step[*v1.Database]{
//		{Name: "backup", Do: r.backup, Deadline: time.Hour},
//		{Name: "volumes", Do: r.dropVolumes, After: []string{"backup"}},
//	})
//	…
//	res, err := f.Sync(ctx, r.Client, mgr.GetAPIReader(), db, r.apply)
//	if res.Phase == finalizers.Cleaning {
//		return r.reportCleanup(ctx, res, err) // res.Progress says what it waits for
//	}
//	return reconcile.Result{RequeueAfter: res.RequeueAfter}, err
//
// decisions.md in this directory lists what is decided for every kind of object; it is made from the planner.
//
// # Guarantees
//
//   - The finalizer is stored before apply runs, and apply gets the object that the server returned for that write.
//     Apply never runs for an object that is seen to be deleted, and no finalizer is ever added to one.
//   - Nobody else's finalizer is lost, re-added or moved. A patch tests the uid and every entry it touches, and carries
//     no resourceVersion, so writes to spec and status do not get in its way. A missing object is never created, and an
//     object that has taken the name of a deleted one is never touched.
//   - A step is called only when every step it comes After is over, and that was stored before (write-ahead), so a crash
//     never goes back behind a step that others have built upon. All steps of a wave are called before one of them is
//     waited for. A step is called at most once a pass.
//   - A step whose Done is stored is not called again by any process that sees it, and processes look before they call
//     steps that others depend on. Until then it may be: Do must be idempotent.
//   - A step is given up only where its declaration says Skip, and an [Event] says that something may have leaked.
//   - Entries under a former name are replaced, all duplicates are removed, slices and objects of the caller are not
//     modified, and a panic in a step is that step's failure.
//
// # Assumptions
//
// One process at a time works on an object, as leader election arranges; two of them lose nothing, but may call a step
// at the same time. The cache may be stale: progress is checked against what this process has written, and before
// ordered steps are called for the first time in a process the object is read live. A cache that does not show the
// deletion yet makes apply run once more, as in every controller. Annotations must not be stripped from the cache of
// the owner's kind.
//
// What a step needs while it runs must still be there: foreground deletion lets the garbage collector take children
// while this finalizer is still on the owner, so what cleanup needs is not claimed by a native owner reference, or is
// kept with [Hold].
//
// # Cost
//
// A live object that has the finalizer: no request, no allocation. The first pass: one PATCH. A cleanup whose steps do
// not depend on each other and are done at once: one PATCH. Otherwise one PATCH for each pass in which the state of a
// step changed and one for each further wave within a pass, plus one GET for each object and process when steps depend
// on each other. A pass that changes nothing sends nothing. Retries are counted in memory and not stored.
//
// # RBAC
//
// On the owner's resource: patch for the writes, get for the live reader. On what is held: patch. For Sweep: list.
//
// # Not for
//
// Deleting children that the garbage collector takes anyway, and work that must run in one transaction: a step runs at
// least once, not exactly once. It is no lock, either: whoever may patch the object may take the finalizer away, which
// [Sweep] notices where holds were left behind.
package finalizers
