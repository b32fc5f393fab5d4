// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Attachment is a program that runs at a hook as long as this process lives. [Attachment.Close] detaches it. It is not safe
// for concurrent use.
type Attachment struct {
	hook Hook
	prog *ebpf.Program // in force, a handle of our own
	at   *point
}

// Attach makes a program run at a hook, until Close or the end of the process; a [Slot] is what outlives the process.
//
// Errors: [ErrHook], [ErrBusy], [ErrGone], [ErrUnsupported], *[bpfmap.PermissionError].
func Attach(p *ebpf.Program, h Hook) (*Attachment, error) {
	if err := h.check(); err != nil {
		return nil, wrap("attach", h.String(), err)
	}
	if p == nil || p.Type() != h.typ {
		return nil, wrap("attach", h.String(), fmt.Errorf("%w: it runs programs of type %s", ErrHook, h.typ))
	}
	own, err := p.Clone()
	if err != nil {
		return nil, wrap("attach", h.String(), err)
	}
	at, err := h.attach(own, true)
	if err != nil {
		return nil, wrap("attach", h.String(), errors.Join(err, own.Close()))
	}
	return &Attachment{hook: h, prog: own, at: at}, nil
}

// Replace exchanges the program in one call: every event meets the old one or the new one. [ErrConflict] when another
// program than ours is there by now.
func (a *Attachment) Replace(p *ebpf.Program) error {
	if p == nil || p.Type() != a.hook.typ {
		return wrap("replace", a.hook.String(), fmt.Errorf("%w: it runs programs of type %s", ErrHook, a.hook.typ))
	}
	own, err := p.Clone()
	if err != nil {
		return wrap("replace", a.hook.String(), err)
	}
	if err := a.at.swap(a.prog, own); err != nil {
		return wrap("replace", a.hook.String(), errors.Join(err, own.Close()))
	}
	old := a.prog
	a.prog = own
	return old.Close()
}

// Close detaches the program.
func (a *Attachment) Close() error { return errors.Join(a.at.detach(), a.prog.Close()) }

// point is a hook with something at it.
type point struct {
	hook Hook
	link link.Link
	jump *ebpf.Map // the stub jumps through its only slot; nil without a trampoline
}

// attach makes the link. With a trampoline the program is in its slot before the stub is attached.
func (h Hook) attach(p *ebpf.Program, exact bool) (*point, error) {
	at := &point{hook: h}
	if exact && h.trampoline() {
		stub, jump, err := trampoline(p)
		if err != nil {
			return nil, permission(err, h.typ)
		}
		defer stub.Close()
		at.jump, p = jump, stub
	}
	err := inNetns(h.netns, func() (err error) {
		at.link, err = h.link(p)
		return err
	})
	if err != nil {
		return nil, errors.Join(h.explain(err), at.close())
	}
	return at, nil
}

func (h Hook) link(p *ebpf.Program) (link.Link, error) {
	switch h.kind {
	case KindXDP, KindTCX:
		index, err := ifindex(h.target)
		if err != nil {
			return nil, err
		}
		if h.kind == KindTCX {
			return link.AttachTCX(link.TCXOptions{Interface: index, Program: p, Attach: h.attachType})
		}
		flags := map[Mode]link.XDPAttachFlags{Generic: link.XDPGenericMode, Driver: link.XDPDriverMode}[h.mode]
		return link.AttachXDP(link.XDPOptions{Interface: index, Program: p, Flags: flags})
	case KindCgroup:
		folder, err := os.Open(h.target)
		if err != nil {
			return nil, err
		}
		defer folder.Close()
		// Not link.AttachCgroup: on kernels without links it falls back to what neither pins nor compares.
		return link.AttachRawLink(link.RawLinkOptions{Target: int(folder.Fd()), Program: p, Attach: h.attachType})
	case KindTracepoint:
		group, name, _ := strings.Cut(h.point, "/")
		return link.Tracepoint(group, name, p, nil)
	case KindRawTracepoint:
		return link.AttachRawTracepoint(link.RawTracepointOptions{Name: h.point, Program: p})
	case KindSocketFilter:
		return nil, link.AttachSocketFilter(h.conn, p)
	}
	return nil, fmt.Errorf("%w: %s has no constructor", ErrUnsupported, h.kind)
}

// explain turns the errno of an attachment into what it means.
func (h Hook) explain(err error) error {
	switch {
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		return fmt.Errorf("%w%s: %w", ErrBusy, h.holder(), err)
	case errors.Is(err, ErrGone):
		return err
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENOLINK), errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w: %w", ErrGone, err)
	case errors.Is(err, link.ErrNotSupported), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return permission(err, h.typ)
}

