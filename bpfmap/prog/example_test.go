// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"

	"github.com/ashlar-go/ashlar/bpfmap/prog"
	"github.com/ashlar-go/ashlar/bpfmap/sign"
)

// count is the object of the examples.
func count() []byte {
	object, err := os.ReadFile("testdata/one.o")
	if err != nil {
		fmt.Println(err)
	}
	return object
}

// flows declares a slot; in earnest its root is a folder in a bpf file system.
func flows() *prog.Slot {
	slot, err := prog.New("/", "flows", prog.TCX("eth0", prog.Ingress))
	if err != nil {
		fmt.Println(err)
	}
	return slot
}

// What may run is decided before the kernel is asked for anything: here nobody has signed.
func ExampleLoad() {
	var trusted *sign.Keys // nobody
	_, err := prog.Load(count(), trusted.For(nil, nil), prog.Want{Program: "on_tcx", Hook: prog.TCX("eth0", prog.Ingress)})
	fmt.Println(err)
	fmt.Println(errors.Is(err, sign.ErrUnsigned))

	_, err = prog.Load(count(), nil, prog.Want{Program: "on_tcx", Hook: prog.TCX("eth0", prog.Ingress)})
	fmt.Println(err)
	// Output:
	// verify on_tcx: verify key: object is not signed: nobody is trusted
	// true
	// verify on_tcx: object is not verified
}

// Limits hold what an object asks for, before it gets it.
func ExampleLimits() {
	_, err := prog.Load(count(), prog.Unsigned, prog.Want{Program: "on_tcx", Hook: prog.TCX("eth0", prog.Ingress)},
		prog.WithLimits(prog.Limits{MapMemory: 4096}))
	fmt.Println(err)
	// Output: load on_tcx: object exceeds a limit: map bytes, with map flows (98304, at most 4096)
}

func ExampleUnsigned() {
	// The object is part of this binary, so whoever could replace it could replace the check as well.
	release := prog.Release{Object: count(), Program: "on_tcx", Verify: prog.Unsigned}
	fmt.Println(release.Verify(release.Object, release.Program, "tcx/ingress", "eth0"))
	// Output: <nil>
}

func ExampleReadObject() {
	object, err := prog.ReadObject("testdata/one.o", 0)
	fmt.Println(len(object) > 0, err)
	_, err = prog.ReadObject("testdata/one.o", 1000)
	fmt.Println(err)
	// Output:
	// true <nil>
	// read testdata/one.o: object exceeds a limit: object bytes (1001, at most 1000)
}

func ExampleHook() {
	for _, h := range []prog.Hook{
		prog.XDP("eth0", prog.Best),
		prog.TCX("eth0", prog.Egress).In("/run/netns/blue"),
		prog.Cgroup("/sys/fs/cgroup/web", prog.CgroupConnect4()),
		prog.Tracepoint("sched", "sched_process_exec"),
		prog.RawTracepoint("sys_enter"),
	} {
		fmt.Printf("%-34s signed as %q for %q\n", h, h.Name(), h.Target())
	}
	// Output:
	// xdp eth0                           signed as "xdp" for "eth0"
	// tcx/egress eth0 in /run/netns/blue signed as "tcx/egress" for "eth0"
	// cgroup/connect4 /sys/fs/cgroup/web signed as "cgroup/connect4" for "/sys/fs/cgroup/web"
	// tracepoint/sched/sched_process_exec signed as "tracepoint/sched/sched_process_exec" for ""
	// raw_tracepoint/sys_enter           signed as "raw_tracepoint/sys_enter" for ""
}

func ExampleCgroupPoint() {
	var none prog.CgroupPoint
	_, err := prog.New("/sys/fs/bpf", "web", prog.Cgroup("/sys/fs/cgroup/web", none))
	fmt.Println(err)
	// Output: declare web: hook does not fit: the cgroup point is the zero value
}

func ExampleAttach() {
	var p *ebpf.Program // of a Load
	_, err := prog.Attach(p, prog.TCX("eth0", prog.Ingress))
	fmt.Println(err)
	// Output: attach tcx/ingress eth0: hook does not fit: it runs programs of type SchedCLS
}

