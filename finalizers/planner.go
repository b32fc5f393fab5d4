// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers

import (
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// pollAfter is when a step is called again that named no time.
	pollAfter = 10 * time.Second
	// stuckAfter is when a step is called again that waits for somebody.
	stuckAfter = 10 * time.Minute
)

// planner holds the decisions: all of it is pure and knows no object type.
type planner struct {
	name   string
	former []string
	steps  []step // each after everything it waits for
}

// mine reports whether an entry of the list of finalizers is ours, under the current name or a former one.
func (p *planner) mine(entry string) bool {
	return entry == p.name || slices.Contains(p.former, entry)
}

// verb is the decision ladder.
func (p *planner) verb(obj client.Object) Verb {
	list := obj.GetFinalizers()
	if obj.GetDeletionTimestamp() != nil {
		if !slices.ContainsFunc(list, p.mine) {
			return Leave
		}
		return Clean
	}
	if !slices.Contains(list, p.name) {
		return Store
	}
	for _, entry := range list {
		if entry != p.name && slices.Contains(p.former, entry) {
			return Store
		}
	}
	return Keep
}

// storeOps brings the list of a live object to: our name there, former names gone.
func (p *planner) storeOps(obj client.Object) []op {
	list := obj.GetFinalizers()
	ops := renameOps(list, p.former, p.name)
	if len(ops) == 0 {
		ops = addOps(list, p.name)
	}
	return append([]op{testUID(obj.GetUID())}, ops...)
}

// entry reads what we have stored on obj. With an error it is empty, and the cleanup starts over.
func (p *planner) entry(obj client.Object) (document, entry, error) {
	doc, err := readDocument(obj)
	if err != nil {
		return document{UID: obj.GetUID()}, entry{}, err
	}
	e, err := doc.entry(p.name)
	return doc, e, err
}

// resume lays out all steps with what is stored about them. A stored step that is not declared any more is dropped; a
// state this version does not know is a step that was started.
func (p *planner) resume(stored entry) []StepProgress {
	states := make([]StepProgress, len(p.steps))
	for i, s := range p.steps {
		states[i] = StepProgress{Step: s.name, State: StatePending}
		for _, r := range stored.Steps {
			if r.Step == s.name {
				states[i] = r.progress()
			}
		}
	}
	return states
}

// ready lists the steps of the next wave: not over, not called in this pass, and nothing they wait for is open.
func (p *planner) ready(states []StepProgress, called []Outcome) []int {
	var wave []int
	for i, s := range p.steps {
		if states[i].State.Over() || called[i].said() {
			continue
		}
		if !slices.ContainsFunc(s.after, func(j int) bool { return !states[j].State.Over() }) {
			wave = append(wave, i)
		}
	}
	return wave
}

// settle is where one step stands after an outcome. What is over stays over.
func (s step) settle(was StepProgress, o Outcome, now time.Time) StepProgress {
	if was.State.Over() {
		return was
	}
	is := StepProgress{Step: s.name, State: o.state, Attempts: was.Attempts, Err: o.err}
	if o.state == StateDone {
		return is
	}
	is.Since = firstCall(was, now)
	overdue := s.overdue(is.Since, now)
	switch {
	case o.state == StateNamespaceTerminating && s.terminating == Skip:
		is.State, is.Since = StateSkipped, time.Time{}
		is.Err = fmt.Errorf("given up, because nothing can be created in a namespace that is being deleted: %w", o.err)
	case overdue && s.overrun == Skip:
		is.State, is.Since = StateSkipped, time.Time{}
		is.Err = s.late("given up", o)
	case o.state == StateNamespaceTerminating:
		is.Err = fmt.Errorf("needs to create something in a namespace that is being deleted, where nothing can be created: %w", o.err)
	case overdue:
		is.State = StateStuck
		is.Err = s.late("not finished", o)
	}
	if is.State == StateBlocked {
		is.Blocker = o.ref
	}
	return is
}

func (s step) overdue(since, now time.Time) bool {
	return s.deadline > 0 && !now.Before(since.Add(s.deadline))
}

