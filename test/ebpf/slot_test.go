// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ebpf

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/ashlar-go/ashlar/bpfmap"
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

// A link that is closed by the removal of its interface, and the interface that returns.
func TestInterfaceReturns(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in))
	sync1(t, s, release(progs.One, "on_tcx"))
	w.send(10, 1)
	w.unplug()
	res := sync1(t, s, release(progs.One, "on_tcx"))
	if res.Phase != prog.PhaseWaiting || res.RequeueAfter <= 0 {
		t.Errorf("without the interface: %+v", res)
	}
	for o, err := range prog.Inventory(root) {
		if o.Slot == "slot" && (o.Problem != "target is gone" || err != nil) {
			t.Errorf("inventory: %+v, %v", o, err)
		}
	}
	w.plug()
	res = sync1(t, s, release(progs.One, "on_tcx"))
	if res.Phase != prog.PhaseActive || !res.Changed || res.Plan.Verb != prog.Reattach {
		t.Errorf("with the interface: %+v", res)
	}
	w.send(10, 1)
	if sum, _ := total(t, mapOf(t, s, "hits")); sum != 20 {
		t.Errorf("%d counted, want 20", sum)
	}
	// And away, and back as another release.
	w.unplug()
	w.plug()
	if res := sync1(t, s, release(progs.Two, "on_tcx")); res.Phase != prog.PhaseDraining {
		t.Errorf("another release: %+v", res)
	}
	w.send(10, 1)
	if sum, each := total(t, mapOf(t, s, "hits")); sum != 30 || each[2] != 10 {
		t.Errorf("%v counted", each)
	}
	if n := attached(t, w.in); n != 1 {
		t.Errorf("%d programs", n)
	}
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

// The pinned map is not the one that the program uses. https://github.com/cilium/cilium/issues/45196
func TestReport_cilium_45196SplitBrain(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in))
	sync1(t, s, release(progs.One, "on_tcx"))
	flows := mapOf(t, s, "flows")
	if err := s.Guard(flows); err != nil {
		t.Errorf("the map in use: %v", err)
	}
	sync1(t, s, wide())
	if err := s.Guard(flows); !errors.Is(err, bpfmap.ErrSplitBrain) {
		t.Errorf("the map of the version before: %v", err)
	}
	if err := s.Guard(mapOf(t, s, "flows")); err != nil {
		t.Errorf("opened again: %v", err)
	}
	// Somebody pins another map at the public name.
	other, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 16, MaxEntries: 1024})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := errors.Join(os.Remove(root+"/slot/maps/flows"), other.Pin(root+"/slot/maps/flows")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Map("flows"); !errors.Is(err, bpfmap.ErrSplitBrain) {
		t.Errorf("a stranger's pin: %v", err)
	}
}

// Programs that share maps go on sharing them after any number of upgrades. https://github.com/l3af-project/l3afd/issues/588
func TestReport_l3afd_588SharedMapsStayShared(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in))
	var id ebpf.MapID
	for i, object := range [][]byte{progs.One, progs.Two, progs.One, progs.Two} {
		sync1(t, s, release(object, "on_tcx"))
		m := mapOf(t, s, "hits")
		info, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		if now, _ := info.ID(); id != 0 && now != id {
			t.Errorf("upgrade %d: map %d became %d", i, id, now)
		} else {
			id = now
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

// The hook is taken: an error to match, and who it is. https://github.com/openshift/ingress-node-firewall/issues/92
func TestReport_ingressnodefirewall_92Busy(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	h := prog.XDP("in", prog.Generic).In(w.in)
	s := slot(t, root, h)
	res := sync1(t, s, release(progs.One, "on_xdp"))
	other, err := prog.New(root, "other", h)
	if err != nil {
		t.Fatal(err)
	}
	_, err = other.Sync(t.Context(), release(progs.Two, "on_xdp"))
	if !errors.Is(err, prog.ErrBusy) || !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), fmt.Sprintf("by program %d of link", res.Program)) {
		t.Errorf("got %v", err)
	}
	if err := other.Remove(); err != nil {
		t.Error(err)
	}
}

