// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ashlar-go/ashlar/bpfmap/prog"
)

// sceneFlows is how many of them events belong to, one after the other.
const sceneFlows = 512

// scene is where programs are replaced: a bpf file system, and what makes events.
type scene struct {
	pins   string
	sent   atomic.Int64
	mounts []string
	made   []string // folders
	event  func(flow uint16) error

	socket int
	netns  *os.File
	conn   *net.UDPConn

	mu      sync.Mutex // held while events are made
	halt    chan struct{}
	stopped sync.WaitGroup
	failed  atomic.Pointer[error]
}

func newScene(program string) (s *scene, h prog.Hook, err error) {
	s = &scene{socket: -1, halt: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	dir, err := s.mount("bpf")
	if err != nil {
		return s, h, err
	}
	s.pins = filepath.Join(dir, "bench")
	if err = os.Mkdir(s.pins, 0o700); err != nil {
		return s, h, err
	}
	if _, err = s.mount("tracefs"); err != nil { // to count calls
		return s, h, err
	}
	switch program {
	case "on_tracepoint":
		s.event = func(uint16) error { _, err := unix.Getpgid(0); return err }
		return s, prog.Tracepoint("syscalls", "sys_enter_getpgid"), nil
	case "on_cgroup":
		return s.cgroup()
	}
	done := make(chan error)
	go func() { // on a thread that is thrown away: a network namespace belongs to a thread
		runtime.LockOSThread()
		done <- s.network()
	}()
	if err = <-done; err != nil {
		return s, h, err
	}
	h = prog.TCX("in", prog.Ingress)
	if program == "on_xdp" {
		h = prog.XDP("in", prog.Generic)
	}
	return s, h.In(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), s.netns.Fd())), nil
}

func (s *scene) mount(kind string) (string, error) {
	dir, err := os.MkdirTemp("", "bench-"+kind)
	if err != nil {
		return "", err
	}
	s.made = append(s.made, dir)
	if err := unix.Mount(kind, dir, kind, 0, ""); err != nil {
		return "", fmt.Errorf("mount %s (as root): %w", kind, err)
	}
	s.mounts = append(s.mounts, dir)
	return dir, nil
}

// network makes a veth pair in a namespace of its own, and sends UDP to port 7777 as whole frames.
func (s *scene) network() (err error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	if s.netns, err = os.Open("/proc/thread-self/ns/net"); err != nil {
		return err
	}
	for _, args := range []string{"link add out type veth peer name in", "link set out up", "link set in up"} {
		if text, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, text)
		}
	}
	// The kernel notices that both ends are up some time after they are, and drops what is sent before.
	out, err := net.InterfaceByName("out")
	for deadline := time.Now().Add(10 * time.Second); err == nil && out.Flags&net.FlagRunning == 0; out, err = net.InterfaceByName("out") {
		if time.Now().After(deadline) {
			return errors.New("the veth pair does not come up")
		}
		time.Sleep(time.Millisecond)
	}
	if err != nil {
		return err
	}
	if s.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0); err != nil {
		return err
	}
	frame := make([]byte, 64)
	for i := range 6 {
		frame[i] = 0xff
	}
	copy(frame[12:], []byte{0x08, 0x00, 0x45, 0, 0, 50, 0, 0, 0, 0, 64, 17}) // IPv4, UDP
	frame[36], frame[37] = 7777>>8, 7777&0xff
	s.event = func(flow uint16) error {
		binary.LittleEndian.PutUint16(frame[42:], flow)
		return unix.Sendto(s.socket, frame, 0, &unix.SockaddrLinklayer{Ifindex: out.Index})
	}
	return nil
}

// cgroup sends UDP over lo from a socket in a cgroup of its own.
func (s *scene) cgroup() (*scene, prog.Hook, error) {
	root, err := s.mount("cgroup2")
	if err != nil {
		return s, prog.Hook{}, err
	}
	folder := filepath.Join(root, "ashlar-bench-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(folder, 0o755); err != nil {
		return s, prog.Hook{}, err
	}
	s.made = append(s.made, folder)
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return s, prog.Hook{}, err
	}
	home := root
	for line := range strings.Lines(string(own)) {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			home = filepath.Join(root, strings.TrimSpace(path))
		}
	}
	join := func(to string) error { return os.WriteFile(filepath.Join(to, "cgroup.procs"), []byte("0"), 0o644) }
	if err := join(folder); err != nil {
		return s, prog.Hook{}, err
	}
	s.conn, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7777})
	if err = errors.Join(err, join(home)); err != nil {
		return s, prog.Hook{}, err
	}
	payload := make([]byte, 8)
	s.event = func(flow uint16) error {
		binary.LittleEndian.PutUint16(payload, flow)
		_, err := s.conn.Write(payload)
		if errors.Is(err, unix.ECONNREFUSED) { // nobody listens, which the answer to the packet before says: this one was not sent
			_, err = s.conn.Write(payload)
		}
		return err
	}
	return s, prog.Cgroup(folder, prog.CgroupEgress()), nil
}

func (s *scene) start() {
	s.stopped.Go(func() {
		for {
			select {
			case <-s.halt:
				return
			default:
			}
			s.mu.Lock()
			for range 16 {
				if err := s.event(uint16(s.sent.Load() % sceneFlows)); err != nil {
					s.failed.Store(&err)
					s.mu.Unlock()
					return
				}
				s.sent.Add(1)
			}
			s.mu.Unlock()
		}
	})
}

func (s *scene) err() error {
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// pause returns how many events there were, and the way on.
func (s *scene) pause() (sent int64, resume func()) {
	s.mu.Lock()
	return s.sent.Load(), s.mu.Unlock
}

func (s *scene) stop() {
	close(s.halt)
	s.stopped.Wait()
}

func (s *scene) close() error {
	var errs []error
	if s.socket >= 0 {
		errs = append(errs, unix.Close(s.socket))
	}
	if s.conn != nil {
		errs = append(errs, s.conn.Close())
	}
	if s.netns != nil {
		errs = append(errs, s.netns.Close())
	}
	for i := len(s.made) - 1; i >= 0; i-- {
		if n := len(s.mounts); n > 0 && s.mounts[n-1] == s.made[i] {
			errs = append(errs, unix.Unmount(s.made[i], 0))
			s.mounts = s.mounts[:n-1]
		}
		errs = append(errs, os.Remove(s.made[i]))
	}
	return errors.Join(errs...)
}
