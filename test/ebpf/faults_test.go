// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ebpf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/ashlar-go/ashlar/bpfmap/prog"
	"github.com/ashlar-go/ashlar/test/ebpf/progs"
)

// One object may have several programs for a hook, and a release is one of them.
func TestAnotherProgramOfTheSameObject(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in))
	sync1(t, s, release(progs.Tails, "tail"))
	if plan, err := s.Plan(release(progs.Tails, "head")); err != nil || plan.Verb != prog.Upgrade {
		t.Errorf("%v, %v", plan, err)
	}
	sick := release(progs.Tails, "head")
	sick.Health = func(context.Context, prog.Running) error { return errors.New("sick") }
	if res, err := s.Sync(t.Context(), sick); !errors.Is(err, prog.ErrProbe) || res.Phase != prog.PhaseRolledBack {
		t.Errorf("%+v, %v", res, err)
	}
	if res := sync1(t, s, release(progs.Tails, "tail")); res.Changed || res.Plan.Verb != prog.Nothing {
		t.Errorf("the one in force failed with the other one: %+v", res)
	}
}

// Overlap and gap, cut off in front of each step: whatever was in between, there is one program afterwards, and what was
// counted is still there.
func TestKillAtEveryStepOfOverlapAndGap(t *testing.T) {
	for _, act := range []string{"overlap", "gap", "gap_xdp"} {
		t.Run(act, func(t *testing.T) {
			root, w := bpffs(t), newNetwork(t)
			for step := 0; ; step++ {
				j := job{Act: act, Root: root, Netns: w.in, Step: step}
				s, err := j.slot()
				if err != nil {
					t.Fatal(err)
				}
				program := "on_tcx"
				if act == "gap_xdp" {
					program = "on_xdp"
				}
				sync1(t, s, release(progs.One, program))
				w.send(10, 1)
				died := j.run(t)
				if _, err := s.Recover(t.Context()); err != nil {
					t.Errorf("step %d (%s): recover: %v", step, died, err)
				}
				w.send(10, 1)
				sum, each := total(t, mapOf(t, s, "hits"))
				if sum != 20 {
					t.Errorf("step %d (%s): %v counted, want 20", step, died, each)
				}
				if n := attached(t, w.in); program == "on_tcx" && n != 1 {
					t.Errorf("step %d (%s): %d programs", step, died, n)
				}
				if left := leftovers(t, root); len(left) > 0 {
					t.Errorf("step %d (%s): left over: %v", step, died, left)
				}
				sync1(t, s, release(progs.Two, program))
				w.send(10, 1)
				if sum, each := total(t, mapOf(t, s, "hits")); sum != 30 || each[2] < 10 {
					t.Errorf("step %d (%s): %v counted, want 30", step, died, each)
				}
				if err := s.Remove(); err != nil {
					t.Fatal(err)
				}
				if died == "" {
					t.Logf("killed in front of each of %d steps", step)
					break
				}
			}
		})
	}
}

// In front of each step something fails and goes on failing: the folder, so that nothing can be pinned, renamed or removed,
// or every call that would open a descriptor. Afterwards it works again, and whatever was left is put right.
func TestItFailsAtEveryStep(t *testing.T) {
	t.Run("folder", func(t *testing.T) {
		failing(t, func(root string, works bool) error {
			flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND)
			if !works {
				flags |= unix.MS_RDONLY
			}
			return unix.Mount("", filepath.Dir(root), "", flags, "")
		})
	})
	t.Run("descriptors", func(t *testing.T) {
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		failing(t, func(_ string, works bool) error {
			now := limit
			if !works {
				now.Cur = 3
			}
			return unix.Setrlimit(unix.RLIMIT_NOFILE, &now)
		})
	})
}