// Attached where it was meant to, whatever thread the caller is on. https://github.com/netobserv/netobserv-ebpf-agent/pull/888
func TestReport_netobserv_888NetworkNamespace(t *testing.T) {
	w := newNetwork(t)
	l, err := prog.Load(progs.One, prog.Unsigned, prog.Want{Program: "on_tcx", Hook: prog.TCX("in", prog.Ingress)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	home, err := os.Readlink("/proc/thread-self/ns/net") // the main thread may have been left elsewhere by a test
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			a, err := prog.Attach(l.Program, prog.TCX("in", prog.Ingress).In(w.in))
			if err != nil {
				// The same program twice at one interface is refused; it must be that interface.
				if !errors.Is(err, prog.ErrBusy) {
					t.Error(err)
				}
				return
			}
			if now, _ := os.Readlink("/proc/thread-self/ns/net"); now != home {
				t.Errorf("left in %s, was in %s", now, home)
			}
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := attached(t, w.in); n != 0 {
		t.Errorf("%d programs", n)
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
		if o.Digest != two.Digest || o.Previous != one.Digest || o.Program != uint32(two.Program) || o.Name != "on_tcx" ||
			strings.Join(o.Maps, " ") != "flows hits only percpu" || !strings.Contains(o.Holder, fmt.Sprint(os.Getpid())) || o.Problem != "" {
			t.Errorf("slot %+v", o)
		}
	}
	if slots != 1 || strangers == 0 {
		t.Errorf("%d slots, %d raw tracepoints", slots, strangers)
	}
}

// Each hook by its constructor, without a slot, and replaced.
func TestAttachAndReplace(t *testing.T) {
	w := newNetwork(t)
	folder := cgroup(t)
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for program, h := range map[string]prog.Hook{
		"on_xdp":        prog.XDP("in", prog.Generic).In(w.in),
		"on_tcx":        prog.TCX("in", prog.Egress).In(w.in),
		"on_cgroup":     prog.Cgroup(folder, prog.CgroupEgress()),
		"on_tracepoint": prog.Tracepoint("syscalls", "sys_enter_getpgid"),
		"on_raw":        prog.RawTracepoint("sys_enter"),
		"on_socket":     prog.SocketFilter(conn),
	} {
		t.Run(program, func(t *testing.T) {
			load := func(object []byte) *prog.Loaded {
				l, err := prog.Load(object, prog.Unsigned, prog.Want{Program: program, Hook: h})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { l.Close() })
				return l
			}
			one, two := load(progs.One), load(progs.Two)
			a, err := prog.Attach(one.Program, h)
			if err != nil {
				t.Fatal(err)
			}
			if program == "on_socket" {
				if !receives(t, conn) {
					t.Error("the first filter drops")
				}
			}
			if err := a.Replace(two.Program); err != nil {
				t.Errorf("replace: %v", err)
			}
			if program == "on_socket" && receives(t, conn) {
				t.Error("the second filter does not drop")
			}
			wrong, err := prog.Load(progs.One, prog.Unsigned, prog.Want{Program: "on_tcx", Hook: prog.TCX("x", prog.Ingress)})
			if err != nil {
				t.Fatal(err)
			}
			defer wrong.Close()
			if program != "on_tcx" {
				if err := a.Replace(wrong.Program); !errors.Is(err, prog.ErrHook) {
					t.Errorf("another type: %v", err)
				}
			}
			if err := a.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			if program == "on_socket" && !receives(t, conn) {
				t.Error("the filter is still there")
			}
		})
	}
	gone := prog.TCX("nobody", prog.Ingress).In(w.in)
	l, err := prog.Load(progs.One, prog.Unsigned, prog.Want{Program: "on_tcx", Hook: gone})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := prog.Attach(l.Program, gone); !errors.Is(err, prog.ErrGone) {
		t.Errorf("no interface: %v", err)
	}
	if _, err := prog.Attach(l.Program, prog.TCX("in", prog.Ingress).In("/run/netns/nobody")); !errors.Is(err, prog.ErrGone) {
		t.Errorf("no namespace: %v", err)
	}
}

func receives(t *testing.T, conn *net.UDPConn) bool {
	t.Helper()
	send, err := net.DialUDP("udp4", nil, conn.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer send.Close()
	if _, err := send.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	_, err = conn.Read(make([]byte, 10))
	return err == nil
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

func TestMerged(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in))
	sync1(t, s, release(progs.One, "on_tcx"))
	w.send(10, 1)
	r := release(progs.Wide, "on_tcx")
	late := false
	r.Maps = map[string]prog.Keep{
		"percpu": prog.Fresh(),
		"flows": prog.Merged(func(key, before, after, now []byte) []byte {
			if before == nil && !late {
				late = true
				w.send(5, 1) // the old program is still in force
			}
			return append(make([]byte, 8), after...)
		}),
	}
	sync1(t, s, r)
	if n := packets(t, s, "flows", 1); n != 15 {
		t.Errorf("%d packets, want 15", n)
	}
	if m := mapOf(t, s, "percpu"); m.Lookup(uint32(1), new([][2]uint64)) == nil {
		t.Error("the fresh map is not empty")
	}
}

// Two declarations of one size whose fields differ. https://github.com/cilium/ebpf/issues/821
func TestReport_cilium_ebpf_821SameSizeOtherFields(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in))
	sync1(t, s, release(progs.One, "on_tcx"))
	_, err := s.Sync(t.Context(), release(progs.Other, "on_tcx"))
	if !errors.Is(err, prog.ErrMap) || !strings.Contains(err.Error(), "layout was u32 → struct{packets u64 @0}, is u32 → struct{errors u32 @0; packets u32 @32}") {
		t.Errorf("got %v", err)
	}
	r := release(progs.Other, "on_tcx")
	r.Maps = map[string]prog.Keep{"flows": prog.Fresh(), "percpu": prog.Fresh()}
	sync1(t, s, r)
}

