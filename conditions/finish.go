// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// finish sums up, compares with what is live and builds the list when they differ. end is when the pass ends, which is
// later than the now of its steps when handlers took their time.
func (p *Pass) finish(end time.Time) Result {
	s, sc := p.set, p.scratch
	cause := -1
	if sc.ill {
		cause = p.first(s.counted)
	}
	p.sumUp(cause)

	shown, same := 1, p.same(&sc.root)
	for i := range sc.entries {
		if e := &sc.entries[i]; e.shown {
			shown++
			same = same && p.same(e)
		}
	}
	for i := range sc.derived {
		if e := &sc.derived[i]; e.shown {
			shown++
			same = same && p.same(e)
		}
	}

	r := Result{Conditions: p.live}
	if cause >= 0 {
		r.Cause = s.types[cause].Name
	}
	// Everything shown has a live twin of its own; equal numbers mean nothing of ours is left over.
	if !same || shown != sc.owned {
		r.Conditions, r.Changed = p.build(shown, end), true
	}
	if !sc.due.IsZero() {
		r.RequeueAfter = max(sc.due.Sub(end), 1) // overdue while handlers ran: at once, not never
	}
	if p.memory != nil {
		p.memory.replace(s, sc.held)
	}
	p.close()
	return r
}

// sumUp decides the root and the derived types from the health of the declared ones.
func (p *Pass) sumUp(cause int) {
	s, sc := p.set, p.scratch
	root := &sc.root
	root.shown, root.health = true, good
	if cause < 0 {
		root.status, root.reason, root.message = isTrue, ReasonHealthy, ""
		return
	}
	c := &sc.entries[cause]
	root.health, root.status, root.reason = c.health, truth(c.health), c.reason // the root is positive
	sc.text = appendAbout(sc.text[:0], s.types[cause].Name, c, maxMessage)
	root.message = settle(sc.text, p.liveMessage(root))

	// kstatus: abnormal-true, never both. The marks count only on verdicts that are bad in the end.
	d, about := &sc.derived[0], cause
	for _, i := range s.counted {
		if e := &sc.entries[i]; e.stalled && e.health == bad {
			d, about = &sc.derived[1], i
			break
		}
	}
	c = &sc.entries[about]
	d.shown, d.status, d.reason = true, isTrue, c.reason
	sc.text = appendAbout(sc.text[:0], s.types[about].Name, c, maxQuote)
	d.message = settle(sc.text, p.liveMessage(d))
}

// appendAbout appends "Type: message", or "Type is Status" when there is no message.
func appendAbout(dst []byte, name string, e *entry, limit int) []byte {
	dst = append(dst, name...)
	if e.message == "" {
		return append(append(dst, " is "...), e.status.status()...)
	}
	dst = append(dst, ": "...)
	return appendCut(dst, e.message, limit-len(dst))
}

// same reports whether e is on the object already.
func (p *Pass) same(e *entry) bool {
	if e.live == 0 {
		return false
	}
	c := &p.live[e.live-1]
	return c.Status == e.status.status() && c.Reason == e.reason && c.Message == e.message &&
		c.ObservedGeneration == max(p.generation, 0) && !c.LastTransitionTime.IsZero()
}

// build makes the new list. Nothing in it is shared with live but strings.
func (p *Pass) build(shown int, now time.Time) []metav1.Condition {
	s, sc := p.set, p.scratch
	at := metav1.Time{Time: stamp(now)}
	out := make([]metav1.Condition, 0, shown+len(p.live)-sc.owned)
	out = p.add(out, s.root, &sc.root, at)
	for i := range sc.entries {
		if e := &sc.entries[i]; e.shown {
			out = p.add(out, s.types[i].Name, e, at)
		}
	}
	for i, name := range [...]string{Reconciling, Stalled} {
		if e := &sc.derived[i]; e.shown {
			out = p.add(out, name, e, at)
		}
	}
	if len(p.live) > sc.owned {
		for k := range p.live {
			if s.find(p.live[k].Type, 0) == isForeign {
				out = append(out, p.live[k])
			}
		}
	}
	return out
}

// add appends one of our conditions. Its time moves only with its status, and never back.
func (p *Pass) add(out []metav1.Condition, name string, e *entry, at metav1.Time) []metav1.Condition {
	if e.live > 0 {
		c := &p.live[e.live-1]
		if !c.LastTransitionTime.IsZero() && (c.Status == e.status.status() || c.LastTransitionTime.After(at.Time)) {
			at = c.LastTransitionTime
		}
	}
	return append(out, metav1.Condition{
		Type: name, Status: e.status.status(), ObservedGeneration: max(p.generation, 0),
		LastTransitionTime: at, Reason: e.reason, Message: e.message,
	})
}

// stamp is now as it can be stored: whole seconds, and a time that survives RFC 3339. A clock before 1970 has not been
// set, and the zero time would be refused by the API server.
func stamp(now time.Time) time.Time {
	if s := now.Unix(); s < 0 {
		return time.Unix(0, 0).UTC()
	} else if s > maxUnix {
		return time.Unix(maxUnix, 0).UTC()
	}
	return now.Truncate(time.Second)
}

const maxUnix = 253402300799 // 9999-12-31T23:59:59Z
