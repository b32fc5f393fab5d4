// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers

// The steps of the model: what a process sends and hears, what steps answer, and what everybody else does.

import "slices"

type reply int8

const (
	ok reply = iota
	refused
	missing
	lost
)

// explore visits at most limit states and stops early when one of the laws is broken.
func (e *explorer) explore(start thing, b budget, passes [2]int8, limit int, stop ...string) {
	e.two = passes[1] > 0
	w := world{live: start, cached: [2]thing{start, start}, left: b}
	e.push(w)
	for len(e.todo) > 0 && len(e.seen) < limit && !slices.ContainsFunc(stop, func(law string) bool { return e.hit[law] != "" }) {
		w := e.todo[len(e.todo)-1]
		e.todo = e.todo[:len(e.todo)-1]
		e.environment(w, passes)
		for i := range w.procs {
			switch p := &w.procs[i]; {
			case p.stage != idle:
				e.request(w, i)
			case p.passes < passes[i]:
				n := w
				n.procs[i].passes++
				e.begin(n, i, e.push)
			}
		}
		e.settles(w)
	}
}

// request lets a pass send what it is about to send, and the answer come back, or get lost, or the process end.
func (e *explorer) request(w world, i int) {
	n := w
	r := e.arrives(&n, i)
	e.hears(n, i, r, e.push)
	if w.left.faults == 0 {
		return
	}
	w.left.faults--
	for _, arrives := range []bool{false, true} {
		n := w
		if arrives {
			e.arrives(&n, i)
		}
		e.hears(n, i, lost, e.push)
		n.procs[i] = process{passes: n.procs[i].passes, reborn: true} // the process ends
		e.push(n)
	}
}

func end(w world, i int) world {
	p := &w.procs[i]
	*p = process{passes: p.passes, known: p.known, reborn: p.reborn}
	return w
}

func (e *explorer) goes(w world, i int, s stage, push func(world)) {
	p := &w.procs[i]
	p.stage = s
	if p.requests++; p.requests > 20 {
		e.breaks(lawBounded, "%+v", p)
		push(end(w, i))
		return
	}
	push(w)
}

// begin reads the cache.
func (e *explorer) begin(w world, i int, push func(world)) {
	p := &w.procs[i]
	p.view = w.cached[i]
	if p.view.inc == 0 {
		push(end(w, i))
		return
	}
	if p.known.inc != p.view.inc || e.policy.fresh {
		p.known = facts{inc: p.view.inc}
	}
	e.change(w, i, push)
}

// change is the loop of the same name.
func (e *explorer) change(w world, i int, push func(world)) {
	p := &w.procs[i]
	v := e.verbOf(p.view)
	switch {
	case v == Leave, v == Clean && p.known.released:
		push(end(w, i))
	case v == Keep, v == Store && e.early:
		if l := w.live; l.inc == p.view.inc && !l.term && !l.has(ours) {
			e.breaks(lawStored, "%+v", w)
		}
		if v == Store {
			e.send(w, i, storing, note{}, push)
			return
		}
		push(end(w, i))
	case !p.fresh && !e.trusting && (v == Store && p.known.stored && !e.forgets || v == Clean && e.behind(p)):
		e.goes(w, i, looking, push)
	case v == Store:
		e.send(w, i, storing, note{}, push)
	default:
		p.called = said{}
		e.load(p)
		e.waves(w, i, push)
	}
}

func (e *explorer) behind(p *process) bool {
	known := remembered{read: p.known.read, unsure: p.known.unsure, progress: e.entry(p.known.progress)}
	return e.planner.behind(e.object(p.view), known)
}

// load takes over what the object says, and what this pass has heard.
func (e *explorer) load(p *process) {
	p.now = p.view.note.steps
	if e.policy.fresh {
		p.now = said{}
	}
	for i, s := range p.called {
		if s != pending && p.now[i] != done {
			p.now[i] = s
		}
	}
	e.learn(p)
}

