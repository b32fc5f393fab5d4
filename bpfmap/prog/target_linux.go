// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// holds refuses a link that is at another hook than the one that is declared.
func (h Hook) holds(info *link.Info) error {
	ok := true
	switch h.kind {
	case KindXDP:
		ok = info.XDP() != nil
	case KindTCX:
		tcx := info.TCX()
		ok = tcx != nil && ebpf.AttachType(tcx.AttachType) == h.attachType
	case KindCgroup:
		cg := info.Cgroup()
		ok = cg != nil && ebpf.AttachType(cg.AttachType) == h.attachType
	case KindTracepoint:
		pe := info.PerfEvent()
		ok = pe != nil
		if ok && pe.Tracepoint() != nil { // since Linux 6.6
			_, name, _ := strings.Cut(h.point, "/")
			ok = pe.Tracepoint().Tracepoint == name
		}
	case KindRawTracepoint:
		raw := info.RawTracepoint()
		ok = raw != nil && raw.Name == h.point
	}
	if !ok {
		there, _ := describe(info)
		return fmt.Errorf("%w: the slot is declared at %s, and what is attached is at %s: Remove it first", ErrHook, h, there)
	}
	return nil
}

// lost says whether the link has lost its target, or holds another one than the name means now.
func (at *point) lost() (detached, moved bool, err error) {
	info, err := at.link.Info()
	if err == nil {
		err = at.hook.holds(info)
	}
	if err != nil {
		return false, false, err
	}
	var has, want uint64
	switch at.hook.kind {
	case KindTCX, KindXDP:
		if tcx := info.TCX(); tcx != nil {
			has = uint64(tcx.Ifindex)
		} else if xdp := info.XDP(); xdp != nil {
			has = uint64(xdp.Ifindex)
		}
	case KindCgroup:
		if cg := info.Cgroup(); cg != nil {
			has = cg.CgroupId
		}
	default:
		return false, false, nil
	}
	want, err = at.hook.number()
	if errors.Is(err, ErrGone) {
		return has == 0, has != 0, nil
	}
	moved = has != 0 && has != want
	if err == nil && has != 0 && !moved && at.hook.kind != KindCgroup {
		moved, err = at.hook.elsewhere(info, int(want))
	}
	return has == 0, moved, err
}

// elsewhere says whether a link is at another interface of this number: the first one of every network namespace has the
// same, and a link does not say in which namespace it is.
func (h Hook) elsewhere(info *link.Info, index int) (elsewhere bool, err error) {
	err = inNetns(h.netns, func() error {
		if h.kind == KindXDP {
			there, err := xdpAt(index)
			elsewhere = !slices.Contains(there, info.Program)
			return err
		}
		there, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: h.attachType})
		if err != nil {
			return err
		}
		elsewhere = !slices.ContainsFunc(there.Programs, func(p link.AttachedProgram) bool {
			have, ok := p.LinkID()
			return !ok || have == info.ID
		})
		return nil
	})
	return elsewhere, err
}

// number is how the kernel calls the target now: index of the interface, id of the cgroup. ErrGone says that there is none;
// whatever else goes wrong is no reason to wait for one.
func (h Hook) number() (n uint64, err error) {
	switch h.kind {
	case KindXDP, KindTCX:
		err = inNetns(h.netns, func() error {
			index, err := ifindex(h.target)
			n = uint64(index)
			return err
		})
	case KindCgroup:
		var stat unix.Stat_t
		if err = unix.Stat(h.target, &stat); errors.Is(err, unix.ENOENT) {
			err = fmt.Errorf("%w: cgroup %s: %w", ErrGone, h.target, err)
		}
		n = stat.Ino
	default:
		n = 1
	}
	return n, err
}

// ifindex asks for one interface: package net would list all of them, and on a node there are thousands.
func ifindex(name string) (int, error) {
	req, err := unix.NewIfreq(name)
	if err != nil {
		return 0, fmt.Errorf("%w: interface %s: %w", ErrHook, name, err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, req); err != nil {
		err = fmt.Errorf("interface %s: %w", name, err)
		if errors.Is(err, unix.ENODEV) {
			err = fmt.Errorf("%w: %w", ErrGone, err)
		}
		return 0, err
	}
	return int(req.Uint32()), nil
}

// inNetns runs f in a network namespace. A network namespace belongs to a thread, so f gets one for itself, and one that
// cannot be brought back is thrown away by ending its goroutine while it is locked to it.
func inNetns(path string, f func() error) error {
	if path == "" {
		return f()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err, back := func() (err error, back bool) {
			home, err := os.Open("/proc/thread-self/ns/net")
			if err != nil {
				return err, true
			}
			defer home.Close()
			there, err := os.Open(path)
			if err != nil {
				err = fmt.Errorf("network namespace: %w", err)
				if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) { // of a process that is gone
					err = fmt.Errorf("%w: %w", ErrGone, err)
				}
				return err, true
			}
			defer there.Close()
			if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("enter network namespace %s: %w", path, err), true
			}
			err = f()
			return err, unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil
		}()
		if back {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}