// A typed map that was opened by its public pin does not write to the map of the version before.
func TestTypedMapRefusesAfterASwap(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in))
	sync1(t, s, release(progs.One, "on_tcx"))
	m, err := bpfmap.Open[uint32, uint64](bpfmap.Spec{Name: "flows", Type: ebpf.Hash, MaxEntries: 1024}, bpfmap.WithPin(s.Pin("flows")))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	want := func(yield func(uint32, uint64) bool) { yield(7, 7) }
	if _, err := m.Sync(t.Context(), want); err != nil {
		t.Fatalf("before the swap: %v", err)
	}
	sync1(t, s, wide())
	want = func(yield func(uint32, uint64) bool) { yield(7, 8) }
	if _, err := m.Sync(t.Context(), want); !errors.Is(err, bpfmap.ErrSplitBrain) {
		t.Errorf("after the swap: %v", err)
	}
	if err := s.Guard(mapOf(t, s, "flows")); err != nil {
		t.Error(err)
	}
}

// Readers open the public pin at any time. https://github.com/cilium/cilium/issues/32387
func TestReport_cilium_32387ReadersAlwaysFindTheMap(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in))
	sync1(t, s, release(progs.One, "on_tcx"))
	stop, opened, failed := make(chan struct{}), 0, 0
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			m, err := ebpf.LoadPinnedMap(s.Pin("flows"), nil)
			if opened++; err != nil {
				failed++
				continue
			}
			m.Close()
		}
	})
	for i := range 100 {
		act := []string{"wide", "narrow"}[i%2]
		if err := acts[act](t.Context(), s); err != nil {
			t.Fatalf("upgrade %d: %v", i, err)
		}
	}
	close(stop)
	wg.Wait()
	if failed > 0 || opened == 0 {
		t.Errorf("%d of %d opens failed", failed, opened)
	}
	t.Logf("%d opens during 100 exchanges of the map", opened)
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

