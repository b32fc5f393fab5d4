// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/cilium/ebpf"

	"github.com/ashlar-go/ashlar/bpfmap"
	"github.com/ashlar-go/ashlar/bpfmap/bpfmaptest"
)

// limit is the value in the examples: what a rate limiter in the kernel is told, and what it counts.
type limit struct {
	Rate, Burst uint32
	Tokens      uint64
}

var limits = bpfmap.Spec{Name: "limits", MaxEntries: 8}

// Everything in one place: open, look at the difference, write it, find it in sync, notice drift.
func Example() {
	ctx, kernel := context.Background(), bpfmaptest.New() // leave WithSystem out for the kernel of the machine
	m, err := bpfmap.Open[uint32, limit](limits, bpfmap.WithSystem(kernel), bpfmap.WithIgnore("Tokens"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	_ = m.Put(9, limit{Rate: 1}) // somebody wants nothing of this any more
	_ = m.Put(2, limit{Rate: 10, Burst: 5, Tokens: 77})

	desired := map[uint32]limit{1: {Rate: 100, Burst: 10}, 2: {Rate: 20, Burst: 5}}
	plan, err := m.Plan(ctx, maps.All(desired))
	fmt.Print(plan)
	rep, err := m.Apply(ctx, plan)
	fmt.Println(rep.Written, "written,", rep.Deleted, "deleted:", err)

	v, _, _ := m.Get(2)
	fmt.Printf("%+v\n", v)

	res, err := m.Sync(ctx, maps.All(desired))
	fmt.Println(res.Written, "written,", res.Unchanged, "as wanted:", err)

	_, _ = m.Delete(1) // somebody else
	res, err = m.Sync(ctx, maps.All(desired))
	fmt.Println(res.Added, "added,", res.Drift, "drifted:", err)
	// Output:
	// limits: 1 to add, 1 to change, 1 to delete, 0 as wanted (2 of 8 used)
	// order: add, change, delete
	// + 1: {Rate:100 Burst:10 Tokens:0} (missing)
	// ~ 2: Rate 10 → 20 (differs)
	// - 9: {Rate:1 Burst:0 Tokens:0} (unknown)
	// 2 written, 1 deleted: <nil>
	// {Rate:20 Burst:5 Tokens:77}
	// 0 written, 2 as wanted: <nil>
	// 1 added, 1 drifted: <nil>
}

func ExampleOpen() {
	kernel := bpfmaptest.New()
	_, err := bpfmap.Open[string, *int](bpfmap.Spec{Name: "bad", MaxEntries: 8}, bpfmap.WithSystem(kernel))
	fmt.Println(err)
	_, err = bpfmap.Open[uint32, struct {
		Active bool
		Count  int
	}](bpfmap.Spec{Name: "worse", MaxEntries: 8}, bpfmap.WithSystem(kernel))
	fmt.Println(errors.Is(err, bpfmap.ErrLayout))
	fmt.Println(err)
	// Output:
	// open bad: key: Go has string, which has no fixed layout
	// value: Go has *int, which has no fixed layout
	// true
	// open worse: value field Active: Go has bool, which may not hold the other 254 values of a byte: use uint8
	// value field Count: Go has int, whose size depends on the machine: give it one, as in uint32 or uint64
}

// A map that a collection loader made.
func ExampleWrap() {
	_, err := bpfmap.Wrap[uint32, limit](nil)
	fmt.Println(err)
	// Output:
	// wrap map: the map is nil
}

// The pin is opened again; another layout of the same size is refused by the name of the field.
func ExampleWithPin() {
	kernel, pin := bpfmaptest.New(), bpfmap.WithPin("/sys/fs/bpf/flowlimit/limits")
	first, err := bpfmap.Open[uint32, limit](limits, bpfmap.WithSystem(kernel), pin)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = first.Put(1, limit{Rate: 100})
	again, err := bpfmap.Open[uint32, limit](limits, bpfmap.WithSystem(kernel), pin)
	if err != nil {
		fmt.Println(err)
		return
	}
	v, ok, err := again.Get(1)
	fmt.Println(v.Rate, ok, err)

	type swapped struct {
		Burst, Rate uint32
		Tokens      uint64
	}
	_, err = bpfmap.Open[uint32, swapped](limits, bpfmap.WithSystem(kernel), pin)
	fmt.Println(errors.Is(err, bpfmap.ErrIncompatible))
	// Output:
	// 100 true <nil>
	// true
}

// A new version of the value: entries move by the names of their fields.
func ExampleWithMigration() {
	kernel, pin := bpfmaptest.New(), bpfmap.WithPin("/sys/fs/bpf/flowlimit/limits")
	v1, err := bpfmap.Open[uint32, limit](limits, bpfmap.WithSystem(kernel), pin)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = v1.Put(1, limit{Rate: 100, Burst: 10, Tokens: 7})

	type limit2 struct {
		Tokens, Rate, Burst uint64
		Ceiling             uint64
	}
	v2, err := bpfmap.Open[uint32, limit2](limits, bpfmap.WithSystem(kernel), pin,
		bpfmap.WithMigration(func(old bpfmap.Old, k *uint32, v *limit2) (bool, error) {
			v.Ceiling = 2 * v.Rate
			return true, nil
		}))
	if err != nil {
		fmt.Println(err)
		return
	}
	v, _, err := v2.Get(1)
	fmt.Printf("%+v %v\n", v, err)
	_, err = v1.Sync(context.Background(), func(func(uint32, limit) bool) {})
	fmt.Println(errors.Is(err, bpfmap.ErrSplitBrain))
	fmt.Println(bpfmap.Undo("/sys/fs/bpf/flowlimit/limits", bpfmap.WithSystem(kernel)))
	// Output:
	// {Tokens:7 Rate:100 Burst:10 Ceiling:200} <nil>
	// true
	// <nil>
}

// With a program in between: copy, exchange the program, merge what was written meanwhile, commit.
func ExampleMigrate() {
	ctx, kernel, pin := context.Background(), bpfmaptest.New(), bpfmap.WithPin("/sys/fs/bpf/flowlimit/hits")
	spec := bpfmap.Spec{Name: "hits", MaxEntries: 8}
	old, err := bpfmap.Open[uint32, uint32](spec, bpfmap.WithSystem(kernel), pin)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = old.Put(1, 40)

	g, err := bpfmap.Migrate[uint32, uint64](spec, bpfmap.WithSystem(kernel), pin)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = g.Copy(ctx)
	// Here the new program is loaded on g.Map() and takes over.
	_ = old.Put(1, 42)      // the old one was still counting
	_ = g.Map().Put(1, 100) // and so is the new one
	rep, merr := g.Merge(ctx, func(k uint32, was, now uint64, there bool) (uint64, bool) {
		return now + was - 40, true
	})
	fmt.Println(err, rep.Written, merr, g.Commit())
	v, _, _ := g.Map().Get(1)
	fmt.Println(v)
	// Output:
	// <nil> 1 <nil> <nil>
	// 102
}

func ExampleUndo() {
	err := bpfmap.Undo("/sys/fs/bpf/flowlimit/limits", bpfmap.WithSystem(bpfmaptest.New()))
	fmt.Println(errors.Is(err, os.ErrNotExist))
	// Output:
	// true
}

func ExampleMap_PutAll() {
	m, err := bpfmap.Open[uint32, uint32](bpfmap.Spec{Name: "small", MaxEntries: 2}, bpfmap.WithSystem(bpfmaptest.New()))
	if err != nil {
		fmt.Println(err)
		return
	}
	rep, err := m.PutAll(maps.All(map[uint32]uint32{1: 10, 2: 20, 3: 30}))
	fmt.Println(rep.Written, len(rep.Failures), errors.Is(err, bpfmap.ErrFull))
	rep, err = m.DeleteAll(slices.Values([]uint32{1, 2, 3}))
	fmt.Println(rep.Deleted, rep.Missing, err)
	// Output:
	// 2 1 true
	// 2 1 <nil>
}

func ExampleMap_All() {
	ctx := context.Background()
	m, err := bpfmap.Open[uint32, uint32](bpfmap.Spec{Name: "squares", Type: ebpf.Array, MaxEntries: 4}, bpfmap.WithSystem(bpfmaptest.New()))
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range uint32(4) {
		_ = m.Put(i, i*i)
	}
	for e, err := range m.All(ctx) {
		fmt.Println(e.Key, e.Value, err)
	}
	// Output:
	// 0 0 <nil>
	// 1 1 <nil>
	// 2 4 <nil>
	// 3 9 <nil>
}

// A shared map: only keys below 100 are ours, and never more than one of them goes in one pass.
func ExampleWithOwned() {
	ctx := context.Background()
	m, err := bpfmap.Open[uint32, uint32](bpfmap.Spec{Name: "shared", MaxEntries: 8}, bpfmap.WithSystem(bpfmaptest.New()),
		bpfmap.WithOwned(func(k uint32) bool { return k < 100 }), bpfmap.WithMaxDelete(bpfmap.Budget{Max: 1}))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, _ = m.PutAll(maps.All(map[uint32]uint32{1: 1, 2: 2, 500: 5}))
	res, err := m.Sync(ctx, maps.All(map[uint32]uint32{3: 3}))
	fmt.Println(res.Added, res.Deleted, res.Foreign, errors.Is(err, bpfmap.ErrBudget))
	res, err = m.Sync(ctx, maps.All(map[uint32]uint32{3: 3, 1: 1}))
	fmt.Println(res.Added, res.Deleted, res.Foreign, err)
	// Output:
	// 1 0 1 true
	// 0 1 1 <nil>
}

// Between audits a pass sends what changed and reads nothing.
func ExampleWithAudit() {
	ctx, now := context.Background(), time.Unix(0, 0)
	kernel := bpfmaptest.Inject(bpfmaptest.New()) // counts calls
	m, err := bpfmap.Open[uint32, uint32](bpfmap.Spec{Name: "shadow", MaxEntries: 8}, bpfmap.WithSystem(kernel),
		bpfmap.WithAudit(time.Minute), bpfmap.WithClock(func() time.Time { return now }))
	if err != nil {
		fmt.Println(err)
		return
	}
	pass := func(desired map[uint32]uint32) {
		kernel.Reset()
		res, err := m.Sync(ctx, maps.All(desired))
		fmt.Println(res.Written, res.Deleted, res.Audited, kernel.Calls(), err)
	}
	pass(map[uint32]uint32{1: 10, 2: 20})
	pass(map[uint32]uint32{1: 10, 2: 20})
	pass(map[uint32]uint32{1: 11, 2: 20})
	now = now.Add(2 * time.Minute)
	pass(map[uint32]uint32{1: 11, 2: 20})
	// Output:
	// 2 0 true [LookupBatch UpdateBatch] <nil>
	// 0 0 false [] <nil>
	// 1 0 false [UpdateBatch] <nil>
	// 0 0 true [LookupBatch] <nil>
}

func ExampleSum() {
	ctx := context.Background()
	hits, err := bpfmap.OpenPerCPU[uint32, uint64](bpfmap.Spec{Name: "hits", MaxEntries: 8}, bpfmap.WithSystem(bpfmaptest.New(bpfmaptest.WithCPUs(4))))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = hits.Sync(ctx, slices.Values([]uint32{1})) // keys are reconciled, counts are the program's
	_ = hits.Put(1, []uint64{1, 2, 3, 4})
	sum, serr := bpfmap.Sum(hits, 1)
	fmt.Println(sum, err, serr)
	res, err := hits.Sync(ctx, slices.Values([]uint32{1, 2}))
	fmt.Println(res.Added, res.Unchanged, err)
	for e, err := range bpfmap.SumAll(ctx, hits) {
		if e.Key == 1 {
			fmt.Println(e.Value, err)
		}
	}
	// Output:
	// 10 <nil> <nil>
	// 1 1 <nil>
	// 10 <nil>
}

func ExampleOpenPerCPU() {
	hits, err := bpfmap.OpenPerCPU[uint32, uint32](bpfmap.Spec{Name: "hits", MaxEntries: 8}, bpfmap.WithSystem(bpfmaptest.New()))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(hits.Put(1, []uint32{7})) // the other CPU's count would be lost
	_ = hits.Put(1, []uint32{7, 8})
	vs, ok, err := hits.Get(1, nil)
	fmt.Println(vs, ok, err)
	// Output:
	// put hits: 1 values for 2 CPUs: a shorter list would zero the others
	// [7 8] true <nil>
}

func ExampleOpenLPM() {
	routes, err := bpfmap.OpenLPM[uint32](bpfmap.Spec{Name: "routes", MaxEntries: 8}, 32, bpfmap.WithSystem(bpfmaptest.New()))
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = routes.Put(netip.MustParsePrefix("10.0.0.0/8"), 1)
	_ = routes.Put(netip.MustParsePrefix("10.0.1.99/24"), 2) // host bits are cleared
	via, ok, err := routes.Match(netip.MustParseAddr("10.0.1.7"))
	fmt.Println("longest match:", via, ok, err)
	_, ok, err = routes.Get(netip.MustParsePrefix("10.0.0.0/16"))
	fmt.Println("this very prefix:", ok, err)
	fmt.Println(routes.Put(netip.MustParsePrefix("fd00::/8"), 3))
	// Output:
	// longest match: 2 true <nil>
	// this very prefix: false <nil>
	// put routes: the prefix fd00::/8 has 128 bits, the map's have 32
}

// A set of entries that changes at once.
func ExampleNested_Replace() {
	ctx := context.Background()
	policies, err := bpfmap.OpenNested[uint32, uint32, uint32](bpfmap.Spec{Name: "policies", MaxEntries: 4},
		bpfmap.Spec{Name: "policy", MaxEntries: 64}, bpfmap.WithSystem(bpfmaptest.New()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer policies.Close()
	_, err = policies.Replace(ctx, 7, maps.All(map[uint32]uint32{80: 1, 443: 1}))
	fmt.Println(err)
	policy, ok, err := policies.Inner(7)
	fmt.Println(ok, err)
	stat, err := policy.Stat()
	fmt.Println(stat.Used, err)

	// Only the slot that differs gets a fresh map.
	rep, err := policies.Sync(ctx, maps.All(map[uint32]iter.Seq2[uint32, uint32]{
		7: maps.All(map[uint32]uint32{80: 1, 443: 1}),
		8: maps.All(map[uint32]uint32{22: 1}),
	}))
	fmt.Println(rep.Written, rep.Deleted, err)
	// Output:
	// <nil>
	// true <nil>
	// 2 <nil>
	// 1 0 <nil>
}

func ExampleOpenRing() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	kernel := bpfmaptest.New()
	events, err := bpfmap.OpenRing[uint64](bpfmap.Spec{Name: "events", MaxEntries: uint32(os.Getpagesize())}, bpfmap.WithSystem(kernel))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer events.Close()
	kernel.Emit(events.Backend(), []byte{1, 0, 0, 0, 0, 0, 0, 0})
	kernel.Emit(events.Backend(), []byte{1, 2, 3})
	n := 0
	for e, err := range events.All(ctx) {
		fmt.Println(e, err)
		if n++; n == 2 {
			cancel()
		}
	}
	stat, err := events.Stat()
	fmt.Println(stat.Delivered, stat.Available, err)
	// Output:
	// 1 <nil>
	// 0 read events: record: Go has 8 bytes (uint64), the record has 3
	// 2 0 <nil>
}

func ExampleSweep() {
	kernel := bpfmaptest.New()
	_, err := bpfmap.Open[uint32, uint32](bpfmap.Spec{Name: "flows", MaxEntries: 8}, bpfmap.WithSystem(kernel), bpfmap.WithPin("/sys/fs/bpf/app/flows"))
	kernel.PinOther(bpfmap.Pinned{Path: "/sys/fs/bpf/app/old_probe", Kind: "link", ID: 12})
	fmt.Println(err)
	for l, err := range bpfmap.Sweep("/sys/fs/bpf/app", []string{"/sys/fs/bpf/app/flows"}, bpfmap.WithSystem(kernel)) {
		fmt.Println(l.Path, l.Kind, l.Why, err)
	}
	// Output:
	// <nil>
	// /sys/fs/bpf/app/old_probe link orphan <nil>
}

// What the kernel refuses for lack of a capability says which.
func ExamplePermissionError() {
	_, err := bpfmap.Open[uint32, uint32](bpfmap.Spec{Name: "flows", MaxEntries: 8}, bpfmap.WithSystem(bpfmaptest.New(bpfmaptest.WithoutBPF())))
	var denied *bpfmap.PermissionError
	fmt.Println(errors.As(err, &denied), errors.Is(err, syscall.EPERM))
	// Output:
	// true true
}
