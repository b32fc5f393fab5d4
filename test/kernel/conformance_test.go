// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/bpfmap"
	"github.com/ashlar-go/ashlar/bpfmap/bpfmaptest"
)

func TestConformance(t *testing.T) {
	bpfmaptest.Conformance(t, bpfmap.Kernel(), pins(t))
}

// TestDifferential runs random sequences of calls on the kernel and on the one in memory.
func TestDifferential(t *testing.T) {
	pins(t)
	cpus, err := bpfmap.Kernel().CPUs()
	ok(t, err)
	fake := bpfmaptest.New(bpfmaptest.WithCPUs(cpus))
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	calls := 0
	for range 4000 {
		script := make([]byte, 2+r.IntN(400))
		for i := range script {
			script[i] = byte(r.Uint32())
		}
		calls += len(script) / 4
		diff, err := bpfmaptest.Differ(fake, bpfmap.Kernel(), script)
		ok(t, err)
		if diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
	}
	t.Logf("4000 sequences, about %d calls each side", calls)
}