func failing(t *testing.T, set func(root string, works bool) error) {
	for name, tt := range map[string]struct {
		before []string
		act    string
		loose  bool // it may be that nothing is in force, or two are, until it is put right
	}{
		"upgrade":   {[]string{"one"}, "two", false},
		"migration": {[]string{"one"}, "wide", false},
		"rollback":  {[]string{"one", "wide"}, "rollback", false},
		"second":    {[]string{"one", "two"}, "one", false},
		"gap":       {[]string{"one"}, "gap", true},
		"overlap":   {[]string{"one"}, "overlap", true},
	} {
		t.Run(name, func(t *testing.T) {
			root, w := bpffs(t), newNetwork(t)
			failures := 0
			for step := 0; ; step++ {
				j := job{Act: tt.act, Root: root, Netns: w.in}
				n, last := -1, ""
				s, err := j.slot(prog.WithObserver(func(e prog.Event) {
					if n++; n == step {
						last = e.String()
						if err := set(root, false); err != nil {
							t.Error(err)
						}
					}
				}))
				if err != nil {
					t.Fatal(err)
				}
				plain, err := j.slot()
				if err != nil {
					t.Fatal(err)
				}
				sent := 0
				send := func() { w.send(10, 5); sent += 10 }
				for _, act := range tt.before {
					if err := acts[act](t.Context(), plain); err != nil {
						t.Fatal(err)
					}
					send()
				}
				n = -1
				if err := acts[tt.act](t.Context(), s); err != nil {
					failures++
				}
				if err := set(root, true); err != nil {
					t.Fatal(err)
				}
				if !tt.loose {
					if in := attached(t, w.in); in != 1 {
						t.Errorf("step %d (%s): %d programs in force", step, last, in)
					}
					send()
				}
				if _, err := plain.Recover(t.Context()); err != nil {
					t.Errorf("step %d (%s): recover: %v", step, last, err)
				}
				if left := leftovers(t, root); len(left) > 0 {
					t.Errorf("step %d (%s): left over: %v", step, last, left)
				}
				if in := attached(t, w.in); in != 1 {
					t.Errorf("step %d (%s): %d programs in force after recovery", step, last, in)
				}
				send()
				check(t, plain, step, last, uint64(sent))
				if err := plain.Remove(); err != nil {
					t.Fatal(err)
				}
				if last == "" {
					break
				}
			}
			if failures < 5 {
				t.Errorf("only %d failures", failures)
			}
			t.Logf("%d failures", failures)
		})
	}
}

// A removal that was cut off is never taken for an accident: what has been detached stays detached.
func TestKillAtEveryStepOfARemoval(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	for step := 0; ; step++ {
		j := job{Act: "remove", Root: root, Netns: w.in, Step: step}
		s, err := j.slot()
		if err != nil {
			t.Fatal(err)
		}
		sync1(t, s, release(progs.One, "on_tcx"))
		sync1(t, s, release(progs.Two, "on_tcx"))
		died := j.run(t)
		before := attached(t, w.in)
		if _, err := s.Recover(t.Context()); err != nil {
			t.Errorf("step %d (%s): recover: %v", step, died, err)
		}
		if after := attached(t, w.in); after > before {
			t.Errorf("step %d (%s): %d programs became %d", step, died, before, after)
		}
		if err := s.Remove(); err != nil {
			t.Errorf("step %d (%s): %v", step, died, err)
		}
		if entries, _ := os.ReadDir(root); len(entries) > 0 || attached(t, w.in) > 0 {
			t.Errorf("step %d (%s): %v left", step, died, entries)
		}
		if died == "" {
			t.Logf("killed in front of each of %d steps", step)
			break
		}
	}
}

