// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package statussync writes the status of a Kubernetes object: one server-side apply when something changed, nothing
// when the live object says so already. Written by hand it is a merge that loses another controller's condition, a
// retry that puts an old verdict over a newer one, or a write per pass for ever.
//
// Declare once what is yours, and say in Reconcile what the status should be:
//
//	g, err := statussync.New(mgr.GetClient(), mgr.GetAPIReader(), "database-operator")
//	w, err := statussync.For[Status](g, "health", &v1.Database{}, statussync.Owns{
//		Conditions: []string{"Ready", "ConfigReady"}, Retired: []string{"Synced"}, Primary: true,
//	})
//	…
//	out, err := w.Sync(ctx, db, statussync.Desired[Status]{
//		Generation: db.Generation, Conditions: conds, Status: Status{Endpoint: "db.shop"},
//	})
//	return reconcile.Result{RequeueAfter: out.RequeueAfter}, err
//
// Status is a struct of the fields the writer owns beside conditions and observedGeneration, with JSON tags.
//
// # Guarantees
//
//   - Conditions, observedGeneration and payload go in one request, so nobody sees a half-written status.
//   - What is owned is declared. An owned condition or field that is live and not desired is removed, whoever wrote it
//     before; everything else is foreign and never touched.
//   - A verdict never replaces one of a newer generation, never goes back, and keeps the generation it was computed
//     for. One for generation N is written while the spec is at N+1 already: refusing it would starve a spec that
//     changes fast. The fence is the observedGeneration of what this writer owns, not metadata.generation.
//   - A write names the version it was decided on. The server ignores the uid in a status write, so this is what keeps
//     a verdict off an object that was deleted and made again under the same name.
//   - lastTransitionTime moves with the status only, and never back, whatever the caller passes. The order of conditions
//     is the declared one; other lists keep the caller's order. Messages are cut to what the server takes, on a rune, and
//     characters the server's YAML reader refuses or folds arrive as they are.
//   - A conflict is no error: a live read decides again, and after three tries the outcome is Deferred, with the name of
//     who keeps writing. A write without a version is never the way out.
//   - Neither the object passed in, which may be a cache's, nor the verdict is changed.
//
// # Assumptions
//
// The kind has a status subresource, and its condition list is a map keyed by type ([Group.Check] looks). One process at
// a time writes under a field manager, as leader election arranges; two lose no more than a race for the same verdict.
// Conditions are [k8s.io/apimachinery/pkg/apis/meta/v1.Condition].
//
// No entry in managedFields is of a version that is not served any more: the server refuses every apply then, and the
// error names the version. Resetting them, with a merge patch of metadata.managedFields to [{}], ends that.
//
// A typed cache cannot tell an absent number, boolean or string from a zero one, so a field that only has to become 0 is
// written with the next change. An unstructured one can.
//
// # Cost
//
// Converged, also on a cache that strips managedFields: no request, at most two allocations. A change: one request. A
// cached object older than this writer's last write: none when the verdict is the same, else a live read first. Each of
// at most two conflicts: a live read and one more apply. An object that is gone: one live read more until the writer has
// written once, to tell it from a kind without status subresource. Removing what another manager holds too: one JSON
// Patch before the apply, once; if the cache strips managedFields, the server's refusal comes first. client-go itself
// sends a request again that was answered with Retry-After, up to ten times within ctx.
//
// Writes that change messages only are 30 s apart per object ([WithMessageInterval]); a change of status, reason,
// generation or payload is never held back. What another manager keeps taking from us is taken back at growing
// intervals, from 10 s to 5 min, and reported as [Contested]. A writer remembers the 100 000 objects written last,
// about 0.3 KB each.
//
// # RBAC
//
// On the kind's status subresource: patch. On the kind: get, for the live reader; for [Writer.TakeOver] patch too. Check
// creates SelfSubjectAccessReviews, which every authenticated client may.
//
// # Not for
//
// Status of objects that another controller owns as a whole, conditions of other Go types, Create of objects with a
// status, or values that change with every pass (a heartbeat is a Lease). observedGeneration is the generation last
// judged, not the one last reached: who wants both keeps the latter in a payload field.
package statussync
