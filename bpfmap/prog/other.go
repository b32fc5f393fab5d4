// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package prog

import (
	"context"
	"fmt"
	"runtime"

	"github.com/cilium/ebpf"
)

func unsupported() error { return fmt.Errorf("%w: eBPF programs on %s", ErrUnsupported, runtime.GOOS) }

// Attachment is a program that runs at a hook as long as this process lives. Linux only.
type Attachment struct{}

// Attach makes a program run at a hook. Linux only.
func Attach(*ebpf.Program, Hook) (*Attachment, error) { return nil, unsupported() }

// Replace exchanges the program. Linux only.
func (*Attachment) Replace(*ebpf.Program) error { return unsupported() }

// Close detaches the program. Linux only.
func (*Attachment) Close() error { return nil }

func permission(err error, _ ebpf.ProgramType) error { return err }

func (s *Support) probe() { s.Why = unsupported().Error() }

func (*Slot) plan(Release) (Plan, error) { return Plan{}, unsupported() }

func (*Slot) sync(context.Context, *prepared, Release) (Result, error) {
	return Result{}, unsupported()
}

func (*Slot) rollback(context.Context, string) (Result, error) { return Result{}, unsupported() }

func (*Slot) remove() error { return unsupported() }

func (*Slot) openMap(string) (*ebpf.Map, error) { return nil, unsupported() }

func (*Slot) guard(*ebpf.Map) error { return unsupported() }

func inventory(_ string, yield func(Occupant, error) bool) { yield(Occupant{}, unsupported()) }

func sweep(_ string, _ []string, _ bool, yield func(Occupant, error) bool) {
	yield(Occupant{}, unsupported())
}
