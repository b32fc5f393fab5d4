// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers

import (
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrTerminating: a finalizer cannot be added, because the object is already being deleted.
var ErrTerminating = errors.New("object is already being deleted")

// ErrGone: the object does not exist, or another one has its name now.
var ErrGone = errors.New("object is gone")

// ErrContended: others changed the same object's finalizers or progress at every try. Nothing is lost; try again.
// It is a conflict to apierrors.IsConflict, as the same loss is in an update.
var ErrContended error = contended{}

type contended struct{}

// Error says what happened.
func (contended) Error() string { return "object kept changing" }

// Status is that of a lost update.
func (contended) Status() metav1.Status {
	return metav1.Status{Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict}
}

// Error says which request of this package failed, on which object. It matches what it wraps: an API error, or
// [ErrTerminating], [ErrGone], [ErrContended].
//
// The error of the apply callback is never wrapped, so the two can be told apart.
type Error struct {
	Op        string // "store finalizer", "store progress", "remove finalizer", "read live", "hold", "unhold", "sweep"
	Finalizer string
	Object    Ref
	Err       error
}

// Error names the request, the finalizer and the object, in this order.
func (e *Error) Error() string {
	if e.Finalizer == "" {
		return fmt.Sprintf("%s %s: %v", e.Op, e.Object, e.Err)
	}
	return fmt.Sprintf("%s %s on %s: %v", e.Op, e.Finalizer, e.Object, e.Err)
}

// Unwrap is what the request failed with.
func (e *Error) Unwrap() error { return e.Err }

// StepError says which cleanup step failed, and whether it is retried.
type StepError struct {
	Step  string // name of the step
	State State  // where that leaves it
	Err   error  // what Do returned, with what the planner has to add
}

// Error names the step.
func (e *StepError) Error() string { return fmt.Sprintf("cleanup step %q: %v", e.Step, e.Err) }

// Unwrap is the error without the name of the step.
func (e *StepError) Unwrap() error { return e.Err }

// PanicError is the failure of a step that panicked.
type PanicError struct {
	Value any    // what was passed to panic
	Stack []byte // of the goroutine that panicked
}

// Error leaves the stack out: it is long, and errors end in conditions.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }
