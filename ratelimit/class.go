// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"fmt"
	"time"
)

// Class says what kind of failure an error is, because each kind deserves a curve of its own: a conflict is over in
// milliseconds, a pod needs its time, and a remote that says "slow down" means it.
type Class uint8

const (
	// Transient failures climb the policy given to [New]. They are the only class that counts: for NumRequeues and for
	// the give-up budget.
	Transient Class = iota + 1
	// Throttled: a remote asked for patience. Default curve: 1 s to 5 min.
	Throttled
	// Conflict: somebody else wrote first. Default curve: 10 ms to 1 s with full jitter.
	Conflict
	// Waiting: nothing failed, the world is just not ready yet. Default curve: about 10 s, flat.
	Waiting
	// Terminal failures are not tried again: nothing is remembered about them.
	Terminal

	classes
)

// String is the name of the class; "None" for the zero Class, which a [Decision] about a success has.
func (c Class) String() string {
	switch c {
	case 0:
		return "None"
	case Transient:
		return "Transient"
	case Throttled:
		return "Throttled"
	case Conflict:
		return "Conflict"
	case Waiting:
		return "Waiting"
	case Terminal:
		return "Terminal"
	}
	return fmt.Sprintf("Class(%d)", uint8(c))
}

// Error is how a caller says which class a failure has, and how long a server asked to be left alone:
//
//	return &ratelimit.Error{Class: ratelimit.Throttled, After: after, Err: err}
//
// It may be wrapped and joined with others; see [Classify].
type Error struct {
	Class Class         // zero: Transient
	After time.Duration // not before this much time has passed, whatever the curve says; see [WithMaxAfter]
	Err   error
}

// Error is the text of what it wraps, and the floor if there is one.
func (e *Error) Error() string {
	text := "error of class " + e.Class.String()
	if e.Err != nil {
		text = e.Err.Error()
	}
	if e.After > 0 {
		return fmt.Sprintf("%s (not before %v have passed)", text, e.After)
	}
	return text
}

// Unwrap is the error without its class.
func (e *Error) Unwrap() error { return e.Err }

// weight orders the classes for joined errors: as long as one of them can be helped by trying again, it is tried again,
// and the most patient of those decides.
func (c Class) weight() int {
	switch c {
	case Terminal:
		return 1
	case Waiting:
		return 2
	case Conflict:
		return 3
	case Throttled:
		return 5
	}
	return 4
}

// Classify finds the class of err. An [*Error] in the tree says it; known, each asked in turn, may recognise other
// errors by themselves, without unwrapping; every other leaf is Transient. Of joined errors the class that needs the
// most patience wins (Throttled, Transient, Conflict, Waiting, Terminal, in this order) together with the longest
// After. A nil err gives the zero Error.
func Classify(err error, known ...func(error) (Error, bool)) Error {
	if err == nil {
		return Error{}
	}
	verdict := classify(err, known)
	verdict.Err = err
	return verdict
}

func classify(err error, known []func(error) (Error, bool)) Error {
	if e, ok := err.(*Error); ok { //nolint:errorlint // the tree is walked by hand, errors.As stops at the first match
		if e == nil {
			return Error{Class: Transient}
		}
		return e.normal()
	}
	for _, ask := range known {
		if e, ok := ask(err); ok {
			return e.normal()
		}
	}
	switch e := err.(type) { //nolint:errorlint // as above
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			return classify(inner, known)
		}
	case interface{ Unwrap() []error }:
		var all Error
		for _, inner := range e.Unwrap() {
			if inner == nil {
				continue
			}
			one := classify(inner, known)
			if all.Class == 0 || one.Class.weight() > all.Class.weight() {
				all.Class = one.Class
			}
			all.After = max(all.After, one.After)
		}
		return all.normal()
	}
	return Error{Class: Transient}
}

// normal leaves only what the store understands: a class that exists and a floor that is not negative.
func (e *Error) normal() Error {
	class := e.Class
	if class == 0 || class >= classes {
		class = Transient
	}
	return Error{Class: class, After: max(0, e.After)}
}
