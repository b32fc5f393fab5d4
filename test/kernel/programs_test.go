// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/ashlar-go/ashlar/bpfmap"
)

// user is a program that does nothing but hold maps.
func user(t *testing.T, fds ...int) *ebpf.Program {
	t.Helper()
	var code asm.Instructions
	for _, fd := range fds {
		code = append(code, asm.LoadMapPtr(asm.R1, fd))
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "user", Type: ebpf.SocketFilter, License: "GPL", Instructions: append(code, asm.Mov.Imm(asm.R0, 0), asm.Return()),
	})
	ok(t, err)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// cilium/cilium#45196: the pinned map was not the one that the attached program used.
func TestReport_cilium_45196(t *testing.T) {
	pin := pins(t) + "/flows"
	inUse, err := bpfmap.Open[uint32, uint32](table)
	ok(t, err)
	defer inUse.Close()
	program := user(t, inUse.Backend().FD())
	m, err := bpfmap.Open[uint32, uint32](table, bpfmap.WithPin(pin), bpfmap.WithProgram(program))
	ok(t, err)
	defer m.Close()
	desired := func(yield func(uint32, uint32) bool) { yield(1, 1) }
	_, err = m.Sync(t.Context(), desired)
	if !errors.Is(err, bpfmap.ErrSplitBrain) {
		t.Fatalf("wrote to a map that the program does not use: %v", err)
	}
	stat, err := m.Stat()
	ok(t, err)
	if stat.Used != 0 {
		t.Errorf("%d entries were written", stat.Used)
	}
	right, err := bpfmap.Open[uint32, uint32](table, bpfmap.WithPin(pin), bpfmap.WithProgram(user(t, inUse.Backend().FD(), m.Backend().FD())))
	ok(t, err)
	defer right.Close()
	_, err = right.Sync(t.Context(), desired)
	ok(t, err)
}

// A pinned map that a program uses is not replaced under it.
func TestMigrationInUse(t *testing.T) {
	pin := pins(t) + "/table"
	m, err := bpfmap.Open[uint32, v1](table, bpfmap.WithPin(pin))
	ok(t, err)
	defer m.Close()
	p := user(t, m.Backend().FD())
	_, err = bpfmap.Open[uint32, v2](table, bpfmap.WithPin(pin), bpfmap.WithMigration[uint32, v2](nil))
	info, ierr := p.Info()
	ok(t, ierr)
	id, _ := info.ID()
	if !errors.Is(err, bpfmap.ErrInUse) || !strings.Contains(err.Error(), fmt.Sprint(id)) {
		t.Fatalf("replaced under program %d: %v", id, err)
	}
	ok(t, p.Close())
	again, err := bpfmap.Open[uint32, v2](table, bpfmap.WithPin(pin), bpfmap.WithMigration[uint32, v2](nil))
	ok(t, err)
	ok(t, again.Close())
}

// microsoft/retina#2235, iovisor/bcc#3476: what a full ring buffer lost was nowhere to be seen.
func TestReport_retina_2235(t *testing.T) {
	pins(t)
	lost, err := bpfmap.OpenPerCPU[uint32, uint64](bpfmap.Spec{Name: "lost", Type: ebpf.PerCPUArray, MaxEntries: 1})
	ok(t, err)
	defer lost.Close()
	events, err := bpfmap.OpenRing[uint64](bpfmap.Spec{Name: "events", MaxEntries: uint32(os.Getpagesize())}, bpfmap.WithLost(lost))
	ok(t, err)
	defer events.Close()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "produce", Type: ebpf.SocketFilter, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R1, 42),
		asm.StoreMem(asm.RFP, -8, asm.R1, asm.DWord),
		asm.LoadMapPtr(asm.R1, events.Backend().FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -8),
		asm.Mov.Imm(asm.R3, 8),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnRingbufOutput.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(asm.RFP, -12, asm.R1, asm.Word),
		asm.LoadMapPtr(asm.R1, lost.Backend().FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -12),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	}})
	ok(t, err)
	defer p.Close()
	const produced = 1000
	_, err = p.Run(&ebpf.RunOptions{Data: make([]byte, 64), Repeat: produced})
	ok(t, err)
	before, err := events.Stat()
	ok(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for e, err := range events.All(ctx) {
		ok(t, err)
		if e != 42 {
			t.Fatalf("read %d", e)
		}
		if s, err := events.Stat(); err != nil || s.Available == 0 {
			ok(t, err)
			cancel()
		}
	}
	s, err := events.Stat()
	ok(t, err)
	if s.Delivered+s.Lost != produced || s.Lost == 0 || s.Delivered == 0 {
		t.Errorf("%d produced, %d delivered, %d lost", produced, s.Delivered, s.Lost)
	}
	t.Logf("%d produced, %d delivered, %d lost, %d bytes waited", produced, s.Delivered, s.Lost, before.Available)
}