// The new program cannot be attached after the old one was detached: the old one is back.
func TestAGapThatFailsIsClosed(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	h := prog.XDP("in", prog.Generic).In(w.in)
	l, err := prog.Load(progs.Wide, prog.Unsigned, prog.Want{Program: "on_xdp", Hook: h})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var stranger *prog.Attachment
	attempts := -1
	s := slot(t, root, h, prog.WithStrategy(prog.Gap), prog.WithObserver(func(e prog.Event) {
		if e.Step != prog.StepAttach {
			return
		}
		switch attempts++; attempts {
		case 1:
			if stranger, err = prog.Attach(l.Program, h); err != nil {
				t.Error(err)
			}
		case 2:
			if err := stranger.Close(); err != nil {
				t.Error(err)
			}
		}
	}))
	one := sync1(t, s, release(progs.One, "on_xdp"))
	res, err := s.Sync(t.Context(), release(progs.Two, "on_xdp"))
	if !errors.Is(err, prog.ErrBusy) || res.Digest != one.Digest {
		t.Errorf("%+v, %v", res, err)
	}
	w.send(10, 1)
	if _, each := total(t, mapOf(t, s, "hits")); each[1] != 10 {
		t.Errorf("%v counted", each)
	}
	if v := versions(t, root); len(v) != 1 {
		t.Errorf("versions %v", v)
	}
	if res := sync1(t, s, release(progs.Two, "on_xdp")); !res.Changed {
		t.Errorf("%+v", res)
	}
}

// Somebody writes another program into the slot of a trampoline, under us and before us.
func TestForeignSwapOfATrampolineIsNoticed(t *testing.T) {
	root := bpffs(t)
	h := prog.Tracepoint("syscalls", "sys_enter_getpgid")
	l, err := prog.Load(progs.Wide, prog.Unsigned, prog.Want{Program: "on_tracepoint", Hook: h})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	under := false
	s := slot(t, root, h, prog.WithObserver(func(e prog.Event) {
		if !under || e.Step != prog.StepSwap {
			return
		}
		jump, err := ebpf.LoadPinnedMap(root+"/slot/jump", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(jump.Put(uint32(0), l.Program), jump.Close()); err != nil {
			t.Fatal(err)
		}
	}))
	sync1(t, s, release(progs.One, "on_tracepoint"))
	under = true
	info, err := l.Program.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	conflict := (*prog.ConflictError)(nil)
	for _, when := range []string{"under us", "before us"} {
		if _, err := s.Sync(t.Context(), release(progs.Two, "on_tracepoint")); !errors.As(err, &conflict) || conflict.Program != id || conflict.Slot != "slot" {
			t.Errorf("%s: %v", when, err)
		}
	}
}

// Overlap ends when the call does.
func TestOverlapEndsAtOnce(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in), prog.WithStrategy(prog.Overlap))
	sync1(t, s, release(progs.One, "on_tcx"))
	l, err := link.LoadPinnedLink(root+"/slot/link", nil) // as an inventory has it open
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	sync1(t, s, release(progs.Two, "on_tcx"))
	if n := attached(t, w.in); n != 1 {
		t.Errorf("%d programs after a swap", n)
	}
}

// Whoever only looks is in nobody's way, and a health function may look.
func TestLookingDisturbsNobody(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	h := prog.TCX("in", prog.Ingress).In(w.in)
	other, err := prog.New(root, "slot", h)
	if err != nil {
		t.Fatal(err)
	}
	var s *prog.Slot
	looked := 0
	look := func() {
		for _, s := range []*prog.Slot{s, other} {
			if _, err := s.Plan(release(progs.Two, "on_tcx")); err != nil {
				t.Error(err)
			}
		}
		looked++
	}
	s = slot(t, root, h, prog.WithObserver(func(e prog.Event) {
		if e.Step != prog.StepLock {
			look()
		}
	}))
	r := release(progs.One, "on_tcx")
	r.Health = func(context.Context, prog.Running) error {
		m, err := s.Map("hits")
		if err != nil {
			return err
		}
		return errors.Join(s.Guard(m), m.Close())
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		sync1(t, s, r)
		r.Object = progs.Two
		sync1(t, s, r)
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("a method that only looks waits for the one that works")
	}
	if looked < 10 {
		t.Errorf("looked %d times", looked)
	}
}