// A cgroup that is removed and made again, and an interface with an XDP program.
func TestOtherTargetsReturn(t *testing.T) {
	t.Run("cgroup", func(t *testing.T) {
		root, folder := bpffs(t), cgroup(t)
		s := slot(t, root, prog.Cgroup(folder, prog.CgroupEgress()))
		sync1(t, s, release(progs.One, "on_cgroup"))
		if err := os.Remove(folder); err != nil {
			t.Fatal(err)
		}
		if res := sync1(t, s, release(progs.One, "on_cgroup")); res.Phase != prog.PhaseWaiting {
			t.Errorf("without the cgroup: %+v", res)
		}
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if res := sync1(t, s, release(progs.One, "on_cgroup")); res.Phase != prog.PhaseActive || res.Plan.Verb != prog.Reattach {
			t.Errorf("with the cgroup: %+v", res)
		}
	})
	t.Run("xdp", func(t *testing.T) {
		root, w := bpffs(t), newNetwork(t)
		s := slot(t, root, prog.XDP("in", prog.Generic).In(w.in))
		sync1(t, s, release(progs.One, "on_xdp"))
		w.unplug()
		w.plug()
		if res := sync1(t, s, release(progs.One, "on_xdp")); res.Phase != prog.PhaseActive || res.Plan.Verb != prog.Reattach {
			t.Errorf("with the interface: %+v", res)
		}
		w.send(10, 1)
		if sum, _ := total(t, mapOf(t, s, "hits")); sum != 10 {
			t.Errorf("%d counted", sum)
		}
	})
}

// A packet that the old program is still at when the switch happens is counted by it, after the switch. The second pass
// of the migration has to wait for it.
func TestPacketsUnderWayAreCounted(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	h := prog.TCX("in", prog.Ingress).In(w.in)
	var wg sync.WaitGroup
	for range 5 {
		s, err := prog.New(root, "slot", h, prog.WithObserver(func(e prog.Event) {
			if e.Step == prog.StepSwap {
				wg.Go(func() { w.send(1, 5) })
				time.Sleep(3 * time.Millisecond) // it is in the program now
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
		sync1(t, s, release(progs.Slow, "on_tcx"))
		r := wide()
		r.Maps["percpu"] = prog.Fresh() // moving that one waits for every CPU by itself
		sync1(t, s, r)
		wg.Wait()
		if _, each := total(t, mapOf(t, s, "hits")); each[1] != 1 {
			t.Logf("the packet missed the old program: %v", each)
		}
		if n := packets(t, s, "flows", 5); n != 1 {
			t.Errorf("%d packets, want 1", n)
		}
		if err := s.Remove(); err != nil {
			t.Fatal(err)
		}
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

// What goes wrong after the new version was pinned is undone.
func TestAFailedMigrationIsUndone(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in))
	one := sync1(t, s, release(progs.One, "on_tcx"))
	w.send(10, 1)
	r := wide()
	r.Maps["flows"] = prog.Merged(func(_, _, after, _ []byte) []byte { return after }) // eight bytes, and sixteen are wanted
	if res, err := s.Sync(t.Context(), r); !errors.Is(err, prog.ErrMap) || res.Digest != one.Digest {
		t.Errorf("%+v, %v", res, err)
	}
	if left := leftovers(t, root); len(left) > 0 || len(versions(t, root)) != 1 {
		t.Errorf("left over: %v, %v", left, versions(t, root))
	}
	ctx, cancel := context.WithCancel(t.Context())
	r.Maps["flows"] = prog.Merged(func(_, _, after, _ []byte) []byte { cancel(); return append(after, after...) })
	if res, err := s.Sync(ctx, r); !errors.Is(err, context.Canceled) || res.Digest != one.Digest || len(versions(t, root)) != 1 {
		t.Errorf("%+v, %v", res, err)
	}
	w.send(10, 1)
	if n := packets(t, s, "flows", 1); n != 20 {
		t.Errorf("%d packets, want 20", n)
	}
}

// The kernel made a map a little larger than it was declared, and the same declaration fits it the next time.
// https://github.com/cilium/cilium/issues/42511
func TestReport_cilium_42511RoundedEntries(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in))
	sync1(t, s, release(progs.Slow, "on_tcx"))
	id := func() ebpf.MapID {
		m, err := ebpf.LoadPinnedMap(s.Pin("recent"), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		info, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		id, _ := info.ID()
		return id
	}
	before := id()
	r := release(progs.Other, "on_tcx")
	r.Maps = map[string]prog.Keep{"flows": prog.Fresh(), "percpu": prog.Fresh()}
	sync1(t, s, r)
	if after := id(); after != before {
		t.Errorf("map %d became %d", before, after)
	}
}