func ExampleNew() {
	_, err := prog.New("/sys/fs/bpf", "../flows", prog.TCX("eth0", prog.Ingress))
	fmt.Println(err)
	// Output: declare ../flows: name cannot be a pin: slot "../flows", want 1 to 64 letters, digits, _ and -, not beginning with -
}

// A reconciler calls Sync with what should run. The output is that of a machine where the root is no bpf file system.
func ExampleSlot_Sync() {
	res, err := flows().Sync(context.Background(), prog.Release{
		Object:  count(),
		Program: "on_tcx",
		Verify:  prog.Unsigned,
		Probes:  []prog.Probe{{Name: "short packet", Data: make([]byte, 64), Return: 0xffffffff}},
		Maps:    map[string]prog.Keep{"flows": prog.Counters()},
		Health: func(context.Context, prog.Running) error {
			return nil // or an error, and the version before is in force again
		},
	})
	fmt.Println(res.Changed, err)
	// Output: false sync flows: / is not in a bpf file system: mount one with mount -t bpf bpf /: not supported
}

func ExampleSlot_Plan() {
	plan, err := flows().Plan(prog.Release{Object: count(), Program: "on_tcx"})
	fmt.Println(plan.Empty(), err)
	fmt.Println(prog.Plan{Verb: prog.Upgrade, Why: "another program is in force"})
	// Output:
	// false plan flows: / is not in a bpf file system: mount one with mount -t bpf bpf /: not supported
	// Upgrade: another program is in force
}

func ExampleSlot_Recover() {
	_, err := flows().Recover(context.Background())
	fmt.Println(errors.Is(err, prog.ErrUnsupported))
	// Output: true
}

func ExampleSlot_Rollback() {
	_, err := flows().Rollback(context.Background(), "error rate is up")
	fmt.Println(errors.Is(err, prog.ErrUnsupported))
	// Output: true
}

// How the maps of the version before are taken over.
func ExampleKeep() {
	release := prog.Release{Maps: map[string]prog.Keep{
		"config":  prog.Same(),  // the default
		"scratch": prog.Fresh(), // starts empty
		// The packets were the first eight bytes of a value, and are the second ones now.
		"flows": prog.Counters(prog.Word{From: 0, To: 8}),
		"last": prog.Merged(func(_, before, after, _ []byte) []byte {
			return append(after, make([]byte, 8)...) // a field more
		}),
	}}
	fmt.Println(len(release.Maps))
	// Output: 4
}

func ExampleCheck() {
	for _, s := range prog.Check() {
		fmt.Println(s.Kind, s.Here, s.Slot) // s.Why says what this kernel or this process lacks
	}
	// Output:
	// xdp true true
	// tcx true true
	// cgroup true true
	// tracepoint true true
	// raw_tracepoint true true
	// socket_filter true false
	// kprobe false false
	// uprobe false false
	// fentry false false
	// lsm false false
	// perf_event false false
	// sk_lookup false false
}

func ExampleKinds() {
	fmt.Println(len(prog.Kinds()))
	// Output: 12
}

func ExampleInventory() {
	for o, err := range prog.Inventory("relative") {
		fmt.Println(o.Slot, err)
	}
	// Output: list relative: name cannot be a pin: root "relative" must be an absolute, clean path
}

func ExampleSweep() {
	for o, err := range prog.Sweep("/sys/fs/bpf/nobody-here", []string{"flows"}, false) {
		fmt.Println(o.Slot, o.Problem, err)
	}
	// Output:
}

// A rejection is data. It comes out of a Load as the target of errors.As.
func ExampleVerifierError() {
	var err error = &prog.VerifierError{Verdict: prog.Verdict{
		Instruction: 1, Opcode: "r0 = *(u8 *)(r1 +99)", Source: "return data[99];", File: "count.c:12",
		Reason: "invalid access to packet, off=99 size=1, R1(id=0,off=99,r=0)", Class: prog.ClassPacket,
	}}
	err = fmt.Errorf("upgrade: %w", err)
	if v := (*prog.VerifierError)(nil); errors.As(err, &v) {
		fmt.Println(v.Verdict.Class, v.Verdict.File)
		fmt.Println(v.Verdict)
	}
	// Output:
	// packet access count.c:12
	// invalid access to packet, off=99 size=1, R1(id=0,off=99,r=0), at instruction 1: r0 = *(u8 *)(r1 +99), from "return data[99];" in count.c:12
}