// late says that the deadline has passed and what the step said last.
func (s step) late(what string, o Outcome) error {
	what = fmt.Sprintf("%s after its deadline of %s", what, s.deadline)
	switch {
	case o.err != nil:
		return fmt.Errorf("%s: %w", what, o.err)
	case o.state == StateBlocked:
		return fmt.Errorf("%s: blocked by %s", what, o.ref)
	}
	return fmt.Errorf("%s: still waiting", what)
}

// firstCall is the stored time of a step's first call, or now, in the resolution in which it is stored.
func firstCall(was StepProgress, now time.Time) time.Time {
	if !was.Since.IsZero() {
		return was.Since
	}
	return now.UTC().Truncate(time.Second)
}

// entryOf is what is stored of a progress: pending steps are not.
func (p *planner) entryOf(progress Progress) entry {
	e := entry{Policy: progress.Policy}
	for _, s := range progress.Steps {
		if s.State == StatePending {
			continue
		}
		r := record{Step: s.Step, State: s.State}
		if !s.Since.IsZero() {
			r.Since = s.Since.Format(time.RFC3339)
		}
		if !s.Blocker.IsZero() {
			r.Blocker = &s.Blocker
		}
		e.Steps = append(e.Steps, r)
	}
	return e
}

// cleanOps is the write that brings obj to next: the removal of our entries once every step is over, else the new
// progress. Nil means that the object says it all already. Ours must be on obj.
func (p *planner) cleanOps(obj client.Object, next entry) []op {
	doc, stored, unreadable := p.entry(obj)
	list := obj.GetFinalizers()
	over := p.over(next)
	if over {
		next = entry{}
	}
	var progress []op
	if unreadable != nil || !stored.equal(next) {
		progress = annotationOps(obj.GetAnnotations(), Annotation, doc.with(p.name, next).String())
	}
	ops := []op{testUID(obj.GetUID())}
	switch {
	case over:
		ops = append(ops, removeOps(list, p.mine)...)
	case progress == nil:
		return nil
	default:
		// Another process may have released the object, which others still keep: progress must not come back to it.
		i := slices.IndexFunc(list, p.mine)
		ops = append(ops, entryTest(i, list[i]))
	}
	return append(ops, progress...)
}

func (p *planner) over(e entry) bool { return Progress{Steps: p.resume(e)}.Over() }

// behind reports whether the cached obj must not be acted on, given what this process knows. Steps that wait for each
// other make it strict: a cache that does not show that the second has begun would have the first one called again. The
// first pass of a process knows nothing, so it does not trust the cache then; nor does the pass after a write that was
// not answered, which may have stored the policy of the deletion after its sign was gone.
func (p *planner) behind(obj client.Object, known remembered) bool {
	if known.unsure {
		return true
	}
	if !known.read {
		return slices.ContainsFunc(p.steps, func(s step) bool { return len(s.after) > 0 })
	}
	_, shown, err := p.entry(obj)
	return err != nil || !shown.equal(known.progress)
}

// again is when the next pass is due for its own sake: the soonest of what the steps asked for, of the deadlines that
// are still to come, and of a wave that another process has opened.
func (p *planner) again(states []StepProgress, called []Outcome, now time.Time) time.Duration {
	var soonest time.Duration
	at := func(d time.Duration) {
		if d > 0 && (soonest == 0 || d < soonest) {
			soonest = d
		}
	}
	for i, s := range p.steps {
		switch st := states[i]; st.State {
		case StateWaiting:
			if d := called[i].after; d > 0 {
				at(d)
			} else {
				at(pollAfter)
			}
		case StateBlocked:
			at(pollAfter)
		case StateStuck, StateNamespaceTerminating:
			at(stuckAfter)
		}
		if st := states[i]; s.deadline > 0 && !st.Since.IsZero() && !s.overdue(st.Since, now) {
			at(st.Since.Add(s.deadline).Sub(now))
		}
	}
	if len(p.ready(states, called)) > 0 {
		at(pollAfter)
	}
	return soonest
}
