// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package reconciletest checks reconcilers from the outside. What a unit test asserts about one call, these check about
// everything the reconciler does: that every write is fenced, that nothing shared was changed, and that it holds against
// a server that refuses what a real one refuses.
//
//	laws := reconciletest.NewLawTransport(t, nil)
//	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return laws.Wrap(rt) })
//	// … run the operator: a delete without preconditions now fails the test
//
//	cache := reconciletest.NewMutationDetector(fakeClient)
//	reconciler := &Reconciler{Reader: cache}
//	// … reconcile
//	if err := cache.Check(); err != nil {
//		t.Error(err) // check Deployment shop/web: metadata.labels[app] changed from "web" to "db" in a shared object
//	}
//
//	server, err := reconciletest.NewStrictServer([]reconciletest.Resource{{GroupVersionKind: kind, Plural: "databases"}})
//	config := &rest.Config{Host: "https://strict", Transport: laws.Wrap(server)}
//
// # Guarantees
//
//   - [LawTransport] sees every request of every client made from one rest.Config, whatever library sends it, and holds
//     each against numbered laws, [DeletePolicy] to [Readable]. What it cannot read is a violation, never a pass.
//   - It changes neither requests nor replies.
//   - [MutationDetector] shares objects as an informer cache without deep copies does, and names the field that changed.
//   - [StrictServer] answers as kube-apiserver 1.37 does wherever testdata/rules.txt says something, from preconditions
//     to field management; its garbage collector runs when the test says so. [Rules] replays the file against any server.
//
// # Assumptions
//
//   - Requests go through HTTP: an interceptor or a fake client has no wire form to judge.
//   - MutationDetector.Check is called when the reconciler is done.
//   - Clients of a StrictServer send JSON: set ContentType in rest.Config, or built-in types come as protobuf.
//
// # Cost
//
// No requests of its own. LawTransport holds each body in memory once; the detector two copies of each version read;
// StrictServer every version of every object, because a watch may start at any.
//
// # RBAC
//
// None.
//
// # Not for
//
// Production: it watches, it does not protect. Validation, defaults, admission and controllers: for what StrictServer does
// not have, see its documentation, and use a real control plane.
package reconciletest
