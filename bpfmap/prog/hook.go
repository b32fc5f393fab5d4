// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"fmt"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/cilium/ebpf"
)

// Kind is a family of hooks.
type Kind string

// The kinds that operators ask for. The first six have a constructor here; [Check] tells about all twelve.
const (
	KindXDP           Kind = "xdp"
	KindTCX           Kind = "tcx"
	KindCgroup        Kind = "cgroup"
	KindTracepoint    Kind = "tracepoint"
	KindRawTracepoint Kind = "raw_tracepoint"
	KindSocketFilter  Kind = "socket_filter"
	KindKprobe        Kind = "kprobe"
	KindUprobe        Kind = "uprobe"
	KindFentry        Kind = "fentry"
	KindLSM           Kind = "lsm"
	KindPerfEvent     Kind = "perf_event"
	KindSkLookup      Kind = "sk_lookup"
)

// Kinds returns all of them, in the order of their constants.
func Kinds() []Kind {
	return []Kind{
		KindXDP, KindTCX, KindCgroup, KindTracepoint, KindRawTracepoint, KindSocketFilter,
		KindKprobe, KindUprobe, KindFentry, KindLSM, KindPerfEvent, KindSkLookup,
	}
}

// Hook is a place where a program runs, and a target there. It comes from [XDP], [TCX], [Cgroup], [Tracepoint],
// [RawTracepoint] or [SocketFilter]; the zero Hook is refused. What cannot be combined has no parameter for it.
type Hook struct {
	kind       Kind
	point      string // what follows the kind in the name
	target     string
	netns      string
	typ        ebpf.ProgramType
	attachType ebpf.AttachType
	mode       Mode
	conn       syscall.Conn
	declared   error
}

// Mode is how an XDP program is run.
type Mode uint8

// The modes of XDP.
const (
	Best    Mode = iota // in the driver if it can, else in the kernel's network stack
	Generic             // in the kernel's network stack, on every interface, slower
	Driver              // in the driver or not at all
)

// XDP is the first hook of a packet that arrives at an interface. One program at a time.
func XDP(iface string, mode Mode) Hook {
	h := Hook{kind: KindXDP, target: iface, typ: ebpf.XDP, attachType: ebpf.AttachXDP, mode: mode}
	if mode > Driver {
		h.declared = fmt.Errorf("%w: XDP mode %d", ErrHook, mode)
	}
	return h.named("interface", iface)
}

// Direction of a packet, seen from the interface.
type Direction uint8

// The directions.
const (
	Ingress Direction = iota // arriving
	Egress                   // leaving
)

// TCX is a hook of traffic control on an interface. Several programs can be there; new ones run after those that are.
func TCX(iface string, d Direction) Hook {
	h := Hook{kind: KindTCX, target: iface, typ: ebpf.SchedCLS}
	switch d {
	case Ingress:
		h.point, h.attachType = "ingress", ebpf.AttachTCXIngress
	case Egress:
		h.point, h.attachType = "egress", ebpf.AttachTCXEgress
	default:
		h.declared = fmt.Errorf("%w: TCX direction %d", ErrHook, d)
	}
	return h.named("interface", iface)
}

// CgroupPoint is a hook of a cgroup. The zero value is none.
type CgroupPoint struct {
	name   string
	typ    ebpf.ProgramType
	attach ebpf.AttachType
}

// CgroupIngress is every packet that a socket of the cgroup receives.
func CgroupIngress() CgroupPoint {
	return CgroupPoint{"ingress", ebpf.CGroupSKB, ebpf.AttachCGroupInetIngress}
}

// CgroupEgress is every packet that a socket of the cgroup sends.
func CgroupEgress() CgroupPoint {
	return CgroupPoint{"egress", ebpf.CGroupSKB, ebpf.AttachCGroupInetEgress}
}

// CgroupConnect4 is every connect of an IPv4 socket of the cgroup.
func CgroupConnect4() CgroupPoint {
	return CgroupPoint{"connect4", ebpf.CGroupSockAddr, ebpf.AttachCGroupInet4Connect}
}

// CgroupConnect6 is every connect of an IPv6 socket of the cgroup.
func CgroupConnect6() CgroupPoint {
	return CgroupPoint{"connect6", ebpf.CGroupSockAddr, ebpf.AttachCGroupInet6Connect}
}

// CgroupSockCreate is every internet socket that is made in the cgroup.
func CgroupSockCreate() CgroupPoint {
	return CgroupPoint{"sock_create", ebpf.CGroupSock, ebpf.AttachCGroupInetSockCreate}
}

