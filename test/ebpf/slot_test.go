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
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/ashlar-go/ashlar/bpfmap/prog"
	"github.com/ashlar-go/ashlar/test/ebpf/progs"
)

// clock is moved by hand.
type clock struct{ now time.Time }

func (c *clock) time() time.Time { return c.now }

func newClock() *clock { return &clock{time.Now()} }

func TestDrainAndRetire(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	c := newClock()
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in), prog.WithClock(c.time))
	sync1(t, s, release(progs.One, "on_tcx"))
	res := sync1(t, s, release(progs.Two, "on_tcx"))
	if res.Phase != prog.PhaseDraining || res.Previous == "" || res.RequeueAfter != 30*time.Second {
		t.Errorf("after the swap: %+v", res)
	}
	c.now = c.now.Add(29 * time.Second)
	if res := sync1(t, s, release(progs.Two, "on_tcx")); res.Phase != prog.PhaseDraining || res.RequeueAfter != time.Second || res.Changed {
		t.Errorf("after 29 s: %+v", res)
	}
	c.now = c.now.Add(time.Second)
	res = sync1(t, s, release(progs.Two, "on_tcx"))
	if res.Phase != prog.PhaseActive || res.Previous != "" || res.RequeueAfter != 0 || res.Plan.Verb != prog.Retire {
		t.Errorf("after 30 s: %+v", res)
	}
	if _, err := s.Rollback(t.Context(), "late"); !errors.Is(err, prog.ErrNothing) {
		t.Errorf("rollback after the window: %v", err)
	}
	if res := sync1(t, s, release(progs.Two, "on_tcx")); !res.Plan.Empty() {
		t.Errorf("converged: %v", res.Plan)
	}
}

func TestHealthRollsBack(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	c := newClock()
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in), prog.WithClock(c.time))
	one := sync1(t, s, release(progs.One, "on_tcx"))
	sick := errors.New("sick")
	bad := release(progs.Two, "on_tcx")
	calls := 0
	bad.Health = func(_ context.Context, r prog.Running) error {
		calls++
		if r.Program == nil || r.Maps["hits"] == nil || r.Digest == one.Digest {
			t.Errorf("asked about %+v", r)
		}
		return sick
	}
	res, err := s.Sync(t.Context(), bad)
	if res.Reached != prog.PhaseRolledBack {
		t.Errorf("reached %s", res.Reached)
	}
	if !errors.Is(err, prog.ErrProbe) || !errors.Is(err, sick) || res.Phase != prog.PhaseRolledBack || res.Digest != one.Digest {
		t.Fatalf("%+v, %v", res, err)
	}
	// It is not tried again by itself.
	if _, err := s.Sync(t.Context(), bad); !errors.Is(err, prog.ErrFailedBefore) || calls != 1 {
		t.Errorf("again: %v after %d calls", err, calls)
	}
	if res, err := s.Recover(t.Context()); err != nil || res.Digest != one.Digest {
		t.Errorf("recover: %+v, %v", res, err)
	}
	// Healthy at first, sick later in the window.
	late := release(progs.Two, "on_tcx")
	late.Again = true
	late.Health = func(context.Context, prog.Running) error {
		if c.now.After(time.Now().Add(5 * time.Second)) {
			return sick
		}
		return nil
	}
	if res := sync1(t, s, late); res.Phase != prog.PhaseDraining || res.RequeueAfter > 5*time.Second {
		t.Errorf("healthy: %+v", res)
	}
	c.now = c.now.Add(20 * time.Second)
	if res, err := s.Sync(t.Context(), late); !errors.Is(err, sick) || res.Digest != one.Digest {
		t.Errorf("sick later: %+v, %v", res, err)
	}
	if n := attached(t, w.in); n != 1 {
		t.Errorf("%d programs", n)
	}
}

func TestProbesGuardTheSwap(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.XDP("in", prog.Generic).In(w.in))
	one := sync1(t, s, release(progs.One, "on_xdp"))
	r := release(progs.Two, "on_xdp")
	packet := make([]byte, 64)
	packet[36], packet[37] = port>>8, port&0xff // one that the program counts
	r.Probes = []prog.Probe{{Name: "passes", Data: packet, Return: 2}, {Name: "drops", Data: packet, Return: 1}}
	if res, err := s.Sync(t.Context(), r); !errors.Is(err, prog.ErrProbe) || !strings.Contains(err.Error(), "drops returned 2, want 1") || res.Reached != prog.PhaseLoaded {
		t.Fatalf("got %+v, %v", res, err)
	}
	if res, err := s.Recover(t.Context()); err != nil || res.Digest != one.Digest || len(leftovers(t, root)) > 0 {
		t.Errorf("%+v, %v, left %v", res, err, leftovers(t, root))
	}
	if sum, _ := total(t, mapOf(t, s, "hits")); sum != 0 {
		t.Errorf("the probes were counted %d times", sum)
	}
	r.Probes[1].Return = 2
	r.Probes[1].Out = packet
	sync1(t, s, r)
}

