// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// lab is a network namespace with a veth pair in it, and a bpf file system.
type lab struct {
	iface string // where frames arrive
	netns string // file of the namespace, as long as this process lives
	pins  string
	sent  uint64

	socket, index int // to send at the other end
	ns            *os.File
	dir           string
}

// etherType is one for local experiments, so that nothing that the system sends by itself is counted.
const etherType = 0x88B5

func newLab() (l *lab, err error) {
	l = &lab{iface: "right", socket: -1}
	if os.Geteuid() != 0 {
		return nil, errors.New("attaching programs needs root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return nil, fmt.Errorf("the command ip makes the veth pair: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	// A namespace belongs to a thread: this one makes it, opens what is needed from it, and is thrown away.
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- l.network()
	}()
	if err := <-done; err != nil {
		return l, err
	}
	if l.dir, err = os.MkdirTemp("", "hotswap"); err != nil {
		return l, err
	}
	if err = unix.Mount("bpf", l.dir, "bpf", 0, "mode=0700"); err != nil {
		return l, fmt.Errorf("mount a bpf file system: %w", err)
	}
	l.pins = filepath.Join(l.dir, "hotswap")
	return l, os.Mkdir(l.pins, 0o700)
}

func (l *lab) network() (err error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	if l.ns, err = os.Open("/proc/thread-self/ns/net"); err != nil {
		return err
	}
	l.netns = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), l.ns.Fd())
	for _, args := range [][]string{
		{"link", "add", "left", "type", "veth", "peer", "name", l.iface}, {"link", "set", "left", "up"}, {"link", "set", l.iface, "up"},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
	}
	// The kernel notices that both ends are up some time after they are, and drops what is sent before.
	left, err := net.InterfaceByName("left")
	for deadline := time.Now().Add(10 * time.Second); err == nil && left.Flags&net.FlagRunning == 0; left, err = net.InterfaceByName("left") {
		if time.Now().After(deadline) {
			return errors.New("the veth pair does not come up")
		}
		time.Sleep(time.Millisecond)
	}
	if err != nil {
		return err
	}
	l.index = left.Index
	l.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	return err
}

func (l *lab) close() error {
	var errs []error
	if l.socket >= 0 {
		errs = append(errs, unix.Close(l.socket))
	}
	if l.ns != nil {
		errs = append(errs, l.ns.Close()) // and with it the namespace
	}
	if l.pins != "" {
		errs = append(errs, unix.Unmount(l.dir, 0))
	}
	if l.dir != "" {
		errs = append(errs, os.Remove(l.dir))
	}
	return errors.Join(errs...)
}

// traffic sends frames until it is stopped.
type traffic struct {
	cancel context.CancelFunc
	done   chan error
}

func (l *lab) send(ctx context.Context) *traffic {
	ctx, cancel := context.WithCancel(ctx)
	t := &traffic{cancel, make(chan error, 1)}
	frame := make([]byte, 60)
	copy(frame, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, etherType >> 8, etherType & 0xff})
	go func() {
		for {
			for range 32 {
				if err := unix.Sendto(l.socket, frame, 0, &unix.SockaddrLinklayer{Ifindex: l.index}); err != nil {
					t.done <- fmt.Errorf("send: %w", err)
					return
				}
				l.sent++
			}
			if ctx.Err() != nil {
				t.done <- nil
				return
			}
			time.Sleep(50 * time.Microsecond) // leave the other processor something to do
		}
	}()
	return t
}

// stop returns when the last frame has been sent; it has arrived by then, because a veth pair delivers at once.
func (t *traffic) stop() error {
	t.cancel()
	return <-t.done
}