// Cgroup is a hook of a cgroup (version 2), given by its folder.
func Cgroup(folder string, p CgroupPoint) Hook {
	h := Hook{kind: KindCgroup, point: p.name, target: folder, typ: p.typ, attachType: p.attach}
	switch {
	case p.name == "":
		h.declared = fmt.Errorf("%w: the cgroup point is the zero value", ErrHook)
	case !filepath.IsAbs(folder) || filepath.Clean(folder) != folder:
		h.declared = fmt.Errorf("%w: cgroup folder %q must be an absolute, clean path", ErrHook, folder)
	}
	return h
}

// Tracepoint is a stable event of the kernel, as under /sys/kernel/tracing/events.
func Tracepoint(group, name string) Hook {
	h := Hook{kind: KindTracepoint, point: group + "/" + name, typ: ebpf.TracePoint}
	return h.named("tracepoint group", group).named("tracepoint", name)
}

// RawTracepoint is the same event with the raw arguments of the kernel.
func RawTracepoint(name string) Hook {
	h := Hook{kind: KindRawTracepoint, point: name, typ: ebpf.RawTracepoint}
	return h.named("raw tracepoint", name)
}

// SocketFilter decides which packets a socket of this process gets. It lives as long as the socket, so it cannot be
// pinned and has no [Slot]: [Attach] it.
func SocketFilter(c syscall.Conn) Hook {
	h := Hook{kind: KindSocketFilter, typ: ebpf.SocketFilter, conn: c}
	if c == nil {
		h.declared = fmt.Errorf("%w: the socket is nil", ErrHook)
	}
	return h
}

// In returns the hook in another network namespace, given by its file, such as /run/netns/blue or /proc/42/ns/net. Only
// interfaces are in one. The calling thread stays where it is. It takes CAP_SYS_ADMIN; a process that is in the namespace
// already needs neither.
func (h Hook) In(netns string) Hook {
	if h.kind != KindXDP && h.kind != KindTCX && h.declared == nil {
		h.declared = fmt.Errorf("%w: %s is in no network namespace", ErrHook, h)
	}
	if !filepath.IsAbs(netns) && h.declared == nil {
		h.declared = fmt.Errorf("%w: network namespace %q must be an absolute path", ErrHook, netns)
	}
	h.netns = netns
	return h
}

func (h Hook) named(what, name string) Hook {
	longest := 128
	if what == "interface" {
		longest = 15 // IFNAMSIZ and its zero
	}
	if h.declared == nil && (name == "" || len(name) > longest || slices.ContainsFunc([]rune(name), func(r rune) bool {
		return r <= ' ' || r == '/' || r == 0x7f
	}) || name == "." || name == "..") {
		h.declared = fmt.Errorf("%w: %s %.80q", ErrHook, what, name)
	}
	return h
}

// Kind is the family of the hook.
func (h Hook) Kind() Kind { return h.kind }

// Name is the hook without its target, as a manifest of package sign names it: "tcx/ingress", "tracepoint/sched/sched_switch".
func (h Hook) Name() string {
	if h.point == "" {
		return string(h.kind)
	}
	return string(h.kind) + "/" + h.point
}

// Target is the interface or the folder of the cgroup, "" where there is none.
func (h Hook) Target() string { return h.target }

// String is name, target and network namespace.
func (h Hook) String() string {
	s := h.Name()
	if h.target != "" {
		s += " " + h.target
	}
	if h.netns != "" {
		s += " in " + h.netns
	}
	return s
}

func (h Hook) check() error {
	if h.kind == "" {
		return fmt.Errorf("%w: it is the zero value", ErrHook)
	}
	return h.declared
}

// trampoline says that the kernel cannot exchange the program of such a link, so that a stub jumps to it instead.
func (h Hook) trampoline() bool { return h.kind == KindTracepoint || h.kind == KindRawTracepoint }

// fits says whether a program of this type runs at the hook.
func (h Hook) fits(spec *ebpf.ProgramSpec) error {
	if spec.Type != h.typ {
		return fmt.Errorf("%w: program %s is of type %s, %s runs %s", ErrHook, spec.Name, spec.Type, h.Name(), h.typ)
	}
	if h.kind == KindCgroup && spec.AttachType != ebpf.AttachNone && spec.AttachType != h.attachType {
		return fmt.Errorf("%w: program %s is for %s, not for %s", ErrHook, spec.Name, spec.AttachType, h.Name())
	}
	return nil
}
