// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"
)

// The errors a caller can act on. Each comes wrapped, with the errno underneath where there is one: use errors.Is.
var (
	// ErrFull: the map has no room for the key. An index beyond the end of an array is [ErrRange].
	ErrFull = errors.New("no more space in map")
	// ErrRange: the key is an index that the array does not have.
	ErrRange = errors.New("index out of range")
	// ErrExist: Create found the key, or a pin its path taken.
	ErrExist = errors.New("exists already")
	// ErrReadOnly: the map is frozen, or was opened or made read-only.
	ErrReadOnly = errors.New("map is read-only")
	// ErrLayout: a Go type and the map disagree about sizes or fields, or a Go type has no fixed layout.
	ErrLayout = errors.New("layout does not fit")
	// ErrIncompatible: a pinned map differs from what was asked for.
	ErrIncompatible = errors.New("pinned map is incompatible")
	// ErrInUse: a pinned map cannot be replaced, because a program uses it or may use it.
	ErrInUse = errors.New("map is in use")
	// ErrSplitBrain: the pin or the program has another map than this one.
	ErrSplitBrain = errors.New("another map is in use")
	// ErrBudget: a plan would delete more than [WithMaxDelete] permits. Nothing was deleted.
	ErrBudget = errors.New("too many deletions")
	// ErrNotConverging: what was written is gone or changed again, pass after pass.
	ErrNotConverging = errors.New("map does not converge")
	// ErrUnstable: the map changed faster than it could be read.
	ErrUnstable = errors.New("map kept changing while it was read")
	// ErrUnsupported: this kernel or this type of map cannot do it.
	ErrUnsupported = errors.New("not supported")
)

// Error says what failed, on which map. It matches what it wraps: one of the errors above, the errno.
type Error struct {
	Op  string // "open", "get", "put", "create", "delete", "read", "plan", "apply", …
	Map string // name or pin path
	Err error
}

// Error names the operation and the map.
func (e *Error) Error() string { return fmt.Sprintf("%s %s: %v", e.Op, e.Map, e.Err) }

// Unwrap is what it failed with.
func (e *Error) Unwrap() error { return e.Err }

// FullError is an [ErrFull] with the numbers.
type FullError struct {
	Used, Max int   // entries
	Err       error // E2BIG, or ENOSPC from a trie
}

// Error says how full the map is.
func (e *FullError) Error() string {
	return fmt.Sprintf("%v (%d of %d)", ErrFull, e.Used, e.Max)
}

// Is matches ErrFull.
func (e *FullError) Is(target error) bool { return target == ErrFull }

// Unwrap is the errno.
func (e *FullError) Unwrap() error { return e.Err }

// LayoutError is one field, or one whole type, that does not fit. Several come joined; it matches [ErrLayout].
type LayoutError struct {
	Side  string // "key", "value", "record"
	Field string // Go path such as "Limits.Rate", "" for the type as a whole
	Want  string // what the Go type says
	Got   string // what the map says, or the rule
}

// Error names the side, the field and both views.
func (e *LayoutError) Error() string {
	what := e.Side
	if e.Field != "" {
		what += " field " + e.Field
	}
	return fmt.Sprintf("%s: Go has %s, %s", what, e.Want, e.Got)
}

// Is matches ErrLayout.
func (e *LayoutError) Is(target error) bool { return target == ErrLayout }

// BudgetError is an [ErrBudget] with the numbers.
type BudgetError struct {
	Delete, Of int    // keys to delete, of how many that are ours
	Rule       string // the part of the [Budget] that is exceeded
}

// Error says what exceeds what.
func (e *BudgetError) Error() string {
	return fmt.Sprintf("%v: %d of %d, %s; nothing was deleted", ErrBudget, e.Delete, e.Of, e.Rule)
}

// Is matches ErrBudget.
func (e *BudgetError) Is(target error) bool { return target == ErrBudget }

// PermissionError is an EPERM with the advice that the errno does not give.
type PermissionError struct {
	Missing []string // capabilities that the call needs and this thread does not have
	Advice  string   // one sentence
	Err     error    // the errno
}

// Error names the missing capability.
func (e *PermissionError) Error() string { return fmt.Sprintf("%v: %s", e.Err, e.Advice) }

// Unwrap is the errno, which matches fs.ErrPermission.
func (e *PermissionError) Unwrap() error { return e.Err }

// errNotSupp is ENOTSUPP, which the kernel uses inside and leaks from bpf(2); it is not EOPNOTSUPP.
const errNotSupp = syscall.Errno(524)

func unsupported(err error) bool {
	return errors.Is(err, errNotSupp) || errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, ErrUnsupported) ||
		errors.Is(err, ebpf.ErrNotSupported)
}

// indexed says whether keys are indexes, so that E2BIG is about the key and not about room.
func indexed(t ebpf.MapType) bool {
	return slices.Contains([]ebpf.MapType{ebpf.Array, ebpf.PerCPUArray, ebpf.ArrayOfMaps, ebpf.DevMap, ebpf.CPUMap}, t)
}

// noRoom says that a write failed because the map is full. Tries say it in another way.
func noRoom(err error) bool { return errors.Is(err, syscall.E2BIG) || errors.Is(err, syscall.ENOSPC) }

// explain turns an errno of one operation into what it means for this map.
func (t *table) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.E2BIG) && indexed(t.info.Type):
		return fmt.Errorf("%w: the array has %d slots: %w", ErrRange, t.info.MaxEntries, err)
	case noRoom(err):
		return &FullError{Used: int(t.info.MaxEntries), Max: int(t.info.MaxEntries), Err: err}
	case errors.Is(err, syscall.EEXIST):
		return fmt.Errorf("%w: %w", ErrExist, err)
	case errors.Is(err, syscall.EPERM):
		if now, ierr := t.b.Info(); ierr == nil && (now.Frozen || now.ReadOnly) {
			return fmt.Errorf("%w: %w", ErrReadOnly, err)
		}
		return permission(err, needAccess)
	case errors.Is(err, syscall.EINVAL) && t.info.Type == ebpf.LPMTrie:
		return fmt.Errorf("the prefix is longer than the map's %d bits of address: %w", 8*(t.info.KeySize-4), err)
	case unsupported(err):
		return fmt.Errorf("%w for a map of type %s: %w", ErrUnsupported, t.info.Type, err)
	}
	return err
}

func (t *table) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Map: t.name, Err: t.explain(err)}
}

// brief joins at most n things for a message.
func brief(n int, all []string) string {
	if len(all) <= n {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:n], ", "), len(all)-n)
}
