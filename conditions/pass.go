// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"cmp"
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pass collects the verdicts of one reconcile and turns them into conditions. Verdicts come in any order; for one type
// the last one counts. It is not safe for concurrent use ([Evaluate] has a concurrent form) and ends with [Pass.Done].
type Pass struct {
	set        *Set
	live       []metav1.Condition
	generation int64
	memory     *Memory
	scratch    *scratch
	next       int     // verdicts tend to come in the order of declaration: where the next one is looked for first
	refused    []error // *TypeError
	finished   bool
}

// Result is what a pass decided.
type Result struct {
	// Conditions is the whole list to store: root, declared types in the order declared, Reconciling or Stalled,
	// then foreign conditions as they were. When Changed is false it is the slice given to Begin. Read only: it may
	// belong to a cache.
	Conditions []metav1.Condition

	// Changed reports whether Conditions differs from what was live in more than the order.
	Changed bool

	// RequeueAfter says when a held change is due; 0 when none is held.
	RequeueAfter time.Duration

	// Cause is the type that keeps the root from True: the first bad one in topological order, else the first
	// Unknown one that is not blocked. Empty when the root is True.
	Cause string
}

// Begin starts a pass over an object whose conditions are live and whose metadata.generation was generation when the
// caller read it. m holds changes back as the types' Hold demands; nil holds nothing. live is only read, and must stay
// as it is until Done.
func (s *Set) Begin(live []metav1.Condition, generation int64, m *Memory) *Pass {
	// Kept small enough to be inlined: a Pass that stays in its function then lives on the stack.
	return &Pass{set: s, live: live, generation: generation, memory: m}
}

// Put gives the verdict on c.Type: its Status, Reason and Message. Time and generation are the pass's business:
// c.LastTransitionTime and c.ObservedGeneration are ignored, so a condition from any source will do.
//
// A status that is none of the three counts as Unknown. A reason the API server would refuse is mended, a message
// beyond 32768 bytes is cut on a rune boundary, bytes that are not UTF-8 are replaced. A type that is not declared, or
// is the root, derived or retired, is refused: Done returns an error naming it.
func (p *Pass) Put(c metav1.Condition) { p.put(c.Type, c.Status, c.Reason, c.Message) }

// True puts the verdict that typ is True, which is bad news when typ is negative.
func (p *Pass) True(typ, reason, message string) { p.put(typ, metav1.ConditionTrue, reason, message) }

// False puts the verdict that typ is False.
func (p *Pass) False(typ, reason, message string) { p.put(typ, metav1.ConditionFalse, reason, message) }

// Unknown puts the verdict that typ cannot be judged.
func (p *Pass) Unknown(typ, reason, message string) {
	p.put(typ, metav1.ConditionUnknown, reason, message)
}

func (p *Pass) put(typ string, status metav1.ConditionStatus, reason, message string) {
	if e := p.at("put", typ); e != nil {
		e.given, e.status, e.reason, e.message = true, truthOf(status), reason, message
	}
}

// Stall marks typ: should its verdict be bad, retrying is pointless until somebody changes something. The object then
// is Stalled rather than Reconciling. The mark has no effect on a verdict that is not bad; it may come before the verdict.
func (p *Pass) Stall(typ string) {
	if e := p.at("stall", typ); e != nil {
		e.stalled = true
	}
}

// Clear takes back the verdict on typ and its mark. A negative type that is not Required then is absent and good, any
// other is Unknown, exactly as if it had never been put.
func (p *Pass) Clear(typ string) {
	if e := p.at("clear", typ); e != nil {
		*e = entry{live: e.live}
	}
}

// at returns the entry of typ, or nil after noting the refusal.
func (p *Pass) at(op, typ string) *entry {
	if p.scratch == nil && !p.open() {
		p.refuse(op, typ, "the pass is over", ErrFinished)
		return nil
	}
	i := p.set.find(typ, p.next)
	if i < 0 {
		p.refuseCode(op, typ, i)
		return nil
	}
	p.next = i + 1
	return &p.scratch.entries[i]
}

func (p *Pass) refuseCode(op, typ string, code int) {
	switch code {
	case isRoot:
		p.refuse(op, typ, "the root is decided by the set", ErrReserved)
	case isReconciling, isStalled:
		p.refuse(op, typ, "derived by the set", ErrReserved)
	case isRetired:
		p.refuse(op, typ, "retired", ErrReserved)
	default:
		p.refuse(op, typ, "not declared", ErrUndeclared)
	}
}

func (p *Pass) refuse(op, typ, rule string, kind error) {
	p.refused = append(p.refused, &TypeError{Op: op, Type: typ, Rule: rule, Kind: kind})
}

// isForeign is what find answers for names the Set knows nothing of.
const isForeign = -100

// find returns the position of a declared type or one of the codes. guess saves the map most of the time.
func (s *Set) find(typ string, guess int) int {
	if guess < len(s.types) && s.types[guess].Name == typ {
		return guess
	}
	if i, ok := s.index[typ]; ok {
		return i
	}
	return isForeign
}

// Done decides. now is the caller's clock; it is stored in whole seconds where a status changed, and nowhere else.
//
// The error joins one [TypeError] for every verdict that was refused, sorted by type; the Result is complete and valid
// all the same. A second Done, and a pass of a zero Set, return the live conditions and an error matching ErrFinished.
func (p *Pass) Done(now time.Time) (Result, error) {
	if p.scratch == nil && !p.open() {
		p.refuse("decide", "", "the pass is over", ErrFinished)
		return Result{Conditions: p.live}, p.failure()
	}
	for _, i := range p.set.order {
		p.step(i, now)
	}
	r := p.finish(now)
	return r, p.failure()
}

// failure joins the refusals in an order that does not depend on the order of the calls.
func (p *Pass) failure() error {
	if len(p.refused) == 0 {
		return nil
	}
	slices.SortStableFunc(p.refused, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	p.refused = slices.CompactFunc(p.refused, func(a, b error) bool { return a.Error() == b.Error() })
	return errors.Join(p.refused...)
}