// Two upgraders at once: one is at work in another process, and the other one is told who.
func TestTwoUpgraders(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	h := prog.TCX("in", prog.Ingress).In(w.in)
	s := slot(t, root, h)
	sync1(t, s, release(progs.One, "on_tcx"))
	second, err := prog.New(root, "slot", h)
	if err != nil {
		t.Fatal(err)
	}
	var conflict *prog.ConflictError
	first, err := prog.New(root, "slot", h, prog.WithObserver(func(e prog.Event) {
		if e.Step != prog.StepSwap {
			return
		}
		_, err := second.Sync(t.Context(), release(progs.Wide, "on_tcx"))
		if !errors.Is(err, prog.ErrConflict) || !errors.As(err, &conflict) {
			t.Errorf("the second one: %v", err)
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	res := sync1(t, first, release(progs.Two, "on_tcx"))
	if conflict == nil || !strings.Contains(conflict.Holder, fmt.Sprintf("process %d ", os.Getpid())) {
		t.Errorf("conflict %+v", conflict)
	}
	if again := sync1(t, second, release(progs.Two, "on_tcx")); again.Digest != res.Digest || again.Changed {
		t.Errorf("afterwards: %+v", again)
	}

	// Many at once, in one process: they take turns or conflict, and one program is in force.
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			other, err := prog.New(root, "slot", h)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := other.Sync(context.Background(), release([][]byte{progs.One, progs.Two}[i%2], "on_tcx")); err != nil && !errors.Is(err, prog.ErrConflict) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := attached(t, w.in); n != 1 {
		t.Errorf("%d programs", n)
	}
	if left := leftovers(t, root); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// Somebody swaps the program of the pinned link without this package, before us and under us.
func TestForeignSwapIsNoticed(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	h := prog.TCX("in", prog.Ingress).In(w.in)
	stranger, err := prog.Load(progs.Wide, prog.Unsigned, prog.Want{Program: "on_tcx", Hook: h})
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	swap := func() {
		l, err := link.LoadPinnedLink(root+"/slot/link", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := l.Update(stranger.Program); err != nil {
			t.Fatal(err)
		}
	}
	under := false
	s := slot(t, root, h, prog.WithObserver(func(e prog.Event) {
		if under && e.Step == prog.StepSwap {
			swap()
		}
	}))
	sync1(t, s, release(progs.One, "on_tcx"))
	under = true
	_, err = s.Sync(t.Context(), release(progs.Two, "on_tcx"))
	conflict := (*prog.ConflictError)(nil)
	info, _ := stranger.Program.Info()
	id, _ := info.ID()
	if !errors.As(err, &conflict) || conflict.Program != id {
		t.Errorf("under us: %v", err)
	}
	if v := versions(t, root); len(v) != 1 {
		t.Errorf("the version that lost is still there: %v", v)
	}
	under = false
	if _, err := s.Sync(t.Context(), release(progs.Two, "on_tcx")); !errors.As(err, &conflict) || conflict.Program != id {
		t.Errorf("before us: %v", err)
	}
	if _, err := s.Rollback(t.Context(), "no"); !errors.Is(err, prog.ErrConflict) {
		t.Errorf("rollback: %v", err)
	}
	for o := range prog.Inventory(root) {
		if o.Slot == "slot" && o.Problem != "another program is in force" {
			t.Errorf("inventory: %+v", o)
		}
	}
}

// Exactly one program after an upgrade. https://github.com/cilium/ebpf/issues/1994
func TestReport_cilium_ebpf_1994NothingIsAppended(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in))
	for _, object := range [][]byte{progs.One, progs.Two, progs.One} {
		sync1(t, s, release(object, "on_tcx"))
		if n := attached(t, w.in); n != 1 {
			t.Errorf("%d programs", n)
		}
	}
}

// What a process that is gone has left. https://github.com/elastiflow/mermin/pull/299, https://github.com/cilium/tetragon/pull/542
func TestReport_mermin_299Orphans(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	for _, name := range []string{"wanted", "orphan"} {
		s, err := prog.New(root, name, prog.TCX("in", prog.Ingress).In(w.in))
		if err != nil {
			t.Fatal(err)
		}
		sync1(t, s, release(progs.One, "on_tcx"))
		t.Cleanup(func() {
			if err := s.Remove(); err != nil {
				t.Error(err)
			}
		})
	}
	if err := os.Mkdir(root+"/something-else", 0o755); err != nil {
		t.Fatal(err)
	}
	found := func(remove bool) (names []string) {
		for o, err := range prog.Sweep(root, []string{"wanted"}, remove) {
			if err != nil {
				t.Error(err)
			}
			names = append(names, o.Slot)
		}
		return names
	}
	if names := found(false); len(names) != 1 || names[0] != "orphan" || attached(t, w.in) != 2 {
		t.Errorf("reported %v, %d attached", names, attached(t, w.in))
	}
	if names := found(true); len(names) != 1 || attached(t, w.in) != 1 {
		t.Errorf("removed %v, %d attached", names, attached(t, w.in))
	}
	if names := found(true); len(names) != 0 {
		t.Errorf("found again: %v", names)
	}
}

func TestInventory(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in))
	one := sync1(t, s, release(progs.One, "on_tcx"))
	two := sync1(t, s, release(progs.Two, "on_tcx"))
	l, err := prog.Load(progs.One, prog.Unsigned, prog.Want{Program: "on_raw", Hook: prog.RawTracepoint("sys_enter")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := prog.Attach(l.Program, prog.RawTracepoint("sys_enter"))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	slots, strangers := 0, 0
	for o, err := range prog.Inventory(root) {
		if err != nil {
			t.Error(err)
		}
		if o.Slot == "" {
			if o.Hook == "raw tracepoint sys_enter" {
				strangers++
			}
			continue
		}
		slots++
		if o.Digest != two.Digest || o.Previous != one.Digest || o.Program != two.Program || o.Name != "on_tcx" ||
			strings.Join(o.Maps, " ") != "flows hits only percpu" || !strings.Contains(o.Holder, fmt.Sprint(os.Getpid())) || o.Problem != "" {
			t.Errorf("slot %+v", o)
		}
	}
	if slots != 1 || strangers == 0 {
		t.Errorf("%d slots, %d raw tracepoints", slots, strangers)
	}
}

// Overlap sees events twice and gap loses some: both only where they are asked for.
func TestOverlapAndGap(t *testing.T) {
	for name, strategy := range map[string]prog.Strategy{"overlap": prog.Overlap, "gap": prog.Gap} {
		t.Run(name, func(t *testing.T) {
			root, w := bpffs(t), newNetwork(t)
			most, least := 0, 9
			s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in), prog.WithStrategy(strategy), prog.WithObserver(func(e prog.Event) {
				if e.Step == prog.StepAttach || e.Detail == "link" {
					n := attached(t, w.in)
					most, least = max(most, n), min(least, n)
				}
			}))
			sync1(t, s, release(progs.One, "on_tcx"))
			most, least = 0, 9
			sync1(t, s, release(progs.Two, "on_tcx"))
			if n := attached(t, w.in); n != 1 {
				t.Errorf("%d programs after the swap", n)
			}
			if strategy == prog.Overlap && (most != 2 || least != 1) || strategy == prog.Gap && (least != 0 || most != 1) {
				t.Errorf("%d to %d programs during the swap", least, most)
			}
		})
	}
}

func TestNoDrain(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in), prog.WithDrain(0))
	one := sync1(t, s, release(progs.One, "on_tcx"))
	if res := sync1(t, s, release(progs.Two, "on_tcx")); res.Phase != prog.PhaseActive || res.Previous != "" || res.RequeueAfter != 0 {
		t.Errorf("after the swap: %+v", res)
	}
	if _, err := s.Rollback(t.Context(), "late"); !errors.Is(err, prog.ErrNothing) {
		t.Errorf("rollback: %v", err)
	}
	// The health function is still asked first, and there is something to go back to.
	r := release(progs.One, "on_tcx")
	r.Health = func(context.Context, prog.Running) error { return errors.New("sick") }
	res, err := s.Sync(t.Context(), r)
	if !errors.Is(err, prog.ErrProbe) || res.Phase != prog.PhaseRolledBack || res.Digest == one.Digest {
		t.Errorf("%+v, %v", res, err)
	}
}

// An upgrade that is refused leaves the way back that there was.
func TestARefusedUpgradeKeepsTheWayBack(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in))
	one := sync1(t, s, release(progs.One, "on_tcx"))
	sync1(t, s, release(progs.Two, "on_tcx"))
	for name, r := range map[string]prog.Release{
		"rejected": release(progs.Broken, "broken"),
		"probe":    {Object: progs.Wide, Program: "on_tcx", Verify: prog.Unsigned, Maps: counters(), Probes: []prog.Probe{{Data: make([]byte, 64), Return: 1}}},
	} {
		if res, err := s.Sync(t.Context(), r); err == nil || name == "rejected" && res.Reached != prog.PhaseVerified {
			t.Errorf("%s: reached %s, %v", name, res.Reached, err)
		}
	}
	if res, err := s.Rollback(t.Context(), "asked"); err != nil || res.Digest != one.Digest || res.Phase != prog.PhaseRolledBack {
		t.Errorf("%+v, %v", res, err)
	}
}

func versions(t *testing.T, root string) []string {
	t.Helper()
	v, err := filepath.Glob(root + "/slot/v*")
	if err != nil {
		t.Fatal(err)
	}
	return v
}
