// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Step is one named part of a cleanup.
type Step[T client.Object] struct {
	// Name identifies the step in stored progress, so renaming a step restarts it for the objects that are being
	// deleted right now. It must be a qualified name as Kubernetes understands it, at most 63 characters.
	Name string

	// After lists the steps that must be over before this one starts. Steps without open dependencies form a wave: Do
	// is called for all of them, in the order of declaration, before any of them is waited for. Two steps of which
	// each waits for the other's deletion to start belong into one wave.
	After []string

	// Do performs the step or looks at how far it is. It must be idempotent: it is called again after every outcome
	// other than [Done], after a crash, and when a stale cache shows an object whose cleanup is already over. It runs
	// for terminating objects only. A panic becomes a [Retry].
	Do func(context.Context, Deletion[T]) Outcome

	// Deadline is how long the step may take, counted from the stored time of its first call, with a resolution of one
	// second. Zero means no limit. Do is called once more before Overrun is applied, so a process that was away all
	// the time has still tried.
	Deadline time.Duration

	// Overrun says what happens past the deadline. [Block], the default, makes the step Stuck: it is still tried every
	// ten minutes and the finalizer stays. [Skip] gives the step up, with an event that says what may have leaked.
	Overrun Policy

	// InTerminatingNamespace says what happens when the step fails because nothing can be created in a namespace that
	// is being deleted. [Block], the default, makes the step stuck with that sentence; [Skip] gives it up, with an
	// event.
	InTerminatingNamespace Policy
}

// Policy says what happens to a step that cannot be finished.
type Policy uint8

const (
	// Block keeps the finalizer until the step is done or somebody intervenes.
	Block Policy = iota
	// Skip gives the step up and goes on; what it should have cleaned up may be left behind.
	Skip
)

// String is the name of the constant.
func (p Policy) String() string {
	switch p {
	case Block:
		return "Block"
	case Skip:
		return "Skip"
	}
	return fmt.Sprintf("Policy(%d)", p)
}

// Deletion is what a step is told about the deletion it works for.
type Deletion[T client.Object] struct {
	// Object is the terminating object as the caller read it, or fresher. It may be shared with a cache: do not modify
	// it.
	Object T

	// Policy is the propagation policy that the deletion is known to run under: Foreground when the garbage collector's
	// finalizer foregroundDeletion was seen on the object, Orphan when orphan was, or what a step has found out, see
	// [Outcome.Under]. It is stored, because both go away long before a cleanup ends: the references of an orphan
	// deletion are stripped within seconds. Empty stands for a background deletion, but also for an orphan deletion
	// that was over before the first pass: the owner looks the same in both cases, only the children do not.
	Policy metav1.DeletionPropagation

	// Since is when this step was first called for this object: the stored time, or now in the first pass.
	Since time.Time
}

// propagation derives the policy from the garbage collector's own finalizers. The API server puts them there when it
// accepts the DELETE and forbids both at once.
func propagation(finalizers []string) metav1.DeletionPropagation {
	for _, name := range finalizers {
		switch name {
		case metav1.FinalizerDeleteDependents:
			return metav1.DeletePropagationForeground
		case metav1.FinalizerOrphanDependents:
			return metav1.DeletePropagationOrphan
		}
	}
	return ""
}
