// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package conversion converts the objects of a custom resource between API versions without losing what a version cannot
// hold. A conversion webhook by hand loses zeros, unknown fields and everything that is new whenever an old client writes,
// and one object it fails on takes LIST, garbage collection and namespace deletion of its kind down with it.
//
// Register typed functions, build once, mount:
//
//	b := conversion.New(schema.GroupKind{Group: "db.example.com", Kind: "Database"})
//	conversion.Pair(b, "v1alpha1", "v1beta1", upAlpha, downAlpha) // func(context.Context, *v1alpha1.Database, *v1beta1.Database) error
//	b.Same("v1beta1", "v1")
//	databases, err := b.Build() // or every pair of versions without a way
//	…
//	h, err := conversion.Handler([]*conversion.Converter{databases})
//	mgr.GetWebhookServer().Register("/convert", h)
//
// # Guarantees
//
//   - What two versions have in common passes byte for byte: zeros that omitempty drops, empty lists and objects, unknown
//     fields, 1000m and 60s, integers beyond 2^53. Only a function of a pair changes anything.
//   - What the target cannot hold is kept in one annotation, as path, old and new value, and comes back where nobody has
//     edited the place since. An edit at the old version wins. There is no annotation if nothing is lost.
//   - Items of lists are known again by their keys, or by their content. What is ambiguous is dropped and counted, never
//     given to another item.
//   - spec and status count as there when they are empty: what only a newer version holds in them stays. Further down, who
//     removes an object has removed all of it.
//   - What a third version keeps is seen at every version that can hold it, whichever version is stored.
//   - Inputs are never modified, answers share no memory with them, and the same input has the same answer.
//   - The handler answers every well-formed review by a well-formed answer. An answer names every failure: object,
//     versions, path. A panic in a function fails its review and nothing else.
//
// The law in one sentence: lossless for every client that keeps annotations it does not know. A client that writes without
// the annotation has replaced the object, and what only the annotation held is gone; kubectl replace of an old manifest is
// such a client, kubectl edit, patch and apply are not. A manifest exported at an old version contains the annotation and
// puts back what was kept at that time: see [Export] and [Owners].
//
// Server-side apply keeps annotations, too. But where a manager applies less than before, the API server takes the rest away
// by way of the versions of all managers, with one annotation for all: a field may stay that those versions cannot hold,
// and what no manager owns may go. It also refuses an apply that takes the last field of an object (null, 422).
//
// # Assumptions
//
// Functions of pairs depend on nothing but their arguments, and do not keep them. The schemas of the versions hold the
// fields of the Go types, which [Converter.Check] finds out. The annotation can be written by whoever may write an object:
// [WithKeys] signs it.
//
// An API server asks with partial objects, too: without spec, without metadata, with status only. Functions must take
// them; nil pointers are the usual surprise.
//
// # Cost
//
// A review of one object of 2 KiB takes about two fifths of controller-runtime's processor time although every answer is
// converted back to see what it has lost; one between versions with the same schema takes a tenth, one from the cache a
// fifteenth. kube-apiserver 1.37 sends reviews of one object only, so this is what counts; its own work for an object is
// ten times as much, so no converter makes LIST twice as fast. Memory is that of the review and its answer. No request is
// ever sent.
//
// # RBAC
//
// None: nothing here talks to a server. Check reads a definition that the caller got.
//
// # Not for
//
// Validation, defaulting and anything that needs a look at other objects: a conversion runs inside every read.
package conversion
