// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"os"
	"slices"

	"github.com/ashlar-go/ashlar/bpfmap"
	"github.com/ashlar-go/ashlar/bpfmap/bpfmaptest"
)

// ports is a small map in memory for the examples of the verbs.
func ports() *bpfmap.Map[uint16, uint32] {
	m, err := bpfmap.Open[uint16, uint32](bpfmap.Spec{Name: "ports", MaxEntries: 8}, bpfmap.WithSystem(bpfmaptest.New()))
	if err != nil {
		panic(err)
	}
	return m
}

// hits are counters of two CPUs.
func hits() *bpfmap.PerCPU[uint16, uint64] {
	p, err := bpfmap.OpenPerCPU[uint16, uint64](bpfmap.Spec{Name: "hits", MaxEntries: 8}, bpfmap.WithSystem(bpfmaptest.New()))
	if err != nil {
		panic(err)
	}
	return p
}

func ExampleKernel() {
	fmt.Println(bpfmap.Kernel() != nil) // what Open uses without WithSystem
	// Output:
	// true
}

func ExampleMap_Plan() {
	m := ports()
	_ = m.Put(80, 1)
	plan, err := m.Plan(context.Background(), maps.All(map[uint16]uint32{80: 2}))
	fmt.Print(plan)
	fmt.Println(plan.Empty(), err)
	// Output:
	// ports: 0 to add, 1 to change, 0 to delete, 0 as wanted (1 of 8 used)
	// order: add, change, delete
	// ~ 80: 1 → 2 (differs)
	// false <nil>
}

func ExampleMap_Apply() {
	ctx, m := context.Background(), ports()
	plan, _ := m.Plan(ctx, maps.All(map[uint16]uint32{80: 2, 443: 2}))
	rep, err := m.Apply(ctx, plan)
	fmt.Println(rep.Written, rep.Deleted, err)
	// Output:
	// 2 0 <nil>
}

func ExampleMap_Sync() {
	ctx, m := context.Background(), ports()
	for range 2 {
		res, err := m.Sync(ctx, maps.All(map[uint16]uint32{80: 2}))
		fmt.Println(res.Written, res.Unchanged, err)
	}
	// Output:
	// 1 0 <nil>
	// 0 1 <nil>
}

// Every entry is read and gone in one step each: none is read twice, none is lost.
func ExampleMap_Drain() {
	m := ports()
	_ = m.Put(80, 7)
	all, err := m.Drain(context.Background())
	stat, _ := m.Stat()
	fmt.Println(all, err, stat.Used)
	// Output:
	// [{80 7}] <nil> 0
}

// Both halves of a migration, for a program that is exchanged in between.
func migration(step func(ctx context.Context, old *bpfmap.Map[uint16, uint32], g *bpfmap.Migration[uint16, uint64])) {
	kernel, pin := bpfmaptest.New(), bpfmap.WithPin("/sys/fs/bpf/app/ports")
	spec := bpfmap.Spec{Name: "ports", MaxEntries: 8}
	old, err := bpfmap.Open[uint16, uint32](spec, bpfmap.WithSystem(kernel), pin)
	if err != nil {
		panic(err)
	}
	_ = old.Put(80, 40)
	g, err := bpfmap.Migrate[uint16, uint64](spec, bpfmap.WithSystem(kernel), pin)
	if err != nil {
		panic(err)
	}
	step(context.Background(), old, g)
}

func ExampleMigration_Copy() {
	migration(func(ctx context.Context, _ *bpfmap.Map[uint16, uint32], g *bpfmap.Migration[uint16, uint64]) {
		res, err := g.Copy(ctx)
		v, _, _ := g.Map().Get(80)
		fmt.Println(res.Written, err, v, g.Abort())
	})
	// Output:
	// 1 <nil> 40 <nil>
}

func ExampleMigration_Merge() {
	migration(func(ctx context.Context, old *bpfmap.Map[uint16, uint32], g *bpfmap.Migration[uint16, uint64]) {
		_, _ = g.Copy(ctx)
		_ = old.Put(443, 1) // the old program is still in force
		rep, err := g.Merge(ctx, func(_ uint16, was, now uint64, there bool) (uint64, bool) { return was, !there || was > now })
		fmt.Println(rep.Written, err, g.Commit())
	})
	// Output:
	// 1 <nil> <nil>
}

