// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// What a [TypeError] can stand for; test with errors.Is.
var (
	// ErrIllegal: the name, a reference or a duration is not allowed in a declaration.
	ErrIllegal = errors.New("illegal declaration")

	// ErrCycle: types need each other in a circle.
	ErrCycle = errors.New("cycle of needs")

	// ErrUndeclared: a verdict or handler names a type the Set does not declare.
	ErrUndeclared = errors.New("undeclared type")

	// ErrReserved: a verdict or handler names the root or a derived type, which only the Set itself decides, or a
	// retired one.
	ErrReserved = errors.New("type not open to verdicts")

	// ErrFinished: the Pass was used after Done, or the Set was not made by New.
	ErrFinished = errors.New("pass not open")
)

// TypeError says what is wrong with one condition type in a declaration or in a pass.
type TypeError struct {
	Op   string // declare, put, stall, clear, evaluate
	Type string // the type as it was given
	Rule string // what it breaks
	Kind error  // one of the Err values of this package
}

// Error names the operation, the type and the rule.
func (e *TypeError) Error() string {
	return fmt.Sprintf("%s condition type %s: %s", e.Op, strconv.Quote(shorten(e.Type)), e.Rule)
}

// Unwrap gives errors.Is the kind.
func (e *TypeError) Unwrap() error { return e.Kind }

// HandlerError is what went wrong in a [Handler]; the error of [Evaluate] holds one for each that failed.
type HandlerError struct {
	Type  string // the condition type it handles
	Err   error  // what the handler returned, or an error that quotes its panic
	Stack []byte // where it panicked; nil when it returned
}

// Error names the type and the cause.
func (e *HandlerError) Error() string {
	return "evaluate condition type " + e.Type + ": " + e.Err.Error()
}

// Unwrap returns what the handler returned.
func (e *HandlerError) Unwrap() error { return e.Err }

// shorten keeps an error readable when the type it quotes is not one.
func shorten(s string) string {
	return string(appendLine(nil, strings.ToValidUTF8(s, "\uFFFD"), 320))
}
