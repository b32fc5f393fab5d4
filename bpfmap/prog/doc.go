// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package prog replaces eBPF programs under traffic. Attaching a new program and detaching the old one loses events or
// counts them twice, a crash in between leaves two programs or none, and a map whose layout changes starts at zero.
//
// Declare a slot at a hook once, and say what should run there:
//
//	slot, err := prog.New("/sys/fs/bpf/flows", "eth0", prog.TCX("eth0", prog.Ingress))
//	…
//	res, err := slot.Sync(ctx, prog.Release{
//		Object:  object,
//		Program: "count",
//		Verify:  trusted.For(manifest, signature), // keys of package sign
//		Probes:  []prog.Probe{{Name: "short packet", Data: make([]byte, 14), Return: 0}},
//		Maps:    map[string]prog.Keep{"flows": prog.Counters()},
//	})
//	return reconcile.Result{RequeueAfter: res.RequeueAfter}, err
//
// A release goes through Verified → Loaded → Probed → Active → Draining, and the one before through Draining → Retired;
// until then a [Slot.Rollback], or a health function that says no, is one swap back. [Load] and [Attach] do the parts by
// themselves, without pins.
//
// # Guarantees
//
//   - Every event meets the old program or the new one: the switch is one system call. XDP, TCX and cgroups compare and
//     swap the program of the link; at tracepoints, where the kernel cannot, a stub jumps through a slot that is written.
//     Overlap and gap happen only on request, see [WithStrategy].
//   - The bytes that are verified are the bytes that are loaded. There is no default that accepts unsigned objects. No
//     other program of the object is loaded, no pin that the object asks for is made, and [Limits] are held first.
//   - Whatever is killed at whatever step: the program in force is the old or the new one, and the next Sync or Recover
//     finishes what had happened or undoes what had not, from the pins alone.
//   - Counters kept by [Counters] are exact across a change of layout, under traffic, across crashes and rollbacks.
//   - Readers that open a map by its public pin always find one, and [Slot.Guard] says when a map is no longer the one
//     that the program in force uses.
//   - A rejection by the verifier is data: instruction, source line, registers, reason, class. See [Verdict].
//   - Two processes do not get in each other's way: the second one gets [ErrConflict] and the name of the first.
//
// # Assumptions
//
// Linux 6.6 or newer for TCX, 5.9 for the others. The folder is in a bpf file system and writable only for those that may
// replace programs. All upgraders of a slot at a tracepoint use this package; at the other hooks the kernel itself
// notices those that do not.
//
// # Cost
//
// A Sync that changes nothing opens the pins of the slot and writes nothing. An upgrade is one load, one more when there are
// probes, and the pins; the switch is one call. A map that is moved: two calls for each key and pass, on every CPU for a
// per-CPU map, and one grace period of the kernel.
//
// # RBAC
//
// None. Capabilities: CAP_BPF and CAP_NET_ADMIN for packets, CAP_PERFMON for tracepoints. CAP_SYS_ADMIN only for
// what others have attached ([Inventory]) and to enter a network namespace ([Hook.In]).
//
// # Not for
//
// Hooks without a constructor here: [Check] lists all twelve kinds with what this kernel says, and cilium/ebpf's link
// package attaches them. Sockets, whose filter dies with them, have [Attach] and no slot.
package prog
