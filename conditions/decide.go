// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"strings"
	"time"
)

// notReported is the message of a type nobody judged.
const notReported = "no verdict was reported"

// step decides type i; what it needs has been decided before. The ladder: blocked, else the verdict, else absent; a
// change that must prove itself first is then taken back.
func (p *Pass) step(i int, now time.Time) {
	t, e := &p.set.types[i], &p.scratch.entries[i]
	own, stale := e.message, false
	if e.given && e.status == isUnknown {
		own, stale = p.restated(i, e)
	}
	if len(p.set.needs[i]) > 0 {
		if b := p.blocker(i); b >= 0 {
			p.block(i, b, own)
			return
		}
	}
	switch {
	case stale: // repeats a block that is over, which is no verdict
		p.show(t, e, isUnknown, ReasonNotReported, legalMessage(own))
	case e.given:
		if e.reason != p.scratch.legal {
			e.reason = legalReason(e.reason)
			p.scratch.legal = e.reason
		}
		p.show(t, e, e.status, e.reason, legalMessage(e.message))
	case absent(t) == good:
		e.health = good
	default:
		p.show(t, e, isUnknown, ReasonNotReported, notReported)
	}
	if p.memory != nil && t.Hold != (Hold{}) {
		p.hold(t, e, now)
	}
}

// show fills in the result of a type. The live text stays where the redactor sees no difference.
func (p *Pass) show(t *Type, e *entry, status truth, reason, message string) {
	if t.Redact != nil && e.live > 0 {
		if c := &p.live[e.live-1]; c.Status == status.status() && c.Message != message &&
			t.Redact(c.Message) == t.Redact(message) {
			message = legalMessage(c.Message)
		}
	}
	e.status, e.reason, e.message = status, reason, message
	e.health, e.shown = healthOf(t.Negative, status), true
	if e.health != good && !t.Advisory {
		p.scratch.ill = true
	}
}

// blocker returns the need that keeps type i from being judged, or -1. Several are ranked like the root's cause: the
// first bad one in topological order, else the first that is not blocked itself, else the first.
func (p *Pass) blocker(i int) int {
	return p.first(p.set.needs[i])
}

// first picks the cause among types in topological order, or -1 when all are good.
func (p *Pass) first(among []int) int {
	open, blocked := -1, -1
	for _, j := range among {
		switch e := &p.scratch.entries[j]; {
		case e.health == bad:
			return j
		case e.health == good:
		case e.blocker == 0 && open < 0:
			open = j
		case e.blocker != 0 && blocked < 0:
			blocked = j
		}
	}
	if open >= 0 {
		return open
	}
	return blocked
}

// restated recognises an Unknown verdict that repeats what an earlier pass wrote for a blocked or unreported type, so
// that evaluating one's own output adds nothing to it. It returns the text of the caller's own in the verdict, and
// whether the verdict is nothing but an old block.
func (p *Pass) restated(i int, e *entry) (own string, stale bool) {
	if e.reason == ReasonNotReported && e.message == notReported {
		return "", false
	}
	if !p.set.isBlock(i, e.reason) {
		return e.message, false
	}
	// The blocker's text is one line by construction; what follows is the caller's.
	_, own, _ = strings.Cut(e.message, "\n")
	if own == "" && p.blocker(i) < 0 {
		own = notReported
	}
	return own, true
}

// isBlock reports whether reason says that type i is blocked.
func (s *Set) isBlock(i int, reason string) bool {
	if !strings.HasPrefix(reason, ReasonBlockedBy) {
		return false
	}
	for _, j := range s.needs[i] {
		if s.blocked[j] == reason {
			return true
		}
	}
	return false
}

// block shows type i as blocked by b: one line about what it waits for, then the caller's own text.
func (p *Pass) block(i, b int, own string) {
	sc, t, e := p.scratch, &p.set.types[i], &p.scratch.entries[i]
	origin := b
	for sc.entries[origin].blocker > 0 {
		origin = int(sc.entries[origin].blocker) - 1
	}
	text := append(sc.text[:0], "waits for "...)
	text = append(text, p.set.types[b].Name...)
	if origin != b {
		text = append(text, ", blocked by "...)
		text = append(text, p.set.types[origin].Name...)
	}
	text = append(text, ": "...)
	text = appendLine(text, gist(&sc.entries[origin]), maxQuote)
	if own != "" {
		text = append(text, '\n')
		text = appendCut(text, legalMessage(own), maxMessage-len(text))
	}
	sc.text = text
	e.blocker = int32(b + 1)
	p.show(t, e, isUnknown, p.set.blocked[b], settle(text, p.liveMessage(e)))
}

// gist is what there is to say about a condition in few words.
func gist(e *entry) string {
	if e.message != "" {
		return e.message
	}
	return e.reason
}

func (p *Pass) liveMessage(e *entry) string {
	if e.live == 0 {
		return ""
	}
	return p.live[e.live-1].Message
}
