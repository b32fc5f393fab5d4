// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditionstest

import "fmt"

// Law is one rule that conditions obey when they come from a [conditions.Set]. Numbers are stable: a new law gets a new
// one.
type Law struct {
	Number int    // stable
	Name   string // one word
	Text   string // the rule and why it is one
}

// String returns the number and name, as violations print them.
func (l Law) String() string { return fmt.Sprintf("law %d (%s)", l.Number, l.Name) }

// Laws returns all laws in the order of their numbers. 1 to 10 judge one state of an object ([Check]), 11 to 13 two
// consecutive ones ([Check]), 14 to 17 the controller that produces them ([Exercise]).
func Laws() []Law { return append([]Law(nil), laws[:]...) }

const (
	valid = iota
	once
	complete
	root
	cause
	blocked
	unblocked
	derived
	generation
	retired
	transition
	seconds
	forward
	foreign
	fixpoint
	untouched
	orderless
)

var laws = [...]Law{
	valid: {1, "valid", "Every condition passes the validation of apimachinery. One that does not makes the API " +
		"server refuse the whole status, with all that was right in it."},
	once: {2, "once", "No type of the set occurs twice. The list is a map keyed by type; readers take whichever they " +
		"find first."},
	complete: {3, "complete", "The root and every type whose absence is not good are there. A type that is missing " +
		"reads as one that was never looked at."},
	root: {4, "root", "The root is False when any type is bad, else Unknown when any is Unknown, else True. It is " +
		"what people and tools wait for."},
	cause: {5, "cause", "The root's reason is that of its cause: the first bad type in topological order, else the " +
		"first Unknown one that is not blocked. A reason that names a consequence sends people to the wrong place."},
	blocked: {6, "blocked", "A type that needs one that is not good is Unknown with reason BlockedBy<that one>. One " +
		"fault must not show as two."},
	unblocked: {7, "unblocked", "No type claims to be blocked while all it needs is good. The block is over and the " +
		"text misleads."},
	derived: {8, "derived", "Reconciling and Stalled are True or absent, never both; one of them is there if and only " +
		"if the root is not True; Stalled needs a root that is False. Anything else makes kstatus, and with it every " +
		"deployment tool, report the wrong phase."},
	generation: {9, "generation", "Every condition carries the generation it was computed for. Without it nobody can " +
		"tell an answer from the echo of the last question."},
	retired: {10, "retired", "No retired type is left. Nothing updates it any more and its last value stays for ever."},
	transition: {11, "transition", "lastTransitionTime moves when the status changes and only then, and never back. " +
		"Moving it otherwise is a write on every pass, and a lie about how long a state has lasted."},
	seconds: {12, "seconds", "lastTransitionTime is in whole seconds. The wire format holds no more, so a finer time " +
		"differs from what is read back."},
	forward: {13, "forward", "observedGeneration never goes back. A verdict on an older spec must not replace one on " +
		"a newer."},
	foreign: {14, "foreign", "Conditions of types outside the set are passed on as they are, in their order. They " +
		"belong to somebody else."},
	fixpoint: {15, "fixpoint", "A second pass over the outcome of the first, later but with nothing changed, changes " +
		"nothing. Otherwise two controllers that watch each other never rest."},
	untouched: {16, "untouched", "The conditions that were passed in are not modified. They may belong to a cache that " +
		"others read at the same time."},
	orderless: {17, "orderless", "The order of the conditions passed in makes no difference to ours. It has no meaning."},
}

// Violation is one breach of a law.
type Violation struct {
	Law   Law    // what was broken
	Where string // which state or step
	Type  string // the condition type; empty when it concerns the list
	Found string // what was found instead
}

// String returns one line with all of it.
func (v Violation) String() string {
	s := v.Law.String() + ", " + v.Where
	if v.Type != "" {
		s += ", " + v.Type
	}
	return s + ": " + v.Found
}
