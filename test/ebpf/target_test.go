// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ebpf

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/ashlar-go/ashlar/bpfmap/prog"
	"github.com/ashlar-go/ashlar/test/ebpf/progs"
)

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

// The hook is taken: an error to match, and who it is. https://github.com/openshift/ingress-node-firewall/issues/92
func TestReport_ingressnodefirewall_92Busy(t *testing.T) {
	root, w, far := bpffs(t), newNetwork(t), newNetwork(t)
	// In another namespace, where the interface has the same number, is somebody else.
	elsewhere, err := prog.New(root, "far", prog.XDP("in", prog.Generic).In(far.in))
	if err != nil {
		t.Fatal(err)
	}
	sync1(t, elsewhere, release(progs.One, "on_xdp"))
	t.Cleanup(func() { _ = elsewhere.Remove() })
	h := prog.XDP("in", prog.Generic).In(w.in)
	s := slot(t, root, h)
	res := sync1(t, s, release(progs.One, "on_xdp"))
	other, err := prog.New(root, "other", h)
	if err != nil {
		t.Fatal(err)
	}
	l, err := link.LoadPinnedLink(root+"/slot/link", nil)
	if err != nil {
		t.Fatal(err)
	}
	info, err := l.Info()
	if err := errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = other.Sync(t.Context(), release(progs.Two, "on_xdp"))
	if !errors.Is(err, prog.ErrBusy) || !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), fmt.Sprintf("by program %d of link %d:", res.Program, info.ID)) {
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

// Somebody exchanges the program of an attachment behind its back.
func TestAnAttachmentNoticesAForeignSwap(t *testing.T) {
	w := newNetwork(t)
	h := prog.TCX("in", prog.Ingress).In(w.in)
	var l [3]*prog.Loaded
	for i, object := range [][]byte{progs.One, progs.Two, progs.Wide} {
		var err error
		if l[i], err = prog.Load(object, prog.Unsigned, prog.Want{Program: "on_tcx", Hook: h}); err != nil {
			t.Fatal(err)
		}
		defer l[i].Close()
	}
	a, err := prog.Attach(l[0].Program, h)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	ids := func(p *ebpf.Program) ebpf.ProgramID {
		info, err := p.Info()
		if err != nil {
			t.Fatal(err)
		}
		id, _ := info.ID()
		return id
	}
	it := new(link.Iterator)
	defer it.Close()
	for it.Next() {
		if info, err := it.Link.Info(); err == nil && info.Program == ids(l[0].Program) {
			if err := it.Link.Update(l[1].Program); err != nil {
				t.Fatal(err)
			}
		}
	}
	conflict := (*prog.ConflictError)(nil)
	if err := a.Replace(l[2].Program); !errors.As(err, &conflict) || conflict.Program != ids(l[1].Program) || !strings.Contains(err.Error(), "not the one that was put there") {
		t.Errorf("got %v", err)
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

// A slot that is declared at another hook than the one its program is at is no slot that has converged.
func TestAnotherHookIsRefused(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	folder := cgroup(t)
	for name, hooks := range map[string][2]prog.Hook{
		"direction":  {prog.TCX("in", prog.Ingress).In(w.in), prog.TCX("in", prog.Egress).In(w.in)},
		"kind":       {prog.TCX("in", prog.Ingress).In(w.in), prog.XDP("in", prog.Generic).In(w.in)},
		"cgroup":     {prog.Cgroup(folder, prog.CgroupEgress()), prog.Cgroup(folder, prog.CgroupIngress())},
		"tracepoint": {prog.Tracepoint("syscalls", "sys_enter_getpgid"), prog.Tracepoint("syscalls", "sys_enter_getpgrp")},
		"raw":        {prog.RawTracepoint("sys_enter"), prog.RawTracepoint("sys_exit")},
	} {
		t.Run(name, func(t *testing.T) {
			program := map[prog.Kind]string{prog.KindTCX: "on_tcx", prog.KindXDP: "on_xdp", prog.KindCgroup: "on_cgroup", prog.KindTracepoint: "on_tracepoint", prog.KindRawTracepoint: "on_raw"}
			s := slot(t, root, hooks[0])
			sync1(t, s, release(progs.One, program[hooks[0].Kind()]))
			sync1(t, s, release(progs.One, program[hooks[0].Kind()]))
			other, err := prog.New(root, "slot", hooks[1])
			if err != nil {
				t.Fatal(err)
			}
			if _, err := other.Recover(t.Context()); !errors.Is(err, prog.ErrHook) || !strings.Contains(err.Error(), "Remove it first") {
				t.Errorf("got %v", err)
			}
		})
	}
	// Another interface is a target that has moved.
	s, err := prog.New(root, "moving", prog.TCX("in", prog.Ingress).In(w.in))
	if err != nil {
		t.Fatal(err)
	}
	sync1(t, s, release(progs.One, "on_tcx"))
	if s, err = prog.New(root, "moving", prog.TCX("lo", prog.Ingress).In(w.in)); err != nil {
		t.Fatal(err)
	}
	if res := sync1(t, s, release(progs.One, "on_tcx")); res.Plan.Verb != prog.Reattach || attached(t, w.in) != 0 {
		t.Errorf("%+v, and %d programs at the first interface", res, attached(t, w.in))
	}
	if err := s.Remove(); err != nil {
		t.Error(err)
	}
	// So is the interface of the same name and number in another namespace.
	other := newNetwork(t)
	for program, hook := range map[string]func() prog.Hook{
		"on_tcx": func() prog.Hook { return prog.TCX("in", prog.Ingress) },
		"on_xdp": func() prog.Hook { return prog.XDP("in", prog.Generic) },
	} {
		near, err := prog.New(root, "moving", hook().In(w.in))
		if err != nil {
			t.Fatal(err)
		}
		sync1(t, near, release(progs.One, program))
		far, err := prog.New(root, "moving", hook().In(other.in))
		if err != nil {
			t.Fatal(err)
		}
		if res := sync1(t, far, release(progs.One, program)); res.Plan.Verb != prog.Reattach {
			t.Errorf("%s: %+v", program, res)
		}
		if res := sync1(t, far, release(progs.One, program)); res.Plan.Verb != prog.Nothing {
			t.Errorf("%s: %+v", program, res)
		}
		w.send(5, 1)
		other.send(7, 1)
		if sum, _ := total(t, mapOf(t, far, "hits")); sum != 7 {
			t.Errorf("%s: %d packets, want those of the second namespace alone, 7", program, sum)
		}
		if err := far.Remove(); err != nil {
			t.Error(err)
		}
	}
}

// A network namespace is removed and made again under its name, as that of a pod is: its interfaces have the same names and
// numbers as those before, and the old ones may still be there for a while.
func TestANetworkNamespaceIsMadeAgain(t *testing.T) {
	root := bpffs(t)
	name := fmt.Sprintf("ash%dagain", os.Getpid())
	add := func() {
		run(t, "ip", "netns", "add", name)
		run(t, "ip", "-n", name, "link", "set", "lo", "up")
	}
	add()
	t.Cleanup(func() { run(t, "ip", "netns", "del", name) })
	s := slot(t, root, prog.TCX("lo", prog.Ingress).In("/run/netns/"+name))
	sync1(t, s, release(progs.One, "on_tcx"))
	old, err := os.Open("/run/netns/" + name) // so that it stays
	if err != nil {
		t.Fatal(err)
	}
	run(t, "ip", "netns", "del", name)
	if res := sync1(t, s, release(progs.One, "on_tcx")); res.Phase != prog.PhaseWaiting {
		t.Errorf("without its file: %+v", res)
	}
	add()
	if res := sync1(t, s, release(progs.One, "on_tcx")); res.Plan.Verb != prog.Reattach || res.Phase != prog.PhaseActive {
		t.Errorf("while the old one is still there: %+v", res)
	}
	old.Close()
	run(t, "ip", "netns", "del", name)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		gone := false
		for o, err := range prog.Inventory(root) {
			gone = gone || err == nil && o.Slot == "slot" && o.Problem == "target is gone"
		}
		if gone {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the kernel keeps a namespace that nobody has")
		}
	}
	add()
	if res := sync1(t, s, release(progs.Two, "on_tcx")); res.Plan.Verb != prog.Upgrade || res.Phase != prog.PhaseDraining {
		t.Errorf("after the old one is gone: %+v", res)
	}
	if res := sync1(t, s, release(progs.Two, "on_tcx")); !res.Plan.Empty() {
		t.Errorf("converged: %+v", res)
	}
}

// An XDP program runs where it was asked for. A veth pair has both places.
func TestModesOfXDP(t *testing.T) {
	w := newNetwork(t)
	l, err := prog.Load(progs.One, prog.Unsigned, prog.Want{Program: "on_xdp", Hook: prog.XDP("in", prog.Best)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for mode, want := range map[prog.Mode]string{prog.Best: " xdp qdisc", prog.Driver: " xdp qdisc", prog.Generic: " xdpgeneric qdisc"} {
		a, err := prog.Attach(l.Program, prog.XDP("in", mode).In(w.in))
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("ip", "-n", filepath.Base(w.in), "link", "show", "dev", "in").CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("mode %d: %v, want %q in\n%s", mode, err, want, out)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}

// What is not there is waited for; what is something else is not.
func TestAWrongTargetIsNotWaitedFor(t *testing.T) {
	root := bpffs(t)
	for name, h := range map[string]prog.Hook{
		"no namespace": prog.TCX("in", prog.Ingress).In("/proc/version"),
		"a file":       prog.Cgroup("/proc/version/cgroup", prog.CgroupEgress()),
	} {
		s := slot(t, root, h)
		program := map[prog.Kind]string{prog.KindTCX: "on_tcx", prog.KindCgroup: "on_cgroup"}[h.Kind()]
		if res, err := s.Sync(t.Context(), release(progs.One, program)); err == nil || errors.Is(err, prog.ErrGone) {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
	for name, h := range map[string]prog.Hook{
		"interface": prog.TCX("nobody", prog.Ingress),
		"namespace": prog.TCX("in", prog.Ingress).In("/run/netns/nobody"),
		"process":   prog.TCX("in", prog.Ingress).In("/proc/4194303/ns/net"),
		"cgroup":    prog.Cgroup("/sys/fs/cgroup/nobody", prog.CgroupEgress()),
	} {
		s := slot(t, root, h)
		program := map[prog.Kind]string{prog.KindTCX: "on_tcx", prog.KindCgroup: "on_cgroup"}[h.Kind()]
		if res := sync1(t, s, release(progs.One, program)); res.Phase != prog.PhaseWaiting || res.RequeueAfter <= 0 {
			t.Errorf("%s: %+v", name, res)
		}
		if entries, _ := os.ReadDir(root); len(entries) > 0 {
			t.Errorf("%s: %v is there before the target is", name, entries)
		}
	}
}
