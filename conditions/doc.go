// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package conditions turns what a controller found out into status conditions that agree with each other. By hand one
// fault shows as three, Ready gives the reason of a consequence, times and generations move when nothing happened, and
// one illegal reason makes the API server refuse the whole status.
//
// Declare once which types there are and what each needs; in every Reconcile give verdicts, in any order, and store what
// comes out:
//
//	var health = conditions.MustNew("Ready",
//		conditions.Type{Name: "ConfigReady"},
//		conditions.Type{Name: "StorageReady", Needs: []string{"ConfigReady"}},
//		conditions.Type{Name: "VersionSkew", Negative: true},
//	)
//	…
//	pass := health.Begin(db.Status.Conditions, db.Generation, nil)
//	pass.True("ConfigReady", "Applied", "")
//	pass.False("StorageReady", "DiskFull", "volume data-0 is full")
//	r, err := pass.Done(time.Now())
//	// r.Conditions: Ready False (DiskFull), ConfigReady True, StorageReady False, Reconciling True
//
// [Evaluate] calls a handler for each type instead. [Summarize] and [Tally] make one condition out of many objects,
// [Mirror] takes one over from another object, [Read] gets them out of an unstructured one. The file decisions.md in
// this folder lists what is decided in every case; it is generated from the code.
//
// # Guarantees
//
//   - Health first: polarity and absence are judged once, and edges, root and cause look at nothing else. Absence of a
//     positive type is Unknown, never good. The root is False when any type is bad, else Unknown when any is Unknown,
//     else True. Its reason and message are those of the cause: the first bad type in topological order, else the first
//     Unknown one that is not blocked itself. An advisory type is reported all the same and counts for nothing.
//   - A type that needs one which is not good is Unknown with reason BlockedBy<that type>, never a second False. The text
//     the caller gave it follows on a new line.
//   - The outcome does not depend on the order of verdicts, live conditions or members, nor, in Evaluate, on timing. It
//     is a fixpoint: the same verdicts on the outcome, or the outcome itself as verdicts with the same marks, change
//     nothing.
//   - lastTransitionTime moves with the status and not otherwise, never back, in whole seconds. Every condition carries
//     the generation given to Begin.
//   - Every condition of the set passes the validation of apimachinery for any input: a reason that is not legal is
//     mended, a message is cut at 32768 bytes on a rune boundary and says how much is missing, broken UTF-8 is replaced.
//     A long message stands on its own type and on the root; wherever else it is quoted 1 KiB of it is, in a summary less.
//   - Types that are not declared belong to others: neither counted nor touched, kept in their order behind ours. Retired
//     types are removed. A verdict on a type that takes none is an error that names it, and costs no other verdict.
//   - kstatus' types are derived: Stalled when a bad verdict was marked as pointless to retry, else Reconciling while the
//     root is not True. They are True or absent, never both, and the root does not depend on them.
//   - A hold delays a change that has to prove itself, in the direction declared, and only while the generation for which
//     the shown verdict was given lasts. RequeueAfter says when it ends. Edges and root see what is shown.
//   - Nothing passed in is modified. What is returned shares no memory with it but strings, except that an unchanged
//     outcome is the live slice itself.
//   - A panic in a handler is an error of its type. When the context ends, nothing is decided.
//
// # Assumptions
//
// One controller decides about the types of a set on one object, and live conditions and generation come from one read of
// it. Redactors are pure. Holds need a [Memory], which lives in the process: a restart, or a move to another replica,
// holds a change once more.
//
// # Cost
//
// No requests. A pass is O(types + edges + live conditions); its order is computed in [New]. An unchanged one allocates
// nothing, held and blocked types included, and so does [Evaluate] without options; a changed one allocates the list and
// the texts that are new. Summarize is O(members); Tally is O(log members) for each change and constant for the summary.
//
// # RBAC
//
// None.
//
// # Not for
//
// Writing status: storing the result without losing somebody else's conditions, or the newer generation's, is the
// business of a status writer such as package statussync. Counting: a condition says what is, not how often it was.
// State machines: conditions are observations, and the next pass must reach the same verdicts without them.
package conditions
