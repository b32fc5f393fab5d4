// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Outcome is what a step's Do says about its part of the cleanup: [Done], [Wait], [BlockedBy], [Retry] or [Stuck]. The
// zero Outcome says nothing and is treated as [Retry]: a cleanup is never taken for finished because somebody forgot
// to say so.
type Outcome struct {
	state State
	after time.Duration
	ref   Ref
	err   error

	policy metav1.DeletionPropagation
}

// Under adds what the step has found out about the deletion: the policy it really runs under. It is stored with the
// outcome, and every step called afterwards is told, in later passes and other processes, too. A step that finds
// children without their owner reference says Done().Under(metav1.DeletePropagationOrphan), because the owner itself
// shows an orphan deletion for a few seconds only.
func (o Outcome) Under(policy metav1.DeletionPropagation) Outcome {
	o.policy = policy
	return o
}

// Done says that the step has nothing left to clean up. It is stored, and Do is not called again for this object.
// An external system that answers "not found" has nothing left: that is Done, not an error.
func Done() Outcome { return Outcome{state: StateDone} }

// Wait says that the cleanup was started and is still going on. Do is called again after d, or sooner when an event
// arrives; zero or less means ten seconds.
func Wait(d time.Duration) Outcome { return Outcome{state: StateWaiting, after: d} }

// BlockedBy says that the step waits for another object, which is then named in the stored progress. Do is called
// again after ten seconds, or sooner when an event arrives.
func BlockedBy(ref Ref) Outcome { return Outcome{state: StateBlocked, ref: ref} }

// Retry says that the step failed and may succeed when tried again. [Finalizer.Sync] returns err, so that the caller's
// workqueue backs off. An API error with the cause NamespaceTerminating is a class of its own: see
// [Step.InTerminatingNamespace]. A nil err is replaced by one that says so.
func Retry(err error) Outcome {
	if err == nil {
		err = errors.New("retry without an error")
	}
	return Outcome{state: StateRetrying, err: err}
}

// Stuck says that the step cannot go on until somebody does something. Sync returns no error for it, so that no
// workqueue spins; Do is called again every ten minutes, or sooner when an event arrives. A nil err is replaced by one
// that says so.
func Stuck(err error) Outcome {
	if err == nil {
		err = errors.New("stuck without an error")
	}
	return Outcome{state: StateStuck, err: err}
}

// said reports whether o is an outcome at all; in a pass, whether the step was called.
func (o Outcome) said() bool { return o.state != "" }

// normal gives every outcome a known class: the zero value becomes a failure, and a failure that only says that the
// namespace is going away becomes that.
func (o Outcome) normal() Outcome {
	switch o.state {
	case StateDone, StateWaiting, StateBlocked:
		return o
	case StateRetrying, StateStuck:
		if onlyNamespaceTerminating(o.err) {
			o.state = StateNamespaceTerminating
		}
		return o
	}
	return Outcome{state: StateRetrying, err: errors.New("no outcome was returned"), policy: o.policy}
}

// namespaceTerminatingCause is the cause the server gives with the 403 for a create in a terminating namespace. The
// constant lives in k8s.io/api, which this package does not need otherwise.
const namespaceTerminatingCause metav1.CauseType = "NamespaceTerminating"

// onlyNamespaceTerminating reports whether every error in the tree is the refusal of a terminating namespace. One other
// error among several joined ones is something a retry may still clean up, and skipping the step would leak it.
func onlyNamespaceTerminating(err error) bool {
	switch e := err.(type) { //nolint:errorlint // the tree is walked by hand, because errors.As stops at the first match
	case nil:
		return false
	case interface{ Unwrap() []error }:
		all := e.Unwrap()
		for _, err := range all {
			if !onlyNamespaceTerminating(err) {
				return false
			}
		}
		return len(all) > 0
	case apierrors.APIStatus:
		return apierrors.HasStatusCause(err, namespaceTerminatingCause)
	case interface{ Unwrap() error }:
		return onlyNamespaceTerminating(e.Unwrap())
	}
	return false
}