// holder says who is at a hook that has one place, as far as capabilities reach.
func (h Hook) holder() string {
	if h.kind != KindXDP {
		return ""
	}
	var there []ebpf.ProgramID
	_ = inNetns(h.netns, func() error {
		index, err := ifindex(h.target)
		if err == nil {
			there, err = xdpAt(index)
		}
		return err
	})
	if len(there) == 0 {
		return ""
	}
	it := new(link.Iterator)
	defer it.Close()
	for it.Next() {
		if info, err := it.Link.Info(); err == nil && info.XDP() != nil && slices.Contains(there, info.Program) {
			return fmt.Sprintf(" by program %d of link %d", info.Program, info.ID)
		}
	}
	return fmt.Sprintf(" by program %d", there[0])
}

// trampoline is a stub that jumps to the program in a slot. What the slot is empty of, the stub lets pass.
func trampoline(p *ebpf.Program) (stub *ebpf.Program, jump *ebpf.Map, err error) {
	jump, err = ebpf.NewMap(&ebpf.MapSpec{Name: "ashlar_jump", Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return nil, nil, err
	}
	if err = jump.Put(uint32(0), p); err == nil {
		stub, err = ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "ashlar_stub", Type: p.Type(), License: "GPL",
			Instructions: asm.Instructions{
				asm.LoadMapPtr(asm.R2, jump.FD()), // R1 is the context already
				asm.Mov.Imm(asm.R3, 0),
				asm.FnTailCall.Call(),
				asm.Mov.Imm(asm.R0, 0),
				asm.Return(),
			},
		})
	}
	if err != nil {
		return nil, nil, errors.Join(err, jump.Close())
	}
	return stub, jump, nil
}

// swap is the one call that changes what is in force, if old still is.
func (at *point) swap(old, new *ebpf.Program) error {
	switch {
	case at.jump != nil:
		// The kernel has no compare-and-swap for slots: the lock on the folder is what keeps others of this package away.
		now, err := at.current()
		if err != nil {
			return err
		}
		if id, err := programID(old); err != nil || now != id {
			return errors.Join(err, &ConflictError{Program: now})
		}
		return at.jump.Put(uint32(0), new)
	case at.hook.kind == KindSocketFilter:
		return link.AttachSocketFilter(at.hook.conn, new)
	}
	raw, ok := at.link.(interface {
		UpdateArgs(link.RawLinkUpdateOptions) error
	})
	if !ok {
		return fmt.Errorf("%w: the program of a %s cannot be exchanged", ErrUnsupported, at.hook.Name())
	}
	err := raw.UpdateArgs(link.RawLinkUpdateOptions{New: new, Old: old, Flags: unix.BPF_F_REPLACE})
	if errors.Is(err, unix.EPERM) { // what the kernel says when old is not what is there
		now, ierr := at.current()
		if id, perr := programID(old); ierr == nil && perr == nil && now != id {
			return errors.Join(&ConflictError{Program: now}, err)
		}
	}
	if err != nil {
		return at.hook.explain(err)
	}
	return nil
}

// current is the program in force, 0 when there is none.
func (at *point) current() (ebpf.ProgramID, error) {
	if at.jump != nil {
		var id uint32
		err := at.jump.Lookup(uint32(0), &id)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return 0, nil
		}
		return ebpf.ProgramID(id), err
	}
	info, err := at.link.Info()
	if err != nil {
		return 0, err
	}
	return info.Program, nil
}

// detach takes the program away before it returns, where the kernel can.
func (at *point) detach() error {
	if at.hook.kind == KindSocketFilter {
		return link.DetachSocketFilter(at.hook.conn)
	}
	// Closing the last handle detaches, too, but some time later: the kernel leaves it to a worker.
	err := at.link.Detach()
	if errors.Is(err, link.ErrNotSupported) || errors.Is(err, unix.ENOLINK) {
		err = nil
	}
	return errors.Join(err, at.close())
}

// close gives the handles back; the link lives on where it is pinned.
func (at *point) close() error {
	var errs []error
	if at.link != nil {
		errs = append(errs, at.link.Close())
	}
	if at.jump != nil {
		errs = append(errs, at.jump.Close())
	}
	return errors.Join(errs...)
}

func programID(p *ebpf.Program) (ebpf.ProgramID, error) {
	info, err := p.Info()
	if err != nil {
		return 0, err
	}
	id, ok := info.ID()
	if !ok {
		return 0, fmt.Errorf("%w: this kernel does not number programs", ErrUnsupported)
	}
	return id, nil
}

func mapID(m *ebpf.Map) (ebpf.MapID, error) {
	info, err := m.Info()
	if err != nil {
		return 0, err
	}
	id, ok := info.ID()
	if !ok {
		return 0, fmt.Errorf("%w: this kernel does not number maps", ErrUnsupported)
	}
	return id, nil
}
