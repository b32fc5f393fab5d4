// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership_test

// The rest of the model: what the garbage collector, users and strangers do, and what is left when they have stopped.

// environment is everybody else.
func (e *explorer) environment(w world) {
	for _, n := range e.collect(w, true) {
		e.push(n)
	}
	if m := w.owners[0]; m.id != nobody && !m.term && w.left.deletes > 0 {
		for _, how := range []deletion{background, foreground, orphan} {
			n := w
			n.left.deletes--
			n.owners[0].term, n.owners[0].gc, n.owners[0].how = true, how, how
			e.vanish(&n.owners[0])
			e.push(n)
		}
	}
	if w.owners[0].id == nobody && w.left.creates > 0 {
		n := w
		n.left.creates--
		n.owners[0] = master{id: secondA, gen: 1}
		e.push(n)
	}
	for i, m := range w.owners {
		if m.id != nobody && !m.term && m.gen < 2 && w.left.specs > 0 {
			n := w
			n.left.specs--
			n.owners[i].gen++
			e.push(n)
		}
	}
	if k := w.kids[labelled]; w.left.handovers > 0 && k.claimedBy(firstA) && !k.term && w.owners[1].fin {
		n := w // as HandOver moves it: one patch
		n.left.handovers--
		n.kids[labelled].label, n.kids[labelled].note, n.kids[labelled].rv = firstB, 2, k.rv+1
		n.mem[labelled] = memo{}
		e.push(n)
	}
	if w.left.strangers > 0 {
		for i := range int8(2) {
			for _, n := range e.strange(w, i) {
				n.left.strangers--
				e.push(n)
			}
		}
	}
}

// strange lists what a stranger may do to a child.
func (e *explorer) strange(w world, i int8) (out []world) {
	k := w.kids[i]
	with := func(k kid) {
		n := w
		n.kids[i] = k
		n.kids[i].rv = w.kids[i].rv + 1
		out = append(out, n)
	}
	if k.inc == 0 {
		if w.incs[i] < 2 {
			w.incs[i]++
			with(kid{inc: w.incs[i], body: 2})
		}
		return out
	}
	if k.body != 2 {
		n := k
		n.body = 2
		with(n)
	}
	if k.ref != stranger && !k.term {
		n := k
		n.ref = stranger
		with(n)
	}
	if i == labelled && k.label != nobody {
		n := k
		n.label = nobody
		with(n)
	}
	if !k.term {
		n := k
		n.term = true
		with(n)
	}
	return out
}

// collect lists what caches, kubelets and the garbage collector do next, each alone or, for fairness, the first of it.
func (e *explorer) collect(w world, all bool) (out []world) {
	add := func(n world) bool { out = append(out, n); return !all }
	for i, m := range w.owners {
		if w.seen[i] != m {
			n := w
			n.seen[i] = m
			if add(n) {
				return out
			}
		}
	}
	for i, k := range w.kids {
		if w.shown[i] != k {
			n := w
			n.shown[i] = k
			if add(n) {
				return out
			}
		}
		if k.term {
			n := w
			n.kids[i] = kid{}
			if add(n) {
				return out
			}
		}
		if gone := k.ref != nobody && k.ref != stranger && w.owners[slotOf(k.ref)].id != k.ref; gone && k.inc != 0 && !k.term {
			n := w
			n.kids[i].term, n.kids[i].rv = true, k.rv+1
			if add(n) {
				return out
			}
		}
	}
	for i, m := range w.owners {
		if m.gc == background {
			continue
		}
		busy := false
		for j, k := range w.kids {
			if k.inc == 0 || k.ref != m.id {
				continue
			}
			busy = true
			n := w
			if m.gc == orphan {
				n.kids[j].ref, n.kids[j].stray, n.kids[j].rv = nobody, m.id, k.rv+1
			} else if !k.term {
				n.kids[j].term, n.kids[j].rv = true, k.rv+1
			} else {
				continue
			}
			if add(n) {
				return out
			}
		}
		if !busy {
			n := w
			n.owners[i].gc = background
			e.vanish(&n.owners[i])
			if add(n) {
				return out
			}
		}
	}
	return out
}

