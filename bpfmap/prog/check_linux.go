// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// kindSpec is the smallest program of a kind.
func kindSpec(k Kind) *ebpf.ProgramSpec {
	spec := &ebpf.ProgramSpec{
		Name: "ashlar_check", License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	}
	switch k {
	case KindXDP:
		spec.Type = ebpf.XDP
	case KindTCX:
		spec.Type = ebpf.SchedCLS
	case KindCgroup:
		spec.Type, spec.AttachType = ebpf.CGroupSKB, ebpf.AttachCGroupInetIngress
	case KindTracepoint:
		spec.Type = ebpf.TracePoint
	case KindRawTracepoint:
		spec.Type = ebpf.RawTracepoint
	case KindSocketFilter:
		spec.Type = ebpf.SocketFilter
	case KindKprobe, KindUprobe:
		spec.Type = ebpf.Kprobe
	case KindFentry:
		spec.Type, spec.AttachType, spec.AttachTo = ebpf.Tracing, ebpf.AttachTraceFEntry, "bpf_fentry_test1"
	case KindLSM:
		spec.Type, spec.AttachType, spec.AttachTo = ebpf.LSM, ebpf.AttachLSMMac, "file_open"
	case KindPerfEvent:
		spec.Type = ebpf.PerfEvent
	case KindSkLookup:
		spec.Type, spec.AttachType = ebpf.SkLookup, ebpf.AttachSkLookup
	}
	return spec
}

// probe fills in what this kernel says.
func (s *Support) probe() {
	spec := kindSpec(s.Kind)
	p, err := ebpf.NewProgramWithOptions(spec, ebpf.ProgramOptions{LogDisabled: true})
	if err != nil {
		err = permission(err, spec.Type)
		switch {
		case errors.Is(err, unix.EPERM):
			s.Why = err.Error()
			if why := module(s.Kind); why != "" {
				s.Why = why
			}
		case errors.Is(err, unix.EINVAL) || errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EOPNOTSUPP):
			s.Why = fmt.Sprintf("this kernel was built without %s programs", spec.Type)
		default:
			s.Why = fmt.Sprintf("a %s program cannot be loaded: %v", spec.Type, err)
		}
		return
	}
	defer p.Close()
	s.Loads = true
	if s.Why = place(s.Kind, p); s.Why == "" {
		s.Attaches = true
	}
}

// place looks for what a kind is attached to, without attaching anything.
func place(k Kind, p *ebpf.Program) string {
	exists := func(path, why string) string {
		if _, err := os.Stat(path); err != nil {
			return fmt.Sprintf("%s: %v", why, err)
		}
		return ""
	}
	const pmu = "/sys/bus/event_source/devices/"
	switch k {
	case KindTCX:
		// An interface that cannot exist tells an old kernel (EINVAL for the command) from one that looks for it.
		_, err := link.QueryPrograms(link.QueryOptions{Target: 1, Attach: ebpf.AttachTCXIngress})
		if err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.ENOENT) {
			return fmt.Sprintf("this kernel has no TCX: %v", err)
		}
	case KindCgroup:
		if cgroup2() == "" {
			return "no cgroup2 file system is mounted"
		}
	case KindTracepoint:
		// An event that does not exist tells a trace file system, wherever it is mounted, from none.
		l, err := link.Tracepoint("ashlar", "no_such", p, nil)
		switch {
		case err == nil:
			_ = l.Close()
		case !errors.Is(err, os.ErrNotExist):
			return fmt.Sprintf("%v: mount -t tracefs tracefs /sys/kernel/tracing", err)
		}
	case KindRawTracepoint:
		l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "ashlar_no_such", Program: p})
		if err == nil {
			_ = l.Close()
		} else if !errors.Is(err, os.ErrNotExist) {
			return fmt.Sprintf("raw tracepoints cannot be opened: %v", err)
		}
	case KindKprobe:
		return exists(pmu+"kprobe", "this kernel was built without kprobes")
	case KindUprobe:
		return exists(pmu+"uprobe", "this kernel was built without uprobes")
	case KindLSM:
		return module(k)
	case KindFentry:
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			return fmt.Sprintf("this kernel cannot attach to functions: %v", err)
		}
		_ = l.Close()
	}
	return ""
}

// module says whether the kernel runs bpf programs as a security module.
func module(k Kind) string {
	if k != KindLSM {
		return ""
	}
	list, err := os.ReadFile("/sys/kernel/security/lsm")
	if err != nil {
		return fmt.Sprintf("cannot tell whether bpf is among the security modules: %v: mount -t securityfs securityfs /sys/kernel/security", err)
	}
	if !strings.Contains(","+strings.TrimSpace(string(list))+",", ",bpf,") {
		return fmt.Sprintf("bpf is not among the security modules (%s): boot with lsm=…,bpf", strings.TrimSpace(string(list)))
	}
	return ""
}

// cgroup2 is where a cgroup2 file system is mounted, "" when nowhere.
func cgroup2() string {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			return f[1]
		}
	}
	return ""
}
