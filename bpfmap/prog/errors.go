// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/ashlar-go/ashlar/bpfmap"
)

// The errors a caller can act on. Each comes wrapped, with the errno underneath where there is one: use errors.Is.
var (
	// ErrUnverified: no check was given for the object. [Unsigned] is how to say that none is wanted.
	ErrUnverified = errors.New("object is not verified")
	// ErrObject: the file is no eBPF object that this machine can read, or has no such program.
	ErrObject = errors.New("object cannot be used")
	// ErrLimit: the object asks for more than [Limits] permit. Nothing was loaded.
	ErrLimit = errors.New("object exceeds a limit")
	// ErrRejected: the kernel's verifier rejected the program; see [VerifierError].
	ErrRejected = errors.New("program was rejected")
	// ErrHook: the hook is not declared well, or the program is of another type than the hook runs.
	ErrHook = errors.New("hook does not fit")
	// ErrBusy: the hook is taken by somebody else.
	ErrBusy = errors.New("hook is taken")
	// ErrGone: the interface or cgroup is not there.
	ErrGone = errors.New("target is gone")
	// ErrConflict: somebody else works on the same slot, or has replaced its program; see [ConflictError].
	ErrConflict = errors.New("somebody else is at work")
	// ErrMap: a map cannot be kept as the new program declares it, or not be migrated.
	ErrMap = errors.New("map cannot be kept")
	// ErrProbe: a golden packet or the health function says no.
	ErrProbe = errors.New("program does not work")
	// ErrFailedBefore: this program of this object was rolled back; see [Release.Again].
	ErrFailedBefore = errors.New("release was rolled back before")
	// ErrName: a name is not fit to be a pin.
	ErrName = errors.New("name cannot be a pin")
	// ErrNothing: there is nothing to roll back to.
	ErrNothing = errors.New("no previous program")
	// ErrUnsupported: this kernel, hook or operating system cannot do it.
	ErrUnsupported = bpfmap.ErrUnsupported
)

// Error says what failed, for which slot or program. It matches what it wraps.
type Error struct {
	Op      string // "verify", "load", "attach", "probe", "migrate", "swap", …
	Subject string // slot, program or hook
	Err     error
}

// Error names the operation and its subject.
func (e *Error) Error() string { return fmt.Sprintf("%s %s: %v", e.Op, e.Subject, e.Err) }

// Unwrap is what it failed with.
func (e *Error) Unwrap() error { return e.Err }

func wrap(op, subject string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Subject: subject, Err: err}
}

// ConflictError is an [ErrConflict] with what is known about the other one.
type ConflictError struct {
	Slot    string         // name of the slot
	Holder  string         // process that holds the slot, "" when the other one does not use this package
	Program ebpf.ProgramID // program in force that is not one of ours, 0 when the slot is only locked
}

// Error names the holder.
func (e *ConflictError) Error() string {
	if e.Program != 0 && e.Slot == "" {
		return fmt.Sprintf("%v: program %d is in force, which is not the one that was put there", ErrConflict, e.Program)
	}
	if e.Program != 0 {
		return fmt.Sprintf("%v: program %d is in force, which slot %s has not put there", ErrConflict, e.Program, e.Slot)
	}
	return fmt.Sprintf("%v: slot %s is held by %s", ErrConflict, e.Slot, e.Holder)
}

// Is matches ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// LimitError is an [ErrLimit] with the numbers.
type LimitError struct {
	What     string // "object bytes", "map bytes", "maps", "instructions", "helper", "kernel function", "program type"
	Subject  string // name of the map, helper, …; may be empty
	Got, Max uint64 // 0 where the limit is no number
}

// Error names the limit.
func (e *LimitError) Error() string {
	s := fmt.Sprintf("%v: %s", ErrLimit, e.What)
	if e.Subject != "" {
		s += " " + e.Subject
	}
	if e.Max > 0 {
		s += fmt.Sprintf(" (%d, at most %d)", e.Got, e.Max)
	}
	return s
}

// Is matches ErrLimit.
func (e *LimitError) Is(target error) bool { return target == ErrLimit }

// checkName holds a name that becomes a pin to what a bpf file system and a path can take: no dot, no slash, nothing
// hidden, nothing that could be a path elsewhere.
func checkName(what, name string) error {
	bad := strings.IndexFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	})
	if name == "" || len(name) > 64 || bad >= 0 || name[0] == '-' {
		return fmt.Errorf("%w: %s %.80q, want 1 to 64 letters, digits, _ and -, not beginning with -", ErrName, what, name)
	}
	return nil
}
