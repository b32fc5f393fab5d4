// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap_test

import (
	"context"
	"iter"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ashlar-go/ashlar/bpfmap"
	"github.com/ashlar-go/ashlar/bpfmap/bpfmaptest"
)

// world is a kernel to test on: the one in memory, and the real one where this process may use it.
type world struct {
	sys  bpfmap.System
	dir  string // for pins
	fake *bpfmaptest.Kernel
}

// worlds runs a test in both.
func worlds(t *testing.T, test func(t *testing.T, w world)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		k := bpfmaptest.New()
		test(t, world{sys: k, dir: "/sys/fs/bpf/test", fake: k})
	})
	t.Run("kernel", func(t *testing.T) {
		m, err := bpfmap.Open[uint32, uint32](bpfmap.Spec{Name: "probe", MaxEntries: 1})
		if err != nil {
			t.Skipf("needs a Linux kernel and CAP_BPF: %v", err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		dir, err := mountBPF(t)
		if err != nil {
			t.Skipf("needs a bpf file system: %v", err)
		}
		test(t, world{sys: bpfmap.Kernel(), dir: dir})
	})
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// open opens a map in a world and closes it with the test.
func open[K, V any](t testing.TB, w world, s bpfmap.Spec, opts ...bpfmap.Option) *bpfmap.Map[K, V] {
	t.Helper()
	m, err := bpfmap.Open[K, V](s, append([]bpfmap.Option{bpfmap.WithSystem(w.sys)}, opts...)...)
	ok(t, err)
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// all reads a whole map and fails on keys that come twice.
func all[K comparable, V any](t testing.TB, m interface {
	All(context.Context) iter.Seq2[bpfmap.Entry[K, V], error]
}) map[K]V {
	t.Helper()
	out := map[K]V{}
	for e, err := range m.All(t.Context()) {
		ok(t, err)
		if _, twice := out[e.Key]; twice {
			t.Errorf("key %v came twice", e.Key)
		}
		out[e.Key] = e.Value
	}
	return out
}

func same(t testing.TB, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// numbers is n entries from first on, each value ten times its key.
func numbers(first, n int) map[uint32]uint32 {
	out := map[uint32]uint32{}
	for i := first; i < first+n; i++ {
		out[uint32(i)] = uint32(10 * i)
	}
	return out
}

// sorted is a map as a sequence in order.
func sorted[V any](m map[uint32]V) iter.Seq2[uint32, V] {
	return func(yield func(uint32, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}

func entries[K, V any](es ...bpfmap.Entry[K, V]) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, e := range es {
			if !yield(e.Key, e.Value) {
				return
			}
		}
	}
}

func none[K, V any](func(K, V) bool) {}
