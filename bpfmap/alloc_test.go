// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package bpfmap_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/bpfmap"
)

// These tests run alone: parallel ones would be counted.

func TestAllocs(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		m := open[uint64, [3]uint64](t, w, bpfmap.Spec{Name: "allocs", MaxEntries: 64})
		counts, err := bpfmap.OpenPerCPU[uint32, uint32](bpfmap.Spec{Name: "counts", MaxEntries: 8}, bpfmap.WithSystem(w.sys))
		ok(t, err)
		defer counts.Close()
		values := make([]uint32, counts.CPUs())
		ok(t, counts.Put(1, values))
		routes := openLPM[uint32](t, w, bpfmap.Spec{Name: "routes", MaxEntries: 8}, 32)
		ok(t, routes.Put(netip.MustParsePrefix("10.0.0.0/8"), 1))
		addr := netip.MustParseAddr("10.1.2.3")
		ok(t, m.Put(1, [3]uint64{}))
		for name, do := range map[string]func() error{
			"put":        func() error { return m.Put(1, [3]uint64{1, 2, 3}) },
			"get":        func() error { _, _, err := m.Get(1); return err },
			"get absent": func() error { _, _, err := m.Get(2); return err },
			"delete":     func() error { _, err := m.Delete(2); return err },
			"sum":        func() error { _, err := bpfmap.Sum(counts, 1); return err },
			"get cpus":   func() error { _, _, err := counts.Get(1, values); return err },
			"match":      func() error { _, _, err := routes.Match(addr); return err },
		} {
			var failed error
			if n := testing.AllocsPerRun(100, func() {
				if err := do(); err != nil {
					failed = err
				}
			}); n != 0 || failed != nil {
				t.Errorf("%s: %v allocations, %v", name, n, failed)
			}
		}
	})
}

// TestSumAllAllocs: buffers for the walk, and nothing for an entry.
func TestSumAllAllocs(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		for _, n := range []int{10, 5000} {
			counts, err := bpfmap.OpenPerCPU[uint32, uint64](bpfmap.Spec{Name: "counts", MaxEntries: uint32(n)}, bpfmap.WithSystem(w.sys))
			ok(t, err)
			defer counts.Close()
			values := make([]uint64, counts.CPUs())
			values[0] = 1
			_, err = counts.PutAll(func(yield func(uint32, []uint64) bool) {
				for k := range uint32(n) {
					if !yield(k, values) {
						return
					}
				}
			})
			ok(t, err)
			var sum uint64
			got := testing.AllocsPerRun(5, func() {
				sum = 0
				for e, err := range bpfmap.SumAll(t.Context(), counts) {
					ok(t, err)
					sum += e.Value
				}
			})
			if got > 16 || sum != uint64(n) {
				t.Errorf("%d entries: %v allocations, sum %d", n, got, sum)
			}
		}
	})
}

// TestSyncAllocs: a pass costs a few dozen allocations whatever the size of the map.
func TestSyncAllocs(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		for _, n := range []int{100, 20_000} {
			m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "allocs", MaxEntries: uint32(2 * n)})
			keys := slices.Sorted(func(yield func(uint32) bool) {
				for k := range sorted(numbers(0, n)) {
					yield(k)
				}
			})
			gen := uint32(0)
			desired := func(yield func(uint32, uint32) bool) {
				for _, k := range keys {
					v := k
					if k%100 == 0 {
						v = gen
					}
					if !yield(k, v) {
						return
					}
				}
			}
			pass := func() {
				gen++
				_, err := m.Sync(t.Context(), desired)
				ok(t, err)
			}
			pass()
			pass()
			if got := testing.AllocsPerRun(5, pass); got > 100 {
				t.Errorf("a pass over %d entries with 1%% drift: %v allocations", n, got)
			}
		}
	})
}