func policies() *bpfmap.Nested[uint32, uint16, uint32] {
	n, err := bpfmap.OpenNested[uint32, uint16, uint32](bpfmap.Spec{Name: "policies", MaxEntries: 4},
		bpfmap.Spec{Name: "policy", MaxEntries: 16}, bpfmap.WithSystem(bpfmaptest.New()))
	if err != nil {
		panic(err)
	}
	return n
}

func ExampleOpenNested() {
	n := policies()
	defer n.Close()
	_, ok, err := n.Inner(7)
	fmt.Println(ok, err)
	// Output:
	// false <nil>
}

func ExampleNested_Sync() {
	ctx, n := context.Background(), policies()
	defer n.Close()
	for range 2 {
		rep, err := n.Sync(ctx, maps.All(map[uint32]iter.Seq2[uint16, uint32]{7: maps.All(map[uint16]uint32{80: 1})}))
		fmt.Println(rep.Written, err)
	}
	// Output:
	// 1 <nil>
	// 0 <nil>
}

func ExampleNested_IDs() {
	ctx, n := context.Background(), policies()
	defer n.Close()
	_, _ = n.Replace(ctx, 7, maps.All(map[uint16]uint32{80: 1}))
	for slot, err := range n.IDs(ctx) {
		fmt.Println(slot.Key, slot.Value > 0, err)
	}
	// Output:
	// 7 true <nil>
}

func ExampleWrapLPM() {
	_, err := bpfmap.WrapLPM[uint32](nil) // the map of a collection loader, if there is one
	fmt.Println(err)
	// Output:
	// wrap map: the map is nil
}

func ExampleWrapPerCPU() {
	_, err := bpfmap.WrapPerCPU[uint32, uint64](nil)
	fmt.Println(err)
	// Output:
	// wrap map: the map is nil
}

func ExampleWrapRing() {
	_, err := bpfmap.WrapRing[uint64](nil)
	fmt.Println(err)
	// Output:
	// wrap map: the map is nil
}

func ExamplePerCPU_All() {
	p := hits()
	_ = p.Put(80, []uint64{1, 2})
	for e, err := range p.All(context.Background()) {
		fmt.Println(e.Key, e.Value, err)
	}
	// Output:
	// 80 [1 2] <nil>
}

func ExamplePerCPU_Drain() {
	p := hits()
	_ = p.Put(80, []uint64{1, 2})
	fmt.Println(p.Drain(context.Background()))
	// Output:
	// [{80 [1 2]}] <nil>
}

// Keys are reconciled, counts are the program's.
func ExamplePerCPU_Plan() {
	p := hits()
	_ = p.Put(80, []uint64{1, 2})
	plan, err := p.Plan(context.Background(), slices.Values([]uint16{80, 443}))
	fmt.Print(plan)
	fmt.Println(err)
	// Output:
	// hits: 1 to add, 0 to change, 0 to delete, 1 as wanted (1 of 8 used)
	// order: add, change, delete
	// + 443: [0 0] (missing)
	// <nil>
}

func ExamplePerCPU_Apply() {
	ctx, p := context.Background(), hits()
	plan, _ := p.Plan(ctx, slices.Values([]uint16{80}))
	rep, err := p.Apply(ctx, plan)
	fmt.Println(rep.Written, err)
	// Output:
	// 1 <nil>
}

func ExamplePerCPU_Sync() {
	ctx, p := context.Background(), hits()
	_ = p.Put(80, []uint64{1, 2})
	res, err := p.Sync(ctx, slices.Values([]uint16{80}))
	fmt.Println(res.Written, res.Unchanged, err)
	// Output:
	// 0 1 <nil>
}

func ExampleRing_All() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	kernel := bpfmaptest.New()
	events, err := bpfmap.OpenRing[uint32](bpfmap.Spec{Name: "events", MaxEntries: uint32(os.Getpagesize())}, bpfmap.WithSystem(kernel))
	if err != nil {
		panic(err)
	}
	defer events.Close()
	kernel.Emit(events.Backend(), []byte{5, 0, 0, 0})
	for e, err := range events.All(ctx) {
		fmt.Println(e, err)
		break
	}
	// Output:
	// 5 <nil>
}

func ExampleSumAll() {
	p := hits()
	_ = p.Put(80, []uint64{1, 2})
	for e, err := range bpfmap.SumAll(context.Background(), p) {
		fmt.Println(e.Key, e.Value, err)
	}
	// Output:
	// 80 3 <nil>
}