// A clock that is set back does not keep the version before for as long as it was set back.
func TestTheClockIsSetBack(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	c := newClock()
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in), prog.WithClock(c.time))
	sync1(t, s, release(progs.One, "on_tcx"))
	sync1(t, s, release(progs.Two, "on_tcx"))
	c.now = c.now.Add(-24 * time.Hour)
	if res := sync1(t, s, release(progs.Two, "on_tcx")); res.Phase != prog.PhaseDraining || res.RequeueAfter != 30*time.Second {
		t.Errorf("a day earlier: %+v", res)
	}
	c.now = c.now.Add(31 * time.Second)
	if res := sync1(t, s, release(progs.Two, "on_tcx")); res.Phase != prog.PhaseActive || res.Previous != "" {
		t.Errorf("31 s later: %+v", res)
	}
}

// A first release that is refused leaves no folder, no journal and no half of a trampoline.
func TestARefusedFirstReleaseLeavesNothing(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	tcx := prog.TCX("in", prog.Ingress).In(w.in)
	probe := release(progs.One, "on_tcx")
	probe.Probes = []prog.Probe{{Data: make([]byte, 64), Return: 7}}
	for name, tt := range map[string]struct {
		hook    prog.Hook
		release prog.Release
	}{
		"rejected":      {tcx, release(progs.Broken, "broken")},
		"probe":         {tcx, probe},
		"no tracepoint": {prog.Tracepoint("syscalls", "sys_enter_nothing"), release(progs.One, "on_tracepoint")},
	} {
		s := slot(t, root, tt.hook)
		if _, err := s.Sync(t.Context(), tt.release); err == nil {
			t.Errorf("%s: no error", name)
		}
		if entries, _ := os.ReadDir(root); len(entries) > 0 {
			t.Errorf("%s left %v", name, entries)
		}
	}
	// The link cannot be pinned, because something else has its name.
	s := slot(t, root, prog.Tracepoint("syscalls", "sys_enter_getpgid"), prog.WithObserver(func(e prog.Event) {
		if e.Step == prog.StepPin && e.Detail == "link" {
			if err := os.Mkdir(filepath.Join(root, "slot/link"), 0o700); err != nil {
				t.Error(err)
			}
		}
	}))
	if _, err := s.Sync(t.Context(), release(progs.One, "on_tracepoint")); !errors.Is(err, os.ErrExist) {
		t.Errorf("got %v", err)
	}
	if entries, _ := os.ReadDir(root); len(entries) > 0 {
		t.Errorf("left %v", entries)
	}
}

// A symbolic link in the folder is removed, and what it points to is left alone.
func TestLinksAreNotFollowed(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in))
	sync1(t, s, release(progs.One, "on_tcx"))
	elsewhere := t.TempDir()
	if err := os.WriteFile(filepath.Join(elsewhere, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"next", "gone", "new"} {
		if err := os.Symlink(elsewhere, filepath.Join(root, "slot", name)); err != nil {
			t.Fatal(err)
		}
	}
	sync1(t, s, release(progs.Two, "on_tcx"))
	if _, err := os.Stat(filepath.Join(elsewhere, "precious")); err != nil {
		t.Error(err)
	}
	if left := leftovers(t, root); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	// The folder itself is a link: what is at its end is no slot.
	if err := os.Symlink(filepath.Join(root, "slot"), filepath.Join(root, "trick")); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(filepath.Join(root, "trick"))
	trick, err := prog.New(root, "trick", prog.TCX("in", prog.Ingress).In(w.in))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := trick.Sync(t.Context(), release(progs.One, "on_tcx")); err == nil {
		t.Error("a link was followed")
	}
}

