// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package bpfmaptest is a kernel in memory for tests of code that uses bpfmap, and the suite that holds it and the real
// kernel to the same contracts. Tests of eBPF maps need root and a Linux kernel; with this they run anywhere, and can
// make the n-th system call fail.
//
//	k := bpfmaptest.New()
//	limits, err := bpfmap.Open[uint32, Limit](spec, bpfmap.WithSystem(k))
//	…
//	faults := bpfmaptest.Inject(k) // counts calls, fails the one it is told to
//	faults.Fail(2, syscall.E2BIG)
//
// # Guarantees
//
//   - [Kernel] gives the errors and the partial counts of Linux 6.18 for hash tables, arrays, per-CPU maps, LRUs, tries,
//     maps of maps, ring buffers and pins: a batch stops at the element that fails, a lookup in a trie takes the longest
//     match, a cursor that was deleted starts over, a frozen map refuses.
//   - [Conformance] passes on it and on a real kernel, and [Differ] finds a sequence of calls that they answer
//     differently.
//
// # Assumptions
//
// No programs run: nothing changes a map but calls. An LRU evicts before it is full, as the kernel's does, but not the
// same entries. The order of a hash table is arbitrary in both.
//
// # Cost
//
// A map is a Go map; a lookup in a trie goes through all entries.
//
// # RBAC
//
// None, and no capability.
//
// # Not for
//
// Programs, verifier, attach points: those need the kernel.
package bpfmaptest