func (e *explorer) learn(p *process) {
	if p.policy = p.view.note.policy; e.deaf {
		p.policy = 0
	}
	for _, entry := range p.view.list {
		if entry == foregroundGC || entry == orphanGC {
			p.policy = entry
		}
	}
}

// waves calls the next steps, or stores what they have said.
func (e *explorer) waves(w world, i int, push func(world)) {
	p := &w.procs[i]
	wave := e.ready(p)
	if len(wave) == 0 {
		e.store(w, i, ending, push)
		return
	}
	if p.called != (said{}) && !e.hasty {
		e.store(w, i, midway, push)
		return
	}
	e.run(w, i, wave, push)
}

func (e *explorer) ready(p *process) []int {
	return e.planner.ready(e.progress(p.now), outcomes(p.called))
}

// run calls a wave; each step may answer in several ways.
func (e *explorer) run(w world, i int, wave []int, push func(world)) {
	p := &w.procs[i]
	at := slices.IndexFunc(wave, func(s int) bool { return p.called[s] == pending })
	if at < 0 {
		e.waves(w, i, push)
		return
	}
	s := wave[at]
	e.call(&w, i, s)
	for _, answer := range []int8{done, waits, stuck} {
		n := w
		left := [...]*int8{waits: &n.left.waits, done: nil, stuck: &n.left.stucks}[answer]
		if left != nil {
			if *left == 0 || e.quiet {
				continue
			}
			*left--
		}
		n.procs[i].called[s] = answer
		if answer == done {
			n.over[p.view.inc-1][s] = done
		}
		settled := e.planner.steps[s].settle(e.progress(p.now)[s], outcomes(n.procs[i].called)[s], noon)
		n.procs[i].now[s] = int8(slices.Index(states[:], settled.State))
		e.run(n, i, wave, push)
	}
}

// call is one call of a step.
func (e *explorer) call(w *world, i, s int) {
	p := &w.procs[i]
	l := w.live
	here := l.inc == p.view.inc
	switch {
	case !p.view.term, !p.view.mine():
		e.breaks(lawHeld, "step %d: %+v", s, *w)
	case s == volumes && here && l.mine() && l.note.steps[backup] != done:
		e.breaks(lawOrder, "%+v", *w)
	case !e.two && s == backup && here && w.begun[p.view.inc-1][volumes] != pending:
		e.breaks(lawAgain, "%+v", *w)
	case !e.two && w.seen != 0 && here && l.note.policy == w.seen && p.policy != w.seen:
		e.breaks(lawPolicy, "%+v", *w)
	}
	w.begun[p.view.inc-1][s] = waits
}

func isOver(s said) bool { return s == said{done, done, done} }

// store writes what has changed.
func (e *explorer) store(w world, i int, s stage, push func(world)) {
	p := &w.procs[i]
	p.tries, p.refused = 0, 0
	e.send(w, i, s, note{steps: p.now, policy: p.policy}, push)
}

// send prepares the patch of a stage, as the executor does.
func (e *explorer) send(w world, i int, s stage, next note, push func(world)) {
	p := &w.procs[i]
	if s == ending && e.eager && !isOver(next.steps) && !slices.Contains(next.steps[:], pending) {
		next.steps = said{done, done, done}
	}
	body := e.opsOf(s, p.view, next)
	switch {
	case body == 0 && s == midway:
		e.run(w, i, e.ready(p), push)
		return
	case body == 0:
		push(end(w, i))
		return
	case body == p.refused && !e.stubborn:
		push(end(w, i)) // the server does not want it
		return
	}
	if p.tries++; p.tries > maxTries && !e.stubborn {
		push(end(w, i))
		return
	}
	p.body = body
	e.goes(w, i, s, push)
}

