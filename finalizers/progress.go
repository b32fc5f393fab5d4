// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers

import (
	"errors"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// State is where a cleanup step is. The values are what is stored on the object.
type State string

const (
	StatePending              State = "Pending"              // not called yet: it waits for other steps. Never stored.
	StateWaiting              State = "Wait"                 // started, not finished
	StateBlocked              State = "BlockedBy"            // waits for another object
	StateRetrying             State = "Retry"                // failed, will be tried again
	StateStuck                State = "Stuck"                // needs somebody, or ran past its deadline
	StateNamespaceTerminating State = "NamespaceTerminating" // needs to create something in a namespace that is going away
	StateDone                 State = "Done"                 // over
	StateSkipped              State = "Skipped"              // given up by its policy; something may have leaked
)

// Over reports whether steps that come after this one may start.
func (s State) Over() bool { return s == StateDone || s == StateSkipped }

// NeedsHelp reports whether the step cannot be expected to finish by itself.
func (s State) NeedsHelp() bool { return s == StateStuck || s == StateNamespaceTerminating }

// StepProgress is where one step is. Step, State, Since and Blocker are stored on the object; Attempts and Err are what
// this process knows.
type StepProgress struct {
	Step    string    // name of the step
	State   State     // where it is
	Since   time.Time // first call, in UTC and whole seconds; zero once the step is over
	Blocker Ref       // for StateBlocked

	Attempts int   // calls of Do in this process
	Err      error // why the step is where it is, from the pass that made this
}

// Progress is where a cleanup is. The zero Progress means that none is going on.
type Progress struct {
	Finalizer string                     // whose cleanup it is
	Policy    metav1.DeletionPropagation // that the deletion was seen to run under; stored, so it outlives the sight
	Steps     []StepProgress             // in the order in which they are called; read from an object, only those called so far
}

// Over reports whether every step is.
func (p Progress) Over() bool {
	for _, s := range p.Steps {
		if !s.State.Over() {
			return false
		}
	}
	return true
}

// Err joins the errors of all steps, each as a [*StepError]: those that are retried and those that need somebody.
func (p Progress) Err() error {
	var errs []error
	for _, s := range p.Steps {
		if s.Err != nil {
			errs = append(errs, &StepError{Step: s.Step, State: s.State, Err: s.Err})
		}
	}
	return errors.Join(errs...)
}

// Current is the step to look at first: one that needs somebody, else one that fails, else one that waits. It reports
// false when no step is open.
func (p Progress) Current() (StepProgress, bool) {
	open := func(s StepProgress) bool { return s.State != StatePending && !s.State.Over() }
	for _, look := range []func(StepProgress) bool{
		func(s StepProgress) bool { return s.State.NeedsHelp() },
		func(s StepProgress) bool { return s.State == StateRetrying },
		open,
	} {
		if i := slices.IndexFunc(p.Steps, look); i >= 0 {
			return p.Steps[i], true
		}
	}
	return StepProgress{}, false
}

// String says in one line where each step is, fit for the message of a condition: it changes only when the stored
// progress does. Errors are not in it.
func (p Progress) String() string {
	if len(p.Steps) == 0 {
		return "no cleanup in progress"
	}
	lines := make([]string, len(p.Steps))
	for i, s := range p.Steps {
		lines[i] = s.String()
	}
	return strings.Join(lines, ", ")
}

// String is the step and its state, with the blocker and the time of the first call where there are any.
func (s StepProgress) String() string {
	text := s.Step + ": " + string(s.State)
	if !s.Blocker.IsZero() {
		text += " " + s.Blocker.String()
	}
	if !s.Since.IsZero() {
		text += " since " + s.Since.Format(time.RFC3339)
	}
	return text
}

// ProgressOf reads the progress that is stored on obj, for tools that only look. It reports false when none is stored,
// when it cannot be read, and when it belongs to another incarnation of the object. When several controllers clean up
// after the same object, it is that of the first one, by name of the finalizer, that still has something to do.
func ProgressOf(obj client.Object) (Progress, bool) {
	doc, err := readDocument(obj)
	if err != nil {
		return Progress{}, false
	}
	var first Progress
	for _, name := range doc.names() {
		e, err := doc.entry(name)
		if err != nil {
			continue
		}
		p := Progress{Finalizer: name, Policy: e.Policy}
		for _, r := range e.Steps {
			p.Steps = append(p.Steps, r.progress())
		}
		if !p.Over() {
			return p, true
		}
		if first.Finalizer == "" {
			first = p
		}
	}
	return first, first.Finalizer != ""
}
