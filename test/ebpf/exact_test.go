// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ebpf

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/ashlar-go/ashlar/bpfmap/prog"
	"github.com/ashlar-go/ashlar/test/ebpf/progs"
)

// slot declares a slot that is removed after the test.
func slot(t testing.TB, root string, h prog.Hook, opts ...prog.Option) *prog.Slot {
	t.Helper()
	s, err := prog.New(root, "slot", h, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Remove(); err != nil {
			t.Errorf("remove: %v", err)
		}
	})
	return s
}

func release(object []byte, program string) prog.Release {
	return prog.Release{Object: object, Program: program, Verify: prog.Unsigned}
}

func sync1(t testing.TB, s *prog.Slot, r prog.Release) prog.Result {
	t.Helper()
	res, err := s.Sync(t.Context(), r)
	if err != nil {
		t.Fatalf("sync: %v", err)
	}
	return res
}

func mapOf(t testing.TB, s *prog.Slot, name string) *ebpf.Map {
	t.Helper()
	m, err := s.Map(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

const swaps = 500

// exact upgrades back and forth while traffic runs, and holds what was counted against what was sent.
func exact(t *testing.T, s *prog.Slot, program string, traffic func(n int)) {
	sync1(t, s, release(progs.One, program))
	hits := mapOf(t, s, "hits")
	if program == "on_tracepoint" || program == "on_raw" {
		if err := mapOf(t, s, "only").Put(uint32(0), uint32(os.Getpid())); err != nil {
			t.Fatal(err)
		}
	}
	sent, stop := 0, make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				if sent >= 30_000 {
					return
				}
			default:
			}
			traffic(50)
			sent += 50
		}
	})
	for i := range swaps {
		object := [][]byte{progs.Two, progs.One}[i%2]
		if res := sync1(t, s, release(object, program)); !res.Changed {
			t.Fatalf("swap %d changed nothing: %+v", i, res)
		}
	}
	close(stop)
	wg.Wait()
	sum, each := total(t, hits)
	if sum != uint64(sent) {
		t.Errorf("%d events, %d counted (%v)", sent, sum, each)
	}
	if each[1] == 0 || each[2] == 0 {
		t.Errorf("one version never ran: %v", each)
	}
	t.Logf("%d swaps, %d events, %d counted: %d by one version, %d by the other", swaps, sent, sum, each[1], each[2])
}

func TestExactTCX(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	exact(t, slot(t, root, prog.TCX("in", prog.Ingress).In(w.in)), "on_tcx", func(n int) { w.send(n, 1) })
}

func TestExactXDP(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	exact(t, slot(t, root, prog.XDP("in", prog.Generic).In(w.in)), "on_xdp", func(n int) { w.send(n, 1) })
}

func TestExactCgroup(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	folder := cgroup(t)
	// A socket belongs to the cgroup that its process was in when it was made.
	back := join(t, folder)
	var conn *net.UDPConn
	enter(t, w.out, func() {
		var err error
		if conn, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(10, 77, 0, 2), Port: port}); err != nil {
			t.Error(err)
		}
	})
	back()
	if conn == nil {
		t.FailNow()
	}
	defer conn.Close()
	w.sender.Close()
	w.sender = conn
	exact(t, slot(t, root, prog.Cgroup(folder, prog.CgroupEgress())), "on_cgroup", func(n int) { w.send(n, 1) })
}

func TestExactTracepoint(t *testing.T) {
	root := bpffs(t)
	exact(t, slot(t, root, prog.Tracepoint("syscalls", "sys_enter_getpgid")), "on_tracepoint", getpgid)
}

func TestExactRawTracepoint(t *testing.T) {
	root := bpffs(t)
	exact(t, slot(t, root, prog.RawTracepoint("sys_enter")), "on_raw", getpgid)
}

func getpgid(n int) {
	for range n {
		_, _ = unix.Getpgid(0)
	}
}

func cgroup(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("cgroup2", dir, "cgroup2", 0, ""); err != nil {
		t.Skipf("no cgroup2 file system can be mounted: %v", err)
	}
	folder := filepath.Join(dir, filepath.Base(filepath.Dir(dir))+"-ashlar")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(folder); err != nil && !os.IsNotExist(err) {
			t.Error(err)
		}
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return folder
}

// join moves this process into a cgroup, and back.
func join(t testing.TB, folder string) (back func()) {
	t.Helper()
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	home := "/"
	for line := range strings.Lines(string(own)) {
		if rest, ok := strings.CutPrefix(line, "0::"); ok {
			home = strings.TrimSpace(rest)
		}
	}
	move := func(to string) {
		if err := os.WriteFile(filepath.Join(to, "cgroup.procs"), []byte("0"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	move(folder)
	return func() { move(filepath.Join(filepath.Dir(folder), home)) }
}