// settles checks that from any state, once nobody disturbs any more, everything comes to rest as it should.
func (e *explorer) settles(w world) {
	if e.quiet {
		return
	}
	e.quiet = true
	defer func() { e.quiet = false }()
	w.left = budget{}
	var path [][2]uint64
	busy := [2]bool{true, true} // owners with a pass to make
	for steps := 0; ; steps++ {
		for i := range w.passes {
			w.passes[i].passes = 0
		}
		if steps > 400 {
			e.quiet = false
			e.breaks(lawSettles, "no end: %+v", w)
			return
		}
		if next := e.collect(w, false); len(next) > 0 {
			w, busy = next[0], [2]bool{true, true}
			continue
		}
		i := 0
		if w.passes[0].stage == idle && (w.passes[1].stage != idle || !busy[0]) {
			i = 1
		}
		if w.passes[i].stage != idle {
			r := e.arrives(&w, i)
			e.hears(&w, i, r)
			busy = [2]bool{true, true}
			continue
		}
		if !busy[i] {
			break
		}
		k := e.key(w)
		if _, ok := e.good[k]; ok {
			for _, k := range path {
				e.good[k] = struct{}{}
			}
			return
		}
		path = append(path, k)
		before := w
		e.begin(&w, i)
		busy[i] = false
		if w.passes[i].stage == idle {
			continue
		}
		if !before.owners[i].term && e.rests(before, i) == "" {
			e.quiet = false
			e.breaks(lawFree, "owner %d sends %v in %+v", i, w.passes[i].stage, before)
			return
		}
	}
	for i := range w.owners {
		if why := e.rests(w, i); why != "" {
			e.quiet = false
			e.breaks(lawSettles, "%s: %+v", why, w)
			return
		}
	}
	for _, k := range path {
		e.good[k] = struct{}{}
	}
}

// rests says what is left to do for an owner, or "".
func (e *explorer) rests(w world, i int) string {
	m := w.owners[i]
	for k, c := range w.kids {
		if c.inc == 0 {
			continue
		}
		for _, o := range []id{firstA, secondA, firstB} {
			gone := slotOf(o) == int8(i) && m.id != o
			if gone && k == labelled && c.claimedBy(o) && c.stray != o {
				return "a labelled child of a dead owner"
			}
		}
	}
	if m.id == nobody {
		return ""
	}
	if m.term {
		for _, c := range w.kids {
			if c.inc != 0 && (c.ref == m.id || c.label == m.id) && c.foreignTo(m.id) {
				return "" // somebody has to say whose it is
			}
		}
		return "an owner that does not go"
	}
	if !m.fin {
		return "no finalizer"
	}
	for k, c := range w.kids {
		declared := e.declares[i][m.gen]&(1<<k) != 0
		switch {
		case declared && c.inc == 0:
			return "a declared child is missing"
		case declared && c.claimedBy(m.id) && (c.body != 1 || c.hash != m.id):
			return "a declared child is not as declared"
		case declared && !c.claimedBy(m.id) && !c.foreignTo(m.id) && e.adopt:
			return "a declared child is not adopted"
		case !declared && c.claimedBy(m.id):
			if e.blockedIn(w, i) {
				continue
			}
			return "an undeclared child is left"
		}
	}
	return ""
}

// blockedIn says that a declared child cannot be applied, so nothing is pruned.
func (e *explorer) blockedIn(w world, i int) bool {
	m := w.owners[i]
	for k, c := range w.kids {
		if e.declares[i][m.gen]&(1<<k) != 0 && c.inc != 0 && !c.claimedBy(m.id) {
			return true
		}
	}
	return false
}