// Two processes: one is stopped in the middle of a swap, and the other one is told who it is.
func TestTwoProcesses(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	j := job{Act: "two", Root: root, Netns: w.in, Step: -1, Stop: string(prog.StepSwap)}
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in))
	sync1(t, s, release(progs.One, "on_tcx"))
	cmd := j.start(t)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("%v, %v", status, err)
	}
	conflict := (*prog.ConflictError)(nil)
	for name, act := range map[string]func() error{
		"sync":     func() error { return second(s.Sync(t.Context(), release(progs.Wide, "on_tcx"))) },
		"recover":  func() error { return second(s.Recover(t.Context())) },
		"rollback": func() error { return second(s.Rollback(t.Context(), "no")) },
		"remove":   s.Remove,
	} {
		if err := act(); !errors.As(err, &conflict) || !strings.HasPrefix(conflict.Holder, fmt.Sprintf("process %d ", cmd.Process.Pid)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for o, err := range prog.Sweep(root, nil, true) {
		t.Errorf("swept %+v, %v", o, err)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the first one: %v", err)
	}
	if res := sync1(t, s, release(progs.Two, "on_tcx")); res.Changed || attached(t, w.in) != 1 {
		t.Errorf("%+v", res)
	}
}

// A program that the verifier follows until it gives up has a hundred megabytes of log, which nobody wants in memory.
func TestHugeLogsAreNotAskedFor(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip(skipped)
	}
	_, err := prog.Load(progs.Broken, prog.Unsigned, prog.Want{Program: "endless", Hook: prog.TCX("in", prog.Ingress)})
	rejected := (*prog.VerifierError)(nil)
	if !errors.As(err, &rejected) {
		t.Fatalf("got %v", err)
	}
	v := rejected.Verdict
	if v.Class != prog.ClassComplexity || v.Processed <= v.Limit || len(v.Log) > 4<<10 || v.Truncated || v.Reason == "" {
		t.Errorf("verdict %+v", v)
	}
}

// A map that the object does not have, and one that is none.
func TestMapsThatCannotBeUsed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip(skipped)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for name, maps := range map[string]map[string]*ebpf.Map{"typo": {"hit": m}, "nil": {"hits": nil}, "other": {"only": m}} {
		_, err := prog.Load(progs.One, prog.Unsigned, prog.Want{Program: "on_tcx", Hook: prog.TCX("in", prog.Ingress)}, prog.WithMaps(maps))
		if !errors.Is(err, prog.ErrMap) {
			t.Errorf("%s: %v", name, err)
		}
	}
	l, err := prog.Load(progs.One, prog.Unsigned, prog.Want{Program: "on_tcx", Hook: prog.TCX("in", prog.Ingress)}, prog.WithMaps(map[string]*ebpf.Map{"hits": m}))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := sameMap(l.Maps["hits"], m); err != nil {
		t.Error(err)
	}
}

func sameMap(a, b *ebpf.Map) error {
	ai, err := a.Info()
	if err != nil {
		return err
	}
	bi, err := b.Info()
	if err != nil {
		return err
	}
	x, _ := ai.ID()
	if y, _ := bi.ID(); x != y {
		return fmt.Errorf("map %d instead of %d", x, y)
	}
	return nil
}

// The link of a slot was removed by hand: the program is attached again, and its maps are those from before.
func TestALostLinkLosesNoCounters(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in))
	sync1(t, s, release(progs.One, "on_tcx"))
	w.send(10, 1)
	for i, r := range []prog.Release{release(progs.One, "on_tcx"), wide()} {
		l, err := link.LoadPinnedLink(root+"/slot/link", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Remove(root+"/slot/link"), l.Detach(), l.Close()); err != nil {
			t.Fatal(err)
		}
		sync1(t, s, r)
		w.send(10, 1)
		for _, table := range []string{"flows", "percpu"} {
			if n := packets(t, s, table, 1); n != uint64(20+10*i) {
				t.Errorf("%s has %d packets", table, n)
			}
		}
	}
}
