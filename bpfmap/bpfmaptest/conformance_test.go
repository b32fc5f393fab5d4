// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmaptest_test

import (
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/bpfmap"
	"github.com/ashlar-go/ashlar/bpfmap/bpfmaptest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	bpfmaptest.Conformance(t, bpfmaptest.New(), "/sys/fs/bpf/test")
}

// kernelOrSkip is the real kernel with its number of CPUs, where this process may use it.
func kernelOrSkip(t testing.TB) (bpfmap.System, int) {
	t.Helper()
	sys := bpfmap.Kernel()
	cpus, err := sys.CPUs()
	if err != nil {
		t.Skipf("no kernel to compare with: %v", err)
	}
	m, err := bpfmap.Open[uint32, uint32](bpfmap.Spec{Name: "probe", MaxEntries: 1})
	if err != nil {
		t.Skipf("no kernel to compare with: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	return sys, cpus
}

// FuzzKernel compares the kernel in memory with the real one.
func FuzzKernel(f *testing.F) {
	sys, cpus := kernelOrSkip(f)
	fake := bpfmaptest.New(bpfmaptest.WithCPUs(cpus))
	for kind := range 5 {
		r := rand.New(rand.NewPCG(1, uint64(kind)))
		for range 8 {
			script := []byte{byte(kind)}
			for range 200 {
				script = append(script, byte(r.Uint32()))
			}
			f.Add(script)
		}
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 4096 {
			t.Skip("longer than any sequence that finds something new")
		}
		diff, err := bpfmaptest.Differ(fake, sys, script)
		if err != nil {
			t.Fatal(err)
		}
		if diff != "" {
			t.Error(diff)
		}
	})
}
