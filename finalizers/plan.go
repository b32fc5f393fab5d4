// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Verb is what a [Plan] decides for an object.
type Verb uint8

const (
	// Leave: the object is being deleted and nothing on it is ours. Neither apply nor cleanup runs.
	Leave Verb = iota
	// Keep: the finalizer is stored; apply runs.
	Keep
	// Store: the finalizer is written, and apply runs on the object that comes back.
	Store
	// Clean: the object is being deleted; the steps of the next wave are called.
	Clean
	// Release: the object is being deleted and every step is over; our entries are removed.
	Release
)

// String is the name of the constant.
func (v Verb) String() string {
	if names := [...]string{"Leave", "Keep", "Store", "Clean", "Release"}; int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("Verb(%d)", v)
}

// Plan is what [Finalizer.Sync] would do with an object. Making one calls nobody and sends nothing.
type Plan struct {
	Verb     Verb     // what is due
	Why      string   // one sentence
	Run      []string // steps that would be called first, in order; what follows depends on their outcomes
	Overdue  []string // those of Run that are past their deadline
	Progress Progress // what is stored, all steps included; zero for a live object
	Patch    []byte   // the JSON Patch that would be sent, where it does not depend on outcomes
}

// Empty reports whether neither a request of this package nor a step is due. Sync would at most call apply.
func (p Plan) Empty() bool { return p.Verb == Leave || p.Verb == Keep }

// String is the decision with its reason.
func (p Plan) String() string {
	s := p.Verb.String()
	if len(p.Run) > 0 {
		s += " " + strings.Join(p.Run, ", ")
	}
	return s + ": " + p.Why
}

// Plan decides what is due for obj, as far as that can be said without calling a step. It does not modify obj.
func (f *Finalizer[T]) Plan(obj T, now time.Time) Plan {
	v := f.verb(obj)
	switch v {
	case Leave:
		return Plan{Verb: v, Why: "the object is being deleted and has no finalizer of ours"}
	case Keep:
		return Plan{Verb: v, Why: "the finalizer is stored"}
	case Store:
		why := "the finalizer is not stored"
		if slices.ContainsFunc(obj.GetFinalizers(), f.mine) {
			why = "a former name of the finalizer is stored"
		}
		return Plan{Verb: v, Why: why, Patch: encode(f.storeOps(obj))}
	}

	_, stored, unreadable := f.entry(obj)
	states := f.resume(stored)
	p := Plan{Verb: Clean, Why: "the object is being deleted", Progress: Progress{Finalizer: f.name, Policy: stored.Policy, Steps: states}}
	if unreadable != nil {
		p.Why += "; progress starts over: " + unreadable.Error()
	}
	if p.Progress.Over() {
		p.Verb, p.Why, p.Patch = Release, "every cleanup step is over", encode(f.cleanOps(obj, stored))
		return p
	}
	for _, i := range f.ready(states, make([]Outcome, len(states))) {
		p.Run = append(p.Run, states[i].Step)
		if !states[i].Since.IsZero() && f.steps[i].overdue(states[i].Since, now) {
			p.Overdue = append(p.Overdue, states[i].Step)
		}
	}
	return p
}