// arrives is what a request does on the server.
func (e *explorer) arrives(w *world, i int) reply {
	p := &w.procs[i]
	switch p.stage {
	case storing, midway, ending:
	default:
		if w.live.inc != p.view.inc {
			return missing
		}
		return ok
	}
	if w.live.inc == 0 {
		return missing
	}
	a := e.patch(p.body, w.live)
	if !a.ok {
		return refused
	}
	e.judge(w, p, a.next)
	w.live, p.reply = a.next, a.next
	w.vanish()
	return ok
}

func (w *world) vanish() {
	if w.live.term && w.live.list == ([5]int8{}) {
		w.live = thing{}
	}
}

func (e *explorer) judge(w *world, p *process, next thing) {
	was := w.live
	if was.inc != p.view.inc {
		e.breaks(lawNewcomer, "%+v", *w)
	}
	if was.others() != next.others() || was.other != next.other {
		e.breaks(lawOthers, "%v -> %v", was, next)
	}
	if was == next && p.stage != storing {
		e.breaks(lawFree, "%+v", *w)
	}
	n := 0
	for _, entry := range next.list {
		if entry == ours {
			n++
		}
	}
	if n > 1 && p.stage == storing && !e.two && !p.reborn {
		e.breaks(lawOnce, "%v -> %v", was, next)
	}
	if was.mine() && !next.mine() {
		if over := w.over[was.inc-1]; !was.term || !isOver(over) {
			e.breaks(lawDone, "%+v", *w)
		}
	}
	if !next.mine() && next.note != (note{}) {
		e.breaks(lawRest, "%+v", *w)
	}
	if next.note.policy != 0 {
		w.seen = next.note.policy
	}
}

// hears is what the process makes of an answer.
func (e *explorer) hears(w world, i int, r reply, push func(world)) {
	p := &w.procs[i]
	switch p.stage {
	case storing, midway, ending:
		e.written(w, i, r, push)
		return
	}
	was := p.stage
	switch {
	case r == lost:
		push(end(w, i))
		return
	case r == missing:
		p.known.released = p.known.released || was == againTwo || was == againThree
		push(end(w, i))
		return
	}
	p.view, p.fresh = w.live, true
	switch was {
	case looking:
		if e.verbOf(p.view) == Clean {
			p.known.read, p.known.unsure, p.known.progress = true, false, p.view.note
		}
		e.change(w, i, push)
	case againOne:
		e.change(w, i, push)
	default:
		if e.verbOf(p.view) != Clean {
			p.known = facts{inc: p.view.inc, released: true}
			push(end(w, i))
			return
		}
		e.load(p)
		s := midway
		if was == againThree {
			s = ending
		}
		e.send(w, i, s, note{steps: p.now, policy: p.policy}, push)
	}
}

func (e *explorer) written(w world, i int, r reply, push func(world)) {
	p := &w.procs[i]
	s := p.stage
	switch {
	case r == lost:
		p.known.stored = p.known.stored || s == storing && !e.certain
		p.known.unsure = s != storing && !e.certain
		push(end(w, i))
		return
	case r == missing:
		if s != storing {
			p.known = facts{inc: p.view.inc, released: true}
		}
		push(end(w, i))
		return
	case r == refused && !e.sloppy:
		p.refused = p.body
		e.goes(w, i, againOne+(s-storing), push)
		return
	}
	if r == ok {
		p.view, p.reply = p.reply, thing{}
	}
	p.fresh = true
	if s == storing {
		p.known.stored = true
		if r == ok && p.view.has(ours) || e.early {
			push(end(w, i)) // and apply runs
			return
		}
		e.change(w, i, push)
		return
	}
	switch {
	case !isOver(p.now):
		p.known.read, p.known.unsure, p.known.progress = true, false, note{steps: p.now, policy: p.policy}
		if s == midway {
			e.learn(p)
			e.run(w, i, e.ready(p), push)
			return
		}
		push(end(w, i))
	case r == ok && e.verbOf(p.view) == Clean:
		e.send(w, i, s, note{steps: p.now, policy: p.policy}, push)
	default:
		p.known = facts{inc: p.view.inc, released: true}
		push(end(w, i))
	}
}

