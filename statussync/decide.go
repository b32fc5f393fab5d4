// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync

import (
	"fmt"
	"math/bits"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// verb is what a decision tells the executor to do.
type verb uint8

const (
	keep  verb = iota // nothing to do
	write             // apply
	look              // the cached object is known to be old: read the live one and decide again
	hold              // not yet
	stale             // drop the verdict
	gone              // the object is not the one the verdict is about
)

// change is a set of what differs between a view and a want.
type change uint16

const (
	changedStatus change = 1 << iota
	changedReason
	changedMessage
	changedGeneration
	changedTransition // lastTransitionTime is missing
	changedPayload
	added
	removed // a condition, owned or retired
	removedPayload
)

// decision is the outcome of the pure planner.
type decision struct {
	verb     verb
	why      string
	changed  change
	field    string // the first that differs
	repaired string // the first observedGeneration above the live generation
	taken    bool   // what we wrote was changed by somebody else
	rival    string // who did it last time
	takes    int    // times that happened lately, this one included
	altered  uint64 // payload fields the server is known to store differently
	echo     string // a condition, or observedGeneration, that the server stores differently
	wait     time.Duration
}

// Reasons that are not formatted.
const (
	whySame    = "the live object says so already"
	whyBehind  = "this was written before; the object passed in is older than that write"
	whyLook    = "the object passed in is older than this writer's last write"
	whyName    = "it is contested, and only the live object tells by whom"
	whyAltered = "this was written before; the server stores it differently"
	whyOther   = "the object was deleted and another one has its name"
	whyMissing = "the object does not exist"
	whyMessage = "only messages changed; such writes of one object are spaced"
)

// decide is the whole policy of a writer. It reads nothing but its arguments. fresh says that v was read live, so that
// it cannot be older than our own last write.
//
// The order matters. The incarnation comes first, then the fence, then what this process remembers of its own writes
// (a cached object older than these is no evidence of anything), then the comparison, then the two reasons to wait.
func (o *owned) decide(v *view, w *want, m *memo, fresh bool, now time.Time, s *settings) decision {
	if v.uid != w.uid {
		return decision{verb: gone, why: whyOther}
	}
	if m.known && m.generation > w.generation {
		return decision{verb: stale, why: fmt.Sprintf("this writer has written generation %d; the verdict is for %d", m.generation, w.generation)}
	}
	repaired, refused := o.fence(v, w)
	if refused != "" {
		return decision{verb: stale, why: refused}
	}
	if m.known && !fresh && older(v.resourceVersion, m.resourceVersion) {
		if w.sum(o).all == m.all {
			return decision{verb: keep, why: whyBehind}
		}
		return decision{verb: look, why: whyLook}
	}
	d := decision{repaired: repaired}
	o.compare(v, w, &d)
	if v.odd != 0 && v.odd == m.odd && w.sum(o).payload == m.payload {
		d.altered = v.differs | v.extra
		d.changed &^= changedPayload | removedPayload
	}
	if d.changed == 0 {
		d.verb, d.why = keep, whySame
		if d.altered != 0 {
			d.why = whyAltered
		}
		return d
	}
	if m.known {
		o.contest(v, w, m, now, &d)
		if !d.taken && w.sum(o).all == m.all {
			// We wrote just this, and the object still is what the server made of it: writing again changes nothing.
			d.verb, d.why, d.echo = keep, whyAltered, d.field
			return d
		}
	}
	if d.changed == changedMessage && m.known && s.interval > 0 && !m.messageAt.IsZero() {
		if wait := m.messageAt.Add(s.interval).Sub(now); wait > 0 {
			d.verb, d.why, d.wait = hold, whyMessage, wait
			return d
		}
	}
	if d.taken {
		if wait := m.standUntil.Sub(now); wait > 0 && w.sum(o).all == m.all {
			d.verb, d.wait = hold, wait
			d.why = fmt.Sprintf("%s was taken %d times lately; it is taken back later", d.field, d.takes)
			return d
		}
		if d.contested() && !v.named && !fresh {
			// Rare, since it is backed off, and the name is what whoever has to end the contest needs.
			return decision{verb: look, why: whyName}
		}
	}
	d.verb = write
	return d
}

// fence compares with the live observedGeneration of what this writer owns, never with the object's generation: a
// verdict for N may be written, labelled N, while the spec is at N+1 already. An observedGeneration nothing can have
// observed is no fence.
func (o *owned) fence(v *view, w *want) (repaired, refused string) {
	corrupt := func(observed int64) bool { return v.generation > 0 && observed > v.generation }
	if o.primary {
		switch {
		case corrupt(v.observed):
			repaired = "status.observedGeneration"
		case w.generation < v.observed:
			return "", fmt.Sprintf("status.observedGeneration is %d; the verdict is for %d", v.observed, w.generation)
		}
	}
	dh, lh := 0, 0
	for _, t := range o.types {
		l := find(v.conditions, t, lh)
		if l < 0 {
			continue
		}
		lh = l + 1
		observed := v.conditions[l].ObservedGeneration
		if corrupt(observed) {
			if repaired == "" {
				repaired = "condition " + t
			}
			continue
		}
		if w.generation < observed {
			return "", fmt.Sprintf("condition %s is of generation %d; the verdict is for %d", t, observed, w.generation)
		}
		d := find(w.conditions, t, dh)
		if d < 0 {
			continue
		}
		dh = d + 1
		if by := w.observedBy(&w.conditions[d]); by < observed {
			return "", fmt.Sprintf("condition %s is of generation %d; the verdict's is of %d", t, observed, by)
		}
	}
	return repaired, ""
}

// compare fills in what differs. Order, foreign conditions and lastTransitionTime do not count; a missing
// lastTransitionTime does, since the schema requires it.
func (o *owned) compare(v *view, w *want, d *decision) {
	note := func(c change, field string) {
		if d.changed == 0 {
			d.field = field
		}
		d.changed |= c
	}
	if o.primary && v.observed != w.generation {
		note(changedGeneration, "status.observedGeneration")
	}
	dh, lh := 0, 0
	for _, t := range o.types {
		i, l := find(w.conditions, t, dh), find(v.conditions, t, lh)
		if i >= 0 {
			dh = i + 1
		}
		if l >= 0 {
			lh = l + 1
		}
		switch {
		case i < 0 && l < 0:
		case i < 0:
			note(removed, t)
		case l < 0:
			note(added, t)
		default:
			c, live := &w.conditions[i], &v.conditions[l]
			if c.Status != live.Status {
				note(changedStatus, t)
			}
			if c.Reason != live.Reason {
				note(changedReason, t)
			}
			if cleanMessage(c.Message) != live.Message {
				note(changedMessage, t)
			}
			if w.observedBy(c) != live.ObservedGeneration {
				note(changedGeneration, t)
			}
			if live.LastTransitionTime.IsZero() {
				note(changedTransition, t)
			}
		}
	}
	for _, t := range o.retired {
		if find(v.conditions, t, 0) >= 0 {
			note(removed, t)
		}
	}
	if v.differs != 0 {
		note(changedPayload, o.fieldName(v.differs))
	}
	if v.extra != 0 {
		note(removedPayload, o.fieldName(v.extra))
	}
}

func (o *owned) differs(v *view, w *want) bool {
	var d decision
	o.compare(v, w, &d)
	return d.changed != 0
}

func (o *owned) fieldName(set uint64) string { return o.fields[bits.TrailingZeros64(set)] }

// contest says whether what we wrote last was changed by somebody else since, and how often lately.
func (o *owned) contest(v *view, w *want, m *memo, now time.Time, d *decision) {
	payload := v.odd != m.odd && w.sum(o).payload == m.payload
	d.taken = payload || o.stored(v.conditions) != m.stored || (o.primary && v.observed != m.observed)
	if !d.taken {
		return
	}
	d.takes, d.rival = 1, m.rival
	if now.Sub(m.takenAt) <= takenSpan {
		d.takes += m.takes
	}
}

// contested says whether to report and back off.
func (d *decision) contested() bool { return d.takes >= 2 }

// older says whether version a is known to be older than b. A server whose versions are no numbers tells nothing.
func older(a, b string) bool {
	c, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && c < 0
}
