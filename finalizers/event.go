// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers

import (
	"log/slog"
	"time"
)

// EventKind says what an [Event] is about.
type EventKind string

const (
	// EventStored: the finalizer was stored on a live object.
	EventStored EventKind = "Stored"
	// EventStep: the state of a cleanup step changed, and the change is stored.
	EventStep EventKind = "Step"
	// EventSkipped: a step was given up by its policy; Message says what may have leaked. It is told before the change
	// is stored, so it is told at least once.
	EventSkipped EventKind = "Skipped"
	// EventUnreadable: the stored progress could not be used and the cleanup starts over; Err says why.
	EventUnreadable EventKind = "Unreadable"
	// EventReleased: the cleanup is over and the finalizer is removed.
	EventReleased EventKind = "Released"
)

// Event tells an observer what happened to one object. It is plain data: turn it into a log line, a metric or a
// Kubernetes Event.
type Event struct {
	Kind      EventKind // what happened
	Finalizer string    // its name
	Object    Ref       // whose finalizer it is

	// Regarding is what a Kubernetes Event should regard: the object, or its Namespace when that is being deleted. An
	// Event can no longer be created in a terminating namespace, but one that regards the Namespace lands in "default".
	Regarding Ref

	Step    string // for EventStep and EventSkipped
	State   State  // the new state of the step
	Blocker Ref
	Since   time.Time // when the step was first called
	Message string    // one sentence
	Err     error
}

// LogValue groups the fields that are set.
func (e Event) LogValue() slog.Value {
	attrs := make([]slog.Attr, 0, 9)
	attrs = append(attrs, slog.String("kind", string(e.Kind)), slog.String("finalizer", e.Finalizer),
		slog.String("object", e.Object.String()))
	if e.Step != "" {
		attrs = append(attrs, slog.String("step", e.Step), slog.String("state", string(e.State)))
	}
	if !e.Blocker.IsZero() {
		attrs = append(attrs, slog.String("blocker", e.Blocker.String()))
	}
	if !e.Since.IsZero() {
		attrs = append(attrs, slog.Time("since", e.Since))
	}
	if e.Message != "" {
		attrs = append(attrs, slog.String("message", e.Message))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	return slog.GroupValue(attrs...)
}
