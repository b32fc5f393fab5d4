// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package ownershiptest checks what an operator declares about its children, without a cluster: the set, and the
// function that computes the desired objects.
//
//	func TestChildren(t *testing.T) {
//		ownershiptest.Check(t, ownershiptest.Subject{
//			Set:     controller.Children(),
//			Scheme:  scheme,
//			Owner:   &v1.Database{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "orders", UID: "1"}},
//			Desired: func(o client.Object) []client.Object { return controller.Desired(o.(*v1.Database)) },
//		})
//	}
//
// # Guarantees
//
//   - Check reports, each law as a sub-test: desired objects are legal for the set; two computations are equal; neither
//     owner nor desired objects are changed by planning; one pass converges; the order of declaration does not matter to
//     the outcome; somebody else's objects of the same names stay untouched; a terminating owner creates only what
//     cleanup needs; drift of every declared text is corrected; a teardown leaves nothing.
//   - World holds objects as a server would: uids and resource versions of its own, deletes that respect finalizers.
//   - Walk lives through random deletions, strangers, hand-overs and re-created owners on a server of your choice, and
//     compares the server with a model after every step.
//
// # Assumptions
//
//   - Desired is a function of the owner alone.
//
// # Cost
//
// Check: a few plans per law, in memory. Walk: some thirty requests per step.
//
// # RBAC
//
// Check: none. Walk: everything on ConfigMaps, Secrets and ServiceAccounts of its namespace.
//
// # Not for
//
// What only a server does: defaulting, admission, garbage collection. Test that against a real one.
package ownershiptest
