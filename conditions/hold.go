// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions

import "time"

// hold takes a change back that has not lasted long enough, and notes when it will have. The condition then stays as it
// is on the object, text included, so nothing is written.
func (p *Pass) hold(t *Type, e *entry, now time.Time) {
	before, ok := p.settled(t, e)
	if !ok || before == e.health {
		return
	}
	worse := e.health < before
	d := t.Hold.Good
	if worse {
		d = t.Hold.Bad
	}
	if d == 0 {
		return
	}
	seen, ok := p.memory.find(t.Name)
	if !ok || seen.generation != p.generation || seen.worse != worse || seen.since.After(now) {
		// A clock that was set back must not prolong the hold beyond its duration.
		seen = pending{typ: t.Name, generation: p.generation, worse: worse, since: now}
	}
	due := seen.since.Add(d)
	if !now.Before(due) {
		return
	}
	sc := p.scratch
	sc.held = append(sc.held, seen)
	if sc.due.IsZero() || due.Before(sc.due) {
		sc.due = due
	}
	if e.live == 0 {
		*e = entry{health: before}
		return
	}
	c := &p.live[e.live-1]
	e.status, e.reason, e.message = truthOf(c.Status), legalReason(c.Reason), legalMessage(c.Message)
	e.health, e.shown = before, true
	sc.ill = sc.ill || before != good && !t.Advisory
}

// settled returns the health that the object shows for t as a verdict on the present generation. ok is false when it
// shows none: never reported, blocked, or established for a spec that is no more. Holding one of those would present a
// guess as an observation.
func (p *Pass) settled(t *Type, e *entry) (h health, ok bool) {
	if e.live == 0 {
		r := p.scratch.root.live
		return good, absent(t) == good && r > 0 && p.live[r-1].ObservedGeneration == p.generation
	}
	c := &p.live[e.live-1]
	if c.ObservedGeneration != p.generation {
		return unknown, false
	}
	shows := truthOf(c.Status)
	if shows == isUnknown && (c.Reason == ReasonNotReported || p.set.isBlock(p.set.index[t.Name], c.Reason)) {
		return unknown, false
	}
	return healthOf(t.Negative, shows), true
}
