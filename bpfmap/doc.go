// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package bpfmap makes eBPF maps hold what is wanted: it reads the kernel, compares, and writes only the difference,
// with keys and values of Go types whose layout is checked once. By hand that is a prune loop that visits keys twice, a
// rewrite of every entry at every pass, struct padding that turns equal keys into different ones, and batch calls whose
// counts and errors mean something else for every type of map.
//
//	type Limit struct {
//		Rate, Burst uint64
//		Tokens      uint64 // the program's
//	}
//	limits, err := bpfmap.Open[uint32, Limit](bpfmap.Spec{Name: "limits", MaxEntries: 1024},
//		bpfmap.WithPin("/sys/fs/bpf/flowlimit/limits"), bpfmap.WithIgnore("Tokens"))
//	…
//	res, err := limits.Sync(ctx, maps.All(desired)) // one read, and writes for what differs
//	// res.Drift: entries somebody else changed; res.Pressure: how full the map is
//
// [Map] is for hash tables, LRUs, arrays, device and CPU maps, [PerCPU] for counters, [LPM] for IP prefixes, [Nested] for
// maps of maps and with them whole sets that change at once, [Ring] for events. [Map.Plan] gives the difference to look at
// first: it prints as a diff.
//
// # Guarantees
//
//   - A pass over a map that is as wanted writes nothing. What is written is the difference, in batches, and the report
//     says exactly which element was written, which failed and why; one that fails keeps no other from being handled.
//   - Additions come before deletions while both fit, so nothing is missing in between; where they do not, the plan says
//     how many keys are. A fresh inner map of a [Nested] one has no gap at all.
//   - A walk ends, and yields every key that is there all the time exactly once and any other at most once, or says that
//     it could not. Deleting while walking is safe.
//   - Bytes that no field has are zero in the kernel, and never compared. A type without a fixed layout, and a type that
//     differs from the map in a field's name, offset or size, is refused by that field's name before anything is written.
//   - Bytes that a program owns ([WithIgnore]) are not compared and not overwritten; keys of others ([WithOwned]) are not
//     deleted; more deletions than permitted ([WithMaxDelete]) are none; a pin or a program that has another map by now
//     ([WithPin], [WithProgram]) stops a plan before its first write.
//   - A pin opens the same map again, also where the kernel had rounded its size. Another layout moves the entries by the
//     names of their fields and takes the pin's place by one rename ([WithMigration]).
//
// # Assumptions
//
// One process writes what a map is to hold; programs may write at any time, and what they write between the read and
// the write of a pass is found in the next. Go types spell the C names: SrcPort is src_port, or a tag says btf:"name".
//
// # Cost
//
// [Map.Sync] reads the whole map, one call for 8192 entries (a trie twice, see [LPM]), and allocates a few dozen times
// whatever its size; between audits ([WithAudit]) it reads nothing. Get, Put and Delete are one call and no allocation.
// Index and buffers of a map that is synced take its keys and values once more, and some 60 bytes for each entry. No
// goroutines.
//
// # RBAC
//
// None. Capabilities: CAP_BPF for everything about maps (and CAP_NET_ADMIN for device maps). Without CAP_SYS_ADMIN nothing
// is found by its id: a map's BTF is not read, so the layout is checked against what this library has pinned beside the
// map, or against sizes alone ([Stat] says which); the contents of an inner map that another process made are not
// compared; and a pinned map with another layout is not replaced, because nobody can say that no program uses it. An
// EPERM names the capability that is missing.
//
// # Not for
//
// Programs: loading, attaching and exchanging them. Queues, stacks, bloom filters and sockets: they have no keys to
// reconcile. Exact counts across several entries: entries are read one after the other.
package bpfmap
