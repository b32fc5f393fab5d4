// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync

import (
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Plan is what Sync would do with an object, decided without a request. When the object passed in is older than this
// writer's last write, Sync reads the live one and decides on that.
type Plan struct {
	Outcome      Outcome       // NoOp, Written (it would be), Stale or Deferred
	Object       string        // kind and namespace/name
	Generation   int64         // of the verdict
	Why          string        // one sentence
	Changes      []string      // what a write changes, one line each: conditions, observedGeneration, payload
	RequeueAfter time.Duration // as in Result
	Findings     []Finding     // as in Result
}

// Empty reports whether there is nothing to do.
func (p Plan) Empty() bool { return p.Outcome == NoOp }

// String prints the plan, a line for the decision and one for each change.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, generation %d: %s: %s", p.Object, p.Generation, p.Outcome, p.Why)
	for _, c := range p.Changes {
		b.WriteString("\n  ")
		b.WriteString(c)
	}
	for _, f := range p.Findings {
		b.WriteString("\n  ")
		b.WriteString(f.String())
	}
	return b.String()
}

func (c *core) plan(obj client.Object, w *want) (Plan, error) {
	v, err := c.view(obj, w.payload)
	if err == nil {
		w.uid = v.uid
		err = c.owned.check(w, &v)
	}
	if err == nil {
		err = c.owned.checkConditions(w)
	}
	if err == nil {
		w.sum(&c.owned)
		err = w.err
	}
	if err != nil {
		return Plan{}, fmt.Errorf("plan status of %s: %w", c.describe(obj), err)
	}
	m := c.memory.get(v.uid)
	s := &c.group.settings
	d := c.owned.decide(&v, w, &m, false, s.now(), s)
	p := Plan{Object: c.describe(obj), Generation: w.generation}
	switch d.verb {
	case write, look:
		p.Outcome, p.Why = Written, d.explain()
		if d.verb == look {
			p.Why = d.why
		}
		p.Changes = c.owned.changes(&v, w)
		p.Findings = c.findings(&d)
	default:
		r := c.unwritten(&d)
		p.Outcome, p.Why, p.RequeueAfter, p.Findings = r.Outcome, r.Why, r.RequeueAfter, r.Findings
		if d.verb == hold {
			p.Changes = c.owned.changes(&v, w)
		}
	}
	return p, nil
}

// explain says why a write is one.
func (d *decision) explain() string {
	if d.changed == changedMessage {
		return "only messages differ, first in " + d.field
	}
	if d.taken {
		return d.field + " was changed by another writer"
	}
	return d.field + " differs"
}

// changes lists what differs, for humans.
func (o *owned) changes(v *view, w *want) []string {
	var out []string
	if o.primary && v.observed != w.generation {
		out = append(out, fmt.Sprintf("observedGeneration: %d -> %d", v.observed, w.generation))
	}
	for _, t := range o.types {
		i, l := find(w.conditions, t, 0), find(v.conditions, t, 0)
		switch {
		case i < 0 && l < 0:
		case i < 0:
			out = append(out, t+": removed")
		case l < 0:
			c := &w.conditions[i]
			out = append(out, fmt.Sprintf("%s: %s/%s (new)", t, c.Status, c.Reason))
		default:
			c, live := &w.conditions[i], &v.conditions[l]
			switch {
			case c.Status != live.Status || c.Reason != live.Reason:
				out = append(out, fmt.Sprintf("%s: %s/%s -> %s/%s", t, live.Status, live.Reason, c.Status, c.Reason))
			case cleanMessage(c.Message) != live.Message:
				out = append(out, t+": message")
			case w.observedBy(c) != live.ObservedGeneration:
				out = append(out, fmt.Sprintf("%s: generation %d -> %d", t, live.ObservedGeneration, w.observedBy(c)))
			case live.LastTransitionTime.IsZero():
				out = append(out, t+": lastTransitionTime")
			}
		}
	}
	for _, t := range o.retired {
		if find(v.conditions, t, 0) >= 0 {
			out = append(out, t+": removed (retired)")
		}
	}
	for i, name := range o.fields {
		switch {
		case v.differs&(1<<i) != 0:
			out = append(out, name+": changed")
		case v.extra&(1<<i) != 0:
			out = append(out, name+": removed")
		}
	}
	return out
}