// environment is everybody else.
func (e *explorer) environment(w world, passes [2]int8) {
	for _, n := range e.collect(w, true) {
		e.push(n)
	}
	l := w.live
	if l.inc != 0 && !l.term && w.left.deletes > 0 {
		for _, gc := range []int8{0, foregroundGC, orphanGC} {
			n := w
			n.left.deletes--
			n.live.term = true
			n.live.add(gc)
			n.vanish()
			e.push(n)
		}
	}
	if l.inc == 0 && w.left.creates > 0 {
		n := w
		n.left.creates--
		n.live, n.seen = thing{inc: 2}, 0
		n.live.add(theirs)
		e.push(n)
	}
	if l.inc != 0 && w.left.others > 0 {
		w.left.others--
		n := w
		n.live.other = !l.other
		e.push(n)
		n = w
		if l.has(theirs) {
			n.live.remove(theirs)
			n.vanish()
		} else if !l.term && l.list[4] == 0 {
			copy(n.live.list[1:], l.list[:4])
			n.live.list[0] = theirs // at the front, where it moves everything
		}
		e.push(n)
		w.left.others++
	}
	for i := range w.procs {
		if w.left.restarts > 0 && passes[i] > 0 && w.procs[i].stage == idle && w.procs[i].known != (facts{}) {
			n := w
			n.left.restarts--
			n.procs[i].known, n.procs[i].reborn = facts{}, true
			e.push(n)
		}
	}
}

// collect lists what caches and the garbage collector do next; without all, only the first of it.
func (e *explorer) collect(w world, all bool) (out []world) {
	for i := range w.cached {
		if w.cached[i] != w.live && (e.two || i == 0) {
			n := w
			n.cached[i] = w.live
			if out = append(out, n); !all {
				return out
			}
		}
	}
	for _, gc := range []int8{foregroundGC, orphanGC} {
		if w.live.has(gc) {
			n := w
			n.live.remove(gc)
			n.vanish()
			if out = append(out, n); !all {
				return out
			}
		}
	}
	return out
}

func (o *thing) add(entry int8) {
	if i := slices.Index(o.list[:], 0); i >= 0 {
		o.list[i] = entry
	}
}

func (o *thing) remove(entry int8) {
	i := slices.Index(o.list[:], entry)
	copy(o.list[i:], o.list[i+1:])
	o.list[4] = 0
}

// settles checks that from any state, once nobody disturbs any more, the first process comes to an end.
func (e *explorer) settles(w world) {
	if e.quiet {
		return
	}
	e.quiet = true
	broken, why := "", ""
	w.left = budget{}
	w.procs[1] = process{}
	var path [][2]uint64
	for steps := 0; broken == ""; steps++ {
		w.procs[0].passes = 0
		if next := e.collect(w, false); len(next) > 0 {
			w = next[0]
			continue
		}
		last := func(n world) { w = n }
		if w.procs[0].stage != idle {
			r := e.arrives(&w, 0)
			e.hears(w, 0, r, last)
			continue
		}
		k := e.key(w)
		if _, ok := e.good[k]; ok {
			break
		}
		path = append(path, k)
		rest := rests(w.live)
		before := w
		e.begin(w, 0, last)
		switch idles := w.procs[0].stage == idle; {
		case rest == "" && !idles:
			broken, why = lawFree, "sends something"
		case rest == "" && idles:
			broken = "none"
		case steps > 100 || idles && w == before:
			broken, why = lawSettles, rest
		}
	}
	e.quiet = false
	if broken != "" && broken != "none" {
		e.breaks(broken, "%s: %+v", why, w)
		return
	}
	for _, k := range path {
		e.good[k] = struct{}{}
	}
}

// rests says what is left to do, or "".
func rests(o thing) string {
	switch {
	case o.inc == 0:
		return ""
	case o.term && o.mine():
		return "the finalizer does not go"
	case !o.term && (!o.has(ours) || o.has(former)):
		return "the finalizer is not stored"
	}
	return ""
}
