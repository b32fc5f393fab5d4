// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package apply reads the children of an owner, carries plans of package ownership out by server-side apply, and maps
// the events of children back to the owner.
//
//	children, err := apply.New(mgr.GetClient(), mgr.GetAPIReader(), set)
//	...
//	err = children.Index(ctx, mgr.GetFieldIndexer())
//	...
//	ctrl.Watches(&corev1.ConfigMap{}, children.Handler())
//	...
//	kids, err := children.Sync(ctx, db, desired(db), ownership.Policy{})
//	ready := kids.Condition("ConfigReady", "ConfigMap")
//	return reconcile.Result{RequeueAfter: kids.RequeueAfter}, err
//
// # Guarantees
//
//   - A create cannot touch a namesake: it is an unforced apply with a resourceVersion no object has. What exists is
//     read live and is ours, or a Conflict that names the holder.
//   - Every other apply names the uid and the resourceVersion it was decided on: a forced apply on an older view would put
//     back a claim that the collector has stripped from a child of an orphaned owner, or that was handed over. Only members
//     are forced. On a child that others keep changing, the third try names the uid alone, after a live read of child and
//     owner.
//   - Every delete names uid, resourceVersion and a propagation policy. After a conflict a live read says whether the
//     object still is a member; a new incarnation is left alone.
//   - An owner is read live, once per pass, before anything is adopted.
//   - Nothing is pruned in a pass in which a declared object could not be applied. A failed delete blocks no other one.
//   - Terminating children are not written and not deleted again.
//   - Where admission forbids blockOwnerDeletion, the reference is written without it.
//   - Desired and cached objects are never changed.
//
// # Assumptions
//
//   - The client reads from a cache that holds the declared kinds, in every namespace that children may be in; it may
//     strip managedFields. The live reader does not read from a cache.
//   - One Applier per set and process.
//   - What tells an orphaned owner from another is a natively claimed child that the cache shows, see Teardown.
//
// # Cost
//
// A pass over converged children sends nothing. A change costs one apply per changed child, a prune one delete per
// child, an adoption one live read per pass; one that another field manager refused is not tried again before the object
// or the declaration changes. A conflict costs one live read and one more write, at most twice. At the
// end of a teardown one live list per label-carried kind confirms that nothing is left. Memory: some 300 bytes for each
// of at most 100 000 remembered children.
//
// # RBAC
//
// What (*ownership.Set).Rules prints. Check reports what is missing.
//
// # Not for
//
// Owners whose children are written by several processes at once, and caches without the declared kinds.
package apply
