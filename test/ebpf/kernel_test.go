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
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// TestMain proves that no test leaves a link, a mount, with the pins in it, a network namespace or a file descriptor behind.
func TestMain(m *testing.M) {
	if job := os.Getenv("EBPF_CHILD"); job != "" {
		os.Exit(child(job))
	}
	root := os.Geteuid() == 0
	if root && os.Getenv("EBPF_PRIVATE") == "" {
		os.Exit(private())
	}
	var before state
	if root {
		if err := unix.Mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			fmt.Fprintln(os.Stderr, "no trace file system:", err)
		}
		before = takeStock()
	}
	code := m.Run()
	if root && code == 0 {
		// The kernel lets go some time later. Nothing is collected here: finalizers would close what a test has left.
		deadline := time.Now().Add(10 * time.Second)
		for {
			left := before.missing(takeStock())
			if left == "" {
				break
			}
			if time.Now().After(deadline) {
				fmt.Fprintln(os.Stderr, "left behind:", left)
				code = 1
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	os.Exit(code)
}

// private runs the tests in a mount namespace of their own, so that nothing they mount can be seen from outside, or
// outlive them, and nothing that others mount comes and goes under them.
func private() int {
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), "EBPF_PRIVATE=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	err := cmd.Run() // Unshareflags makes every mount private first
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return max(1, exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

type state struct {
	mine map[ebpf.ProgramID]bool // programs of ours that are attached
	fds  map[string]bool
	rest int // mounts and network namespaces
}

// takeStock lists what a test could leave: links of programs whose names are ours, file descriptors, file systems, network
// namespaces of this process.
func takeStock() state {
	s := state{mine: map[ebpf.ProgramID]bool{}, fds: map[string]bool{}}
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.HasPrefix(to, "anon_inode:[event") { // of the runtime
			s.fds[e.Name()+" "+to] = true
		}
	}
	it := new(link.Iterator)
	for it.Next() {
		if info, err := it.Link.Info(); err == nil {
			if p, err := ebpf.NewProgramFromID(info.Program); err == nil {
				if pi, err := p.Info(); err == nil && (strings.HasPrefix(pi.Name, "on_") || strings.HasPrefix(pi.Name, "ashlar")) {
					s.mine[info.Program] = true
				}
				p.Close()
			}
		}
	}
	it.Close()
	mounts, _ := os.ReadFile("/proc/self/mounts")
	spaces, _ := filepath.Glob(fmt.Sprintf("/run/netns/ash%d*", os.Getpid()))
	s.rest = strings.Count(string(mounts), "\n") + len(spaces)
	return s
}

func (s state) missing(now state) string {
	var left []string
	for fd := range now.fds {
		if !s.fds[fd] {
			left = append(left, "descriptor "+fd)
		}
	}
	for id := range now.mine {
		if !s.mine[id] {
			left = append(left, fmt.Sprintf("link with program %d", id))
		}
	}
	if now.rest > s.rest {
		left = append(left, "a file system or a network namespace")
	}
	return strings.Join(left, ", ")
}

var skipped = "these tests attach programs to the kernel: run them as root"

// bpffs mounts a bpf file system for one test.
func bpffs(t testing.TB) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip(skipped)
	}
	dir := t.TempDir()
	if err := unix.Mount("bpf", dir, "bpf", 0, "mode=0755"); err != nil {
		t.Skipf("no bpf file system can be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	root := filepath.Join(dir, "slots")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

var netns atomic.Int32

// network is a pair of interfaces: "out" in one namespace sends to "in" in another one.
type network struct {
	t        testing.TB
	out, in  string // files of the namespaces
	sender   *net.UDPConn
	receiver *net.UDPConn
}

const port = 7777

func run(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// newNetwork makes two network namespaces, a veth pair between them, and a socket in each.
func newNetwork(t testing.TB) *network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip(skipped)
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("the command ip is not installed")
	}
	n := netns.Add(1)
	name := func(side string) string { return fmt.Sprintf("ash%d%s%d", os.Getpid(), side, n) }
	w := &network{t: t, out: "/run/netns/" + name("o"), in: "/run/netns/" + name("i")}
	for _, ns := range []string{name("o"), name("i")} {
		run(t, "ip", "netns", "add", ns)
		t.Cleanup(func() { run(t, "ip", "netns", "del", ns) })
	}
	w.plug()
	enter(t, w.in, func() {
		var err error
		if w.receiver, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 77, 0, 2), Port: port}); err != nil {
			t.Fatal(err)
		}
		_ = w.receiver.SetReadBuffer(64 << 20)
	})
	enter(t, w.out, func() {
		var err error
		if w.sender, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(10, 77, 0, 2), Port: port}); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { w.receiver.Close(); w.sender.Close() })
	return w
}

// plug makes the veth pair; unplug takes it away.
func (w *network) plug() {
	w.t.Helper()
	out, in := filepath.Base(w.out), filepath.Base(w.in)
	run(w.t, "ip", "-n", out, "link", "add", "out", "type", "veth", "peer", "name", "in", "netns", in)
	run(w.t, "ip", "-n", out, "addr", "add", "10.77.0.1/24", "dev", "out")
	run(w.t, "ip", "-n", in, "addr", "add", "10.77.0.2/24", "dev", "in")
	run(w.t, "ip", "-n", out, "link", "set", "out", "up")
	run(w.t, "ip", "-n", in, "link", "set", "in", "up")
	mac, err := exec.Command("ip", "netns", "exec", in, "cat", "/sys/class/net/in/address").Output()
	if err != nil {
		w.t.Fatal(err)
	}
	w.ready()
	run(w.t, "ip", "-n", out, "neigh", "replace", "10.77.0.2", "lladdr", strings.TrimSpace(string(mac)), "dev", "out")
}

// ready waits until both ends let packets through: the kernel notices a carrier some time after it is there, and drops
// what is sent before.
func (w *network) ready() {
	w.t.Helper()
	for end, ns := range map[string]string{"out": filepath.Base(w.out), "in": filepath.Base(w.in)} {
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(2 * time.Millisecond) {
			out, err := exec.Command("ip", "-n", ns, "-o", "link", "show", "dev", end).CombinedOutput()
			if err == nil && strings.Contains(string(out), "state UP") {
				break
			}
			if time.Now().After(deadline) {
				w.t.Fatalf("%s is not up: %s, %v", end, out, err)
			}
		}
	}
}

func (w *network) unplug() {
	w.t.Helper()
	run(w.t, "ip", "-n", filepath.Base(w.out), "link", "del", "out")
}

// send sends n packets whose payload begins with flow.
func (w *network) send(n int, flow uint32) {
	w.t.Helper()
	payload := []byte{byte(flow), byte(flow >> 8), byte(flow >> 16), byte(flow >> 24), 0, 0, 0, 0}
	for range n {
		if _, err := w.sender.Write(payload); err != nil {
			w.t.Errorf("send: %v", err)
			return
		}
	}
}

// enter runs f in a network namespace, on a thread that is thrown away.
func enter(t testing.TB, path string, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		ns, err := os.Open(path)
		if err == nil {
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
			ns.Close()
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// total adds up what the versions have counted.
func total(t testing.TB, hits *ebpf.Map) (sum uint64, each [8]uint64) {
	t.Helper()
	for i := range each {
		if err := hits.Lookup(uint32(i), &each[i]); err != nil {
			t.Fatal(err)
		}
		sum += each[i]
	}
	return sum, each
}
