// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions

import "time"

// Type declares one condition type of a [Set].
//
// The zero value of every field but Name is the common case: a positive type ("True is good") that waits for nothing,
// shows every change at once and compares texts byte for byte.
type Type struct {
	// Name is the condition type: an optional DNS subdomain and "/", then a qualified name, as the API conventions
	// and the validation of metav1.Condition demand.
	Name string

	// Needs names declared types that must be good before this one can be judged. While one of them is not, this
	// type is Unknown with reason BlockedBy<that type>, so that one fault never shows as two.
	Needs []string

	// Negative turns the polarity round: True is bad and absence is good ("VersionSkew", "Degraded").
	Negative bool

	// Required makes the absence of a negative type Unknown instead of good. Positive types always are required.
	Required bool

	// Advisory marks a type that is reported like any other but counts for nothing: not for the root, never as its
	// cause, not for Reconciling or Stalled. It is for facts somebody should know of while the object works all the
	// same, such as a version that a chart and a spec disagree about. No type can need an advisory one.
	Advisory bool

	// Retired marks a type that an earlier release wrote and this one does not know any more. It is removed from the
	// object whenever it is found; the other fields are ignored, so an old declaration can simply gain the flag.
	Retired bool

	// Hold says how long a change must last before it shows. It needs a [Memory]; without one nothing is held.
	Hold Hold

	// Redact maps a message to the part that matters, for messages with request ids, durations or addresses in them.
	// Two messages with equal results are the same message and the one on the object stays. It must be a pure
	// function. Nil compares the messages themselves.
	Redact func(string) string
}

// Hold is hysteresis by time, one duration for each direction. Zero shows a change at once. There is none by number of
// passes: that depends on how often something happens to wake the controller.
//
// A hold covers a verdict that was shown for the present generation only. A new generation, a type that was blocked or
// not reported before, and the first report of all are shown at once.
type Hold struct {
	// Bad delays a change for the worse: from good to Unknown or bad, from Unknown to bad.
	Bad time.Duration

	// Good delays a change for the better. Leave it at zero unless a recovery must prove itself.
	Good time.Duration
}
