// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ebpf

import (
	"context"
	"errors"
	"os"
	"runtime/debug"
	"testing"

	"github.com/cilium/ebpf/link"

	"github.com/ashlar-go/ashlar/bpfmap/prog"
	"github.com/ashlar-go/ashlar/test/ebpf/progs"
)

// descriptors are those of this process, by number.
func descriptors(t *testing.T) map[string]string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	open := map[string]string{}
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil { // not that of the folder itself
			open[e.Name()] = to
		}
	}
	return open
}

// Whatever a call answers, it has closed what it opened when it does. The garbage collector would close it, too, and hide
// it from the count at the end of all tests, so it is off.
func TestNoCallLeavesADescriptorOpen(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	tcx := prog.TCX("in", prog.Ingress).In(w.in)
	xdp := prog.XDP("in", prog.Generic).In(w.in)
	s := slot(t, root, tcx, prog.WithDrain(0))
	kept, err := prog.New(root, "kept", prog.TCX("in", prog.Egress).In(w.in))
	if err != nil {
		t.Fatal(err)
	}
	traced, err := prog.New(root, "traced", prog.Tracepoint("syscalls", "sys_enter_getpgid"))
	if err != nil {
		t.Fatal(err)
	}
	busy, err := prog.New(root, "busy", xdp)
	if err != nil {
		t.Fatal(err)
	}
	holder, err := prog.New(root, "holder", xdp)
	if err != nil {
		t.Fatal(err)
	}
	sync1(t, holder, release(progs.One, "on_xdp"))
	l, err := prog.Load(progs.One, prog.Unsigned, prog.Want{Program: "on_tcx", Hook: tcx})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	probe := release(progs.Two, "on_tcx")
	probe.Probes = []prog.Probe{{Data: make([]byte, 64), Return: 7}}
	sick := release(progs.Two, "on_tcx")
	sick.Health = func(context.Context, prog.Running) error { return errors.New("sick") }
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	broken := wide()
	broken.Maps["flows"] = prog.Merged(func(_, _, after, _ []byte) []byte { return after })
	load := func(object []byte, program string, opts ...prog.Option) error {
		l, err := prog.Load(object, prog.Unsigned, prog.Want{Program: program, Hook: tcx}, opts...)
		if err == nil {
			err = l.Close()
		}
		return err
	}
	steps := []struct {
		name  string
		fails error // nil: it does not
		do    func() error
	}{
		{"load", nil, func() error { return load(progs.One, "on_tcx") }},
		{"load, rejected", prog.ErrRejected, func() error { return load(progs.Broken, "broken") }},
		{"load, limit", prog.ErrLimit, func() error { return load(progs.One, "on_tcx", prog.WithLimits(prog.Limits{Maps: 1})) }},
		{"attach and replace", nil, func() error {
			a, err := prog.Attach(l.Program, tcx)
			if err != nil {
				return err
			}
			return errors.Join(a.Replace(l.Program), a.Close())
		}},
		{"attach, gone", prog.ErrGone, func() error {
			_, err := prog.Attach(l.Program, prog.TCX("nobody", prog.Ingress))
			return err
		}},
		{"attach, no namespace", prog.ErrGone, func() error {
			_, err := prog.Attach(l.Program, prog.TCX("in", prog.Ingress).In("/run/netns/nobody"))
			return err
		}},
		{"nothing to recover", nil, func() error { return second(s.Recover(t.Context())) }},
		{"nothing to roll back", prog.ErrNothing, func() error { return second(s.Rollback(t.Context(), "")) }},
		{"install, probe", prog.ErrProbe, func() error { return second(s.Sync(t.Context(), probe)) }},
		{"install", nil, func() error {
			defer w.send(5, 5)
			return second(s.Sync(t.Context(), release(progs.One, "on_tcx")))
		}},
		{"nothing", nil, func() error { return second(s.Sync(t.Context(), release(progs.One, "on_tcx"))) }},
		{"upgrade, probe", prog.ErrProbe, func() error { return second(s.Sync(t.Context(), probe)) }},
		{"upgrade, rejected", prog.ErrRejected, func() error { return second(s.Sync(t.Context(), release(progs.Broken, "broken"))) }},
		{"upgrade, layout", prog.ErrMap, func() error { return second(s.Sync(t.Context(), release(progs.Wide, "on_tcx"))) }},
		{"upgrade, cancelled", context.Canceled, func() error { return second(s.Sync(cancelled, release(progs.Two, "on_tcx"))) }},
		{"migration, bad merge", prog.ErrMap, func() error { return second(s.Sync(t.Context(), broken)) }},
		{"upgrade, sick", prog.ErrProbe, func() error { return second(s.Sync(t.Context(), sick)) }},
		{"upgrade, failed before", prog.ErrFailedBefore, func() error { return second(s.Sync(t.Context(), sick)) }},
		{"migration", nil, func() error { return second(s.Sync(t.Context(), wide())) }},
		{"install another", nil, func() error { return second(kept.Sync(t.Context(), release(progs.One, "on_tcx"))) }},
		{"migrate another", nil, func() error { return second(kept.Sync(t.Context(), wide())) }},
		{"roll back", nil, func() error { return second(kept.Rollback(t.Context(), "asked")) }},
		{"trampoline", nil, func() error { return second(traced.Sync(t.Context(), release(progs.One, "on_tracepoint"))) }},
		{"trampoline, upgrade", nil, func() error { return second(traced.Sync(t.Context(), release(progs.Two, "on_tracepoint"))) }},
		{"busy", prog.ErrBusy, func() error { return second(busy.Sync(t.Context(), release(progs.One, "on_xdp"))) }},
		{"plan", nil, func() error { _, err := s.Plan(release(progs.One, "on_tcx")); return err }},
		{"map and guard", nil, func() error {
			m, err := s.Map("hits")
			if err != nil {
				return err
			}
			return errors.Join(s.Guard(m), m.Close())
		}},
		{"no map", os.ErrNotExist, func() error { _, err := s.Map("nobody"); return err }},
		{"inventory", nil, func() error {
			for _, err := range prog.Inventory(root) {
				if err != nil {
					return err
				}
			}
			return nil
		}},
		{"inventory, left early", nil, func() error {
			for range prog.Inventory(root) {
				break
			}
			return nil
		}},
		{"check", nil, func() error { prog.Check(); return nil }},
		{"interface gone", nil, func() error { w.unplug(); return second(s.Recover(t.Context())) }},
		{"interface back", nil, func() error { w.plug(); return second(s.Recover(t.Context())) }},
		{"sweep", nil, func() error {
			for _, err := range prog.Sweep(root, nil, true) {
				if err != nil {
					return err
				}
			}
			return nil
		}},
		{"remove", nil, s.Remove},
	}
	raw, err := prog.Load(progs.One, prog.Unsigned, prog.Want{Program: "on_raw", Hook: prog.RawTracepoint("sys_enter")})
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	stranger, err := prog.Attach(raw.Program, prog.RawTracepoint("sys_enter")) // for the inventory
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for _, step := range steps { // once for whatever is opened once and kept
		_ = step.do()
	}
	sync1(t, holder, release(progs.One, "on_xdp"))
	for _, step := range steps {
		before := descriptors(t)
		err := step.do()
		if !errors.Is(err, step.fails) || err != nil && step.fails == nil {
			t.Errorf("%s: %v, want %v", step.name, err, step.fails)
		}
		for fd, to := range descriptors(t) {
			if before[fd] != to {
				t.Errorf("%s: left descriptor %s, %s", step.name, fd, to)
			}
		}
	}
	// It can be seen to fail.
	before := descriptors(t)
	sync1(t, s, release(progs.One, "on_tcx"))
	open, err := link.LoadPinnedLink(root+"/slot/link", nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(descriptors(t)) <= len(before) {
		t.Error("a descriptor that is left open is not seen")
	}
	open.Close()
}
