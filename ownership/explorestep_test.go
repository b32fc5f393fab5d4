// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership_test

// The steps of the model: what the process sends and hears.

import (
	"slices"

	"github.com/ashlar-go/ashlar/ownership"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func contentOf(o ownership.Object) map[string]any { return o.(*unstructured.Unstructured).Object }

// reply is how the server answers a request.
type reply int8

const (
	ok reply = iota
	conflict
	missing
	lost
)

const tries = 3

// explore visits at most limit states and stops early when one of the laws is broken.
func (e *explorer) explore(b budget, passes [2]int8, limit int, stop ...string) {
	w := world{left: b}
	for i, o := range []id{firstA, firstB} {
		w.owners[i] = master{id: o, gen: 1, fin: !e.eager}
	}
	if !e.empty {
		for k := range w.kids {
			w.incs[k] = 1
			w.kids[k] = kid{inc: 1, rv: 1, note: 1, body: 1, hash: firstA}
			w.mem[k] = memo{inc: 1, rv: 1, owner: firstA}
		}
		w.kids[native].ref, w.kids[labelled].label = firstA, firstA
	}
	w.seen, w.shown = w.owners, w.kids
	e.push(w)
	for len(e.todo) > 0 && len(e.seen) < limit && !slices.ContainsFunc(stop, func(law string) bool { return e.hit[law] != "" }) {
		w := e.todo[len(e.todo)-1]
		e.todo = e.todo[:len(e.todo)-1]
		e.environment(w)
		for i := range w.passes {
			if p := w.passes[i]; p.stage == idle && p.passes < passes[i] {
				w := w
				w.passes[i].passes++
				e.begin(&w, i)
				e.push(w)
			} else if p.stage != idle {
				e.request(w, i)
			}
		}
		e.settles(w)
	}
}

// request lets a pass send what it is about to send, and the answer come back, or get lost, or the process end.
func (e *explorer) request(w world, i int) {
	n := w
	r := e.arrives(&n, i)
	e.hears(&n, i, r)
	e.push(n)
	if w.left.faults == 0 {
		return
	}
	w.left.faults--
	for _, arrives := range []bool{false, true} {
		n := w
		if arrives {
			e.arrives(&n, i)
		}
		crash := n
		e.hears(&n, i, lost)
		e.push(n)
		crash.mem = [2]memo{}
		for j := range crash.passes {
			crash.passes[j] = pass{passes: crash.passes[j].passes}
		}
		e.push(crash)
	}
}

func (p *pass) end() { *p = pass{passes: p.passes} }

// begin reads the cache and plans.
func (e *explorer) begin(w *world, i int) {
	p := &w.passes[i]
	p.view = w.seen[i]
	if p.view.id == nobody || p.view.term && !p.view.fin {
		p.end()
		return
	}
	live := w.owners[i]
	p.doomed = live.id != p.view.id || live.term
	p.shown = w.shown[native].inc == w.kids[native].inc && w.shown[native].note == slotOf(p.view.id)+1
	if !p.view.term && !p.view.fin && !e.eager {
		e.goes(p, storing)
		return
	}
	v := view{owner: p.view, kids: w.shown, mem: w.mem, teardown: p.view.term}
	if !v.teardown {
		v.desired = e.declares[i][p.view.gen]
	}
	e.planned(w, i, v)
	if v.teardown && !e.trusting && e.needsEvidence(p) && w.shown[native].inc != 0 && w.shown[native].ref == p.view.id {
		e.goes(p, looking)
	}
}

// planned takes a new plan over.
func (e *explorer) planned(w *world, i int, v view) {
	p := &w.passes[i]
	out := e.decide(v)
	if out.refused {
		p.end()
		return
	}
	p.decided, p.n, p.at, p.try = out.decided, out.n, -1, 0
	switch {
	case v.teardown && p.n == 0 && e.hasty:
		e.goes(p, releasing)
	case v.teardown && p.n == 0:
		e.goes(p, confirming)
	case !e.sure && slices.ContainsFunc(p.decided[:p.n], func(d decision) bool { return d.verb == ownership.Adopt }):
		e.goes(p, asking)
	default:
		e.next(w, i)
	}
}

func (e *explorer) needsEvidence(p *pass) bool {
	return p.view.gc != foreground && slices.ContainsFunc(p.decided[:p.n], func(d decision) bool { return d.verb == ownership.Prune })
}

func (e *explorer) goes(p *pass, s stage) {
	p.stage = s
	if p.requests++; p.requests > 14 {
		e.breaks(lawBounded, "%d requests: %+v", p.requests, p)
	}
}

// next moves on to the next decision that writes.
func (e *explorer) next(w *world, i int) {
	p := &w.passes[i]
	for p.at++; p.at < p.n; p.at++ {
		d := &p.decided[p.at]
		if d.verb == ownership.Keep && d.seen != 0 {
			w.mem[d.kid] = memo{inc: d.inc, rv: d.seen, owner: p.view.id}
		}
		blocked := !d.want && slices.ContainsFunc(p.decided[:p.at], func(d decision) bool { return d.want && !d.applied() })
		if blocked && d.verb == ownership.Prune && !e.careless {
			d.verb = ownership.Keep
		}
		if d.verb.Writes() {
			p.try = 1
			e.goes(p, writing)
			return
		}
	}
	p.end()
}

// arrives is what a request does on the server.
func (e *explorer) arrives(w *world, i int) reply {
	p := &w.passes[i]
	owner := &w.owners[i]
	switch p.stage {
	case storing:
		if owner.id != p.view.id || owner.term {
			return conflict
		}
		owner.fin = true
	case releasing:
		if owner.id != p.view.id {
			return missing
		}
		if k := w.kids[labelled]; k.claimedBy(owner.id) && !k.term {
			e.breaks(lawLeak, "%+v", w)
		}
		owner.fin = false
		e.vanish(owner)
	case writing:
		return e.write(w, p, p.decided[p.at])
	}
	return ok
}

func (e *explorer) vanish(o *master) {
	if o.term && !o.fin && o.gc == background {
		*o = master{}
	}
}

// write is one write to a child.
func (e *explorer) write(w *world, p *pass, d decision) reply {
	me := p.view.id
	k := &w.kids[d.kid]
	was := *k
	last := p.try == tries // by design the last try names the incarnation only
	switch d.verb {
	case ownership.Create, ownership.Update, ownership.Adopt:
		create := d.verb == ownership.Create
		switch {
		case was.inc == 0 && !create && !e.ghost:
			return conflict
		case was.inc != 0 && create && !e.blind:
			return conflict
		case was.inc != 0 && !create && d.inc != was.inc:
			return conflict
		case !create && d.fenced && !e.unfenced && d.rv != was.rv && was.inc != 0:
			return conflict
		case d.kid == native && was.ref != nobody && was.ref != me && !(slotOf(was.ref) == slotOf(me) && was.ref != stranger):
			return conflict // a second controller
		}
		if was.inc == 0 {
			if !create {
				e.breaks(lawGhost, "%+v on %+v", d, *w)
			}
			w.incs[d.kid]++
			*k = kid{inc: w.incs[d.kid]}
		}
		e.judgeApply(w, p, d, was, last)
		k.rv, k.note, k.body, k.hash, k.stray = k.rv+1, slotOf(me)+1, 1, me, nobody
		if d.kid == native {
			k.ref = me
		} else {
			k.label = me
		}
	case ownership.Prune:
		switch {
		case was.inc == 0:
			return missing
		case !e.reckless && (d.inc != was.inc || !last && d.rv != was.rv):
			return conflict
		}
		e.judgeDelete(w, p, d, was, last)
		k.term, k.rv = true, k.rv+1
	case ownership.Release:
		switch {
		case was.inc == 0:
			return missing
		case was.inc != d.inc || was.ref != me && was.label != me:
			return conflict
		}
		k.rv, k.note = k.rv+1, 0
		if k.ref == me {
			k.ref = nobody
		}
		if k.label == me {
			k.label = nobody
		}
	}
	return ok
}

func (e *explorer) judgeApply(w *world, p *pass, d decision, was kid, last bool) {
	me := p.view.id
	if p.view.term {
		e.breaks(lawDoomed, "a terminating owner applies: %+v", *w)
	}
	if d.kid == labelled && !p.view.fin {
		e.breaks(lawPrepared, "%+v", *w)
	}
	if was.inc == 0 {
		return
	}
	if was.stray == me {
		e.breaks(lawOrphan, "taken back: %+v on %+v", d, *w)
	}
	former := func(o id) bool { return o != nobody && o != stranger && o != me && slotOf(o) == slotOf(me) }
	switch {
	case d.verb == ownership.Adopt && p.doomed && !last:
		e.breaks(lawDoomed, "adopted: %+v on %+v", d, *w)
	case d.verb == ownership.Adopt && (was.ref == nobody || former(was.ref)) && (was.label == nobody || former(was.label)):
	case d.verb == ownership.Update && was.claimedBy(me):
	case last:
	default:
		e.breaks(lawForeign, "%+v on %+v", d, *w)
	}
}

func (e *explorer) judgeDelete(w *world, p *pass, d decision, was kid, last bool) {
	me := p.view.id
	if was.term {
		e.breaks(lawTwice, "%+v on %+v", d, *w)
	}
	if !was.claimedBy(me) && !last {
		e.breaks(lawForeign, "%+v on %+v", d, *w)
	}
	if was.stray == me {
		e.breaks(lawOrphan, "deleted: %+v on %+v", d, *w)
	}
	// A natively claimed sibling that lost its reference is the evidence of an orphan deletion, until somebody takes it.
	// One that the cache did not show is none.
	if s := w.kids[native]; p.view.term && d.kid == labelled && s.stray == me && s.ref == nobody && p.shown {
		e.breaks(lawOrphan, "deleted beside an orphan: %+v on %+v", d, *w)
	}
	for _, o := range p.decided[:p.at] {
		if o.want && !o.applied() {
			e.breaks(lawCareful, "%+v", *w)
		}
	}
}

// hears is what the process makes of an answer.
func (e *explorer) hears(w *world, i int, r reply) {
	p := &w.passes[i]
	live := w.owners[i]
	alive := live.id == p.view.id && !live.term
	switch p.stage {
	case storing, releasing:
		p.end()
	case asking:
		if r == lost {
			p.end()
			return
		}
		for j := range p.decided[:p.n] {
			if d := &p.decided[j]; d.verb == ownership.Adopt && !alive {
				d.verb = ownership.Keep
			}
		}
		e.next(w, i)
	case looking:
		if r == lost {
			p.end()
			return
		}
		v := view{owner: p.view, kids: w.shown, mem: w.mem, teardown: true}
		if k := w.kids[native]; k.inc != 0 {
			v.kids[native] = k
		}
		e.planned(w, i, v)
	case confirming:
		if r != lost && w.kids[labelled].label != p.view.id {
			e.goes(p, releasing)
			return
		}
		p.end()
	case writing:
		e.written(w, i, r)
	case reading:
		if r == lost {
			p.decided[p.at].failed = true
			e.next(w, i)
			return
		}
		e.again(w, i)
	case askingAgain:
		d := &p.decided[p.at]
		if r == lost || !alive {
			d.verb, d.failed = ownership.Wait, r == lost
			e.next(w, i)
			return
		}
		if d.verb == ownership.Update {
			d.fenced = false
		}
		p.try++
		e.goes(p, writing)
	}
}

func (e *explorer) written(w *world, i int, r reply) {
	p := &w.passes[i]
	d := &p.decided[p.at]
	k := w.kids[d.kid]
	switch {
	case r == lost, r == conflict && p.try >= tries && d.verb == ownership.Release:
		d.failed = true
		if d.verb == ownership.Prune && e.hopeful {
			w.mem[d.kid] = memo{inc: d.inc, gone: true}
		}
	case r == conflict && p.try == tries && d.verb == ownership.Prune:
		d.failed = true
	case r == conflict:
		e.goes(p, reading)
		return
	case r == ok && d.verb == ownership.Prune:
		w.mem[d.kid] = memo{inc: d.inc, gone: true}
	case r == ok && d.verb == ownership.Release:
		w.mem[d.kid] = memo{}
	case r == ok:
		w.mem[d.kid] = memo{inc: k.inc, rv: k.rv, owner: p.view.id}
	}
	e.next(w, i)
}

// again decides about one child after a conflict, on what is live.
func (e *explorer) again(w *world, i int) {
	p := &w.passes[i]
	d := &p.decided[p.at]
	k := w.kids[d.kid]
	switch d.verb {
	case ownership.Prune:
		switch {
		case k.inc == 0:
			e.next(w, i)
			return
		case k.inc != d.inc:
			d.verb = ownership.Conflict
			e.next(w, i)
			return
		case k.term:
			d.verb = ownership.Wait
			e.next(w, i)
			return
		case !e.set.Claimed(e.master(p.view), e.kid(d.kid, k)):
			d.verb = ownership.Keep
			e.next(w, i)
			return
		}
		d.rv = k.rv
	case ownership.Release:
		if k.inc != d.inc || k.ref != p.view.id && k.label != p.view.id {
			e.next(w, i)
			return
		}
	default:
		v := view{owner: p.view, mem: w.mem, desired: 1 << d.kid}
		v.kids[d.kid] = k
		out := e.decide(v)
		if out.refused {
			d.failed = true
			e.next(w, i)
			return
		}
		*d = out.decided[0]
		switch {
		case !d.verb.Writes():
			if d.verb == ownership.Keep && d.seen != 0 {
				w.mem[d.kid] = memo{inc: d.inc, rv: d.seen, owner: p.view.id}
			}
			e.next(w, i)
			return
		case p.try >= tries && !e.stubborn:
			d.verb = ownership.Wait
			e.next(w, i)
			return
		case d.verb == ownership.Adopt || p.try == tries-1 && d.verb == ownership.Update:
			e.goes(p, askingAgain)
			return
		}
	}
	p.try = min(p.try+1, tries)
	e.goes(p, writing)
}
