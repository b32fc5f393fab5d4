// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"errors"
	"fmt"
	"strings"
)

// ErrUnknownKind: no converter is registered for the group and kind of an object.
var ErrUnknownKind = errors.New("no conversion is registered for the kind")

// ErrUnknownVersion: the converter of the kind does not know a version.
var ErrUnknownVersion = errors.New("no conversion is registered for the version")

// Error says which object could not be converted, between which versions, and where in it. The stored object is intact
// whatever this error says: nothing is ever written here.
type Error struct {
	Index    int    // of the object in its review; -1 outside of one
	Ref      string // kind, namespace and name
	From, To string // versions; From is "" when the object does not say
	Path     string // of the value, "" when it is about no single one
	Err      error
}

// Error names the object, the versions and the place, in this order. It is what an API server shows to its clients.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("convert ")
	if e.Index >= 0 {
		fmt.Fprintf(&b, "object %d, ", e.Index)
	}
	b.WriteString(e.Ref)
	if e.From == "" {
		fmt.Fprintf(&b, " to %s", e.To)
	} else {
		fmt.Fprintf(&b, " from %s to %s", e.From, e.To)
	}
	if e.Path != "" {
		b.WriteString(" at " + e.Path)
	}
	return b.String() + ": " + e.Err.Error()
}

// Unwrap is what went wrong.
func (e *Error) Unwrap() error { return e.Err }

// PanicError is the failure of a function of a pair that panicked.
type PanicError struct {
	Value any    // what it panicked with
	Stack []byte // where
}

// Error leaves the stack out: it is long, and the text ends up with an API server's clients.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// SizeError: what has to be kept in the annotation does not fit there. An API server refuses objects whose annotations
// are longer than 262144 bytes together, and with them the whole review.
type SizeError struct {
	Bytes, Limit int        // of the annotations, and how many there may be
	Largest      []PathSize // up to three, the largest first
}

// PathSize is how many bytes the value at a path takes.
type PathSize struct {
	Path  string // JSON pointer
	Bytes int    // of its JSON
}

// Error names the largest paths.
func (e *SizeError) Error() string {
	var paths []string
	for _, p := range e.Largest {
		paths = append(paths, fmt.Sprintf("%s (%d bytes)", p.Path, p.Bytes))
	}
	return fmt.Sprintf("keep what the version cannot hold: the annotations would have %d bytes and may have %d; the largest values are at %s",
		e.Bytes, e.Limit, strings.Join(paths, ", "))
}

// failure makes an Error of what a step returned, with the path the step found.
func failure(o *object, to string, err error) error {
	var already *Error
	if errors.As(err, &already) {
		return err
	}
	e := &Error{Index: -1, Ref: o.ref(), From: o.version, To: to, Err: err}
	var fe *fieldError
	if errors.As(err, &fe) && error(fe) == err {
		e.Path, e.Err = fe.at(), fe.err
	}
	return e
}
