// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package ownership decides what an operator does with the children of an object: which to create, change, adopt, let
// go or delete, and whose they are. It is pure: it plans over objects somebody else has read, and package
// ownership/apply carries plans out.
//
//	set, err := ownership.New("children", v1.GroupVersion.WithKind("Database"), []ownership.Kind{
//		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap")},
//		{GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("StatefulSet")},
//		{GroupVersionKind: rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), Cluster: true},
//		{GroupVersionKind: batchv1.SchemeGroupVersion.WithKind("Job"), NeededByCleanup: true},
//	}, ownership.WithFinalizer("example.com/database"))
//	...
//	plan, err := set.Plan(db, desired, live, ownership.Policy{Percent: 50})
//	fmt.Print(plan) // Update ConfigMap team-a/orders: .data.mode differs
//
// A claim says that a child belongs to an owner. Three carriers hold one: a native controller reference, a label with
// the owner's uid plus an annotation naming the owner, and the label of an ApplySet (KEP-3659). The set picks the
// carrier from the scopes of both kinds: a native reference across namespaces, or from a cluster-scoped child to a
// namespaced owner, makes the garbage collector delete the child or leak it.
//
// decisions.md in this directory lists what is decided in every situation; it is made from the planner.
//
// # Guarantees
//
//   - Identity is the uid. A reference to a deleted namesake of the owner is not ownership; the same uid under another
//     apiVersion or kind is, and is corrected in place.
//   - What may be removed is what carries our claim and is of a declared kind. Nothing is inferred from names or values.
//   - A claim the garbage collector does not know is refused on an owner without the finalizer that would clean it up.
//   - On a terminating owner nothing is created but kinds with NeededByCleanup, nothing is adopted, nothing is pruned
//     except by Teardown, and a child whose native reference is gone is left alone.
//   - A member that is as declared is Keep, also when the cache strips managedFields and the process has just started:
//     the hash of what was applied last is in one annotation, and every declared field is compared.
//   - Lists are compared as server-side apply merges them: items of keyed lists by key, so that an injected sidecar is
//     no difference, all other lists whole, so that an extra subject in a RoleBinding is one.
//   - Equal input gives an equal plan. No argument is changed, and the plan shares memory with them, read-only.
//
// # Assumptions
//
//   - The owner passed in was read from the server: it has a uid.
//   - One process applies a set at a time, under one field manager that never changes.
//   - Kinds stay declared, as Retired, until their last child is gone.
//   - Children that others create, from a template with the claim, are of a Found kind.
//
// # Cost
//
// Planning is linear in declared plus live objects and sends nothing. A member whose resourceVersion is the one an
// executor remembers costs one hash of its declaration as it lies in memory. A member that was written by others since,
// as by every status update, costs in addition the encoding of its declaration and of the live object, and one
// comparison.
//
// # RBAC
//
// None. Rules prints what an executor of the set needs.
//
// # Not for
//
// Objects several controllers write parts of without one of them being the owner, and objects outside the API server.
package ownership
