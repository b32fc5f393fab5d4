// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions

import "time"

// scratch is what a pass needs besides its result. It is pooled per Set and holds nothing of the caller's afterwards.
// The Pass itself is not pooled: one that is used after Done must not reach into somebody else's pass.
type scratch struct {
	entries []entry // by position in Set.types
	root    entry
	derived [2]entry // Reconciling, Stalled
	ill     bool     // some type is not good, or was not before a hold
	owned   int      // live conditions that are ours, repeated ones included
	text    []byte   // where messages are composed
	legal   string   // the reason found legal last: reasons repeat
	held    []pending
	due     time.Time // when the first held change is due; zero when none is
}

// entry is one condition on its way from verdict to result: step turns the first into the second in place.
type entry struct {
	reason  string
	message string
	live    int32 // position in live plus one; 0 when absent
	blocker int32 // position of the need that blocks it plus one; 0 when none does
	status  truth
	health  health
	given   bool // a verdict was put
	stalled bool // marked by Stall
	shown   bool // part of the result
}

// open gets the scratch and finds our conditions among the live ones. It reports false when the pass is over.
func (p *Pass) open() bool {
	s := p.set
	if p.finished || s == nil || s.root == "" {
		p.finished = true
		return false
	}
	sc, _ := s.pool.Get().(*scratch)
	if sc == nil {
		sc = &scratch{entries: make([]entry, len(s.types))}
	}
	p.scratch, sc.legal = sc, ReasonHealthy
	guess := 0
	for k := range p.live {
		i := isForeign
		// Our own output starts with the root, then follows the declaration.
		if k == 0 && p.live[k].Type == s.root {
			i = isRoot
		} else {
			i = s.find(p.live[k].Type, guess)
		}
		var e *entry
		switch {
		case i >= 0:
			e, guess = &sc.entries[i], i+1
		case i == isRoot:
			e = &sc.root
		case i == isReconciling:
			e = &sc.derived[0]
		case i == isStalled:
			e = &sc.derived[1]
		case i == isRetired:
			sc.owned++
			continue
		default:
			continue
		}
		sc.owned++
		if e.live == 0 {
			e.live = int32(k + 1) // a repeated type is not valid; the first one is the one
		}
	}
	return true
}

// close gives the scratch back, empty.
func (p *Pass) close() {
	sc := p.scratch
	p.scratch, p.finished = nil, true
	clear(sc.entries)
	clear(sc.held)
	*sc = scratch{entries: sc.entries, text: sc.text[:0], held: sc.held[:0]}
	if cap(sc.text) > 4*maxMessage {
		sc.text = nil
	}
	p.set.pool.Put(sc)
}
