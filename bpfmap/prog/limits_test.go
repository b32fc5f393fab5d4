// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"errors"
	"math"
	"testing"

	"github.com/cilium/ebpf"
)

// What a map takes is not what its keys and values add up to: small ones in large numbers are the better bomb.
func TestMapsAreCountedAsTheKernelDoes(t *testing.T) {
	t.Parallel()
	const cpus = 4
	for name, tt := range map[string]struct {
		reason      string
		spec        ebpf.MapSpec
		least, most uint64
	}{
		"array":        {"no keys", ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 1, MaxEntries: 1000}, 8000, 8000},
		"hash":         {"an element of 64 bytes and a bucket of 16 to 32", ebpf.MapSpec{Type: ebpf.Hash, KeySize: 1, ValueSize: 1, MaxEntries: 1000}, 80_000, 96_000},
		"lru":          {"the same", ebpf.MapSpec{Type: ebpf.LRUHash, KeySize: 1, ValueSize: 1, MaxEntries: 1000}, 80_000, 96_000},
		"per CPU":      {"a value for each", ebpf.MapSpec{Type: ebpf.PerCPUHash, KeySize: 4, ValueSize: 12, MaxEntries: 1000}, 1000 * (64 + 8 + cpus*16), 1000 * (80 + 8 + cpus*16)},
		"trie":         {"a node", ebpf.MapSpec{Type: ebpf.LPMTrie, KeySize: 8, ValueSize: 1, MaxEntries: 1000}, 48_000, 96_000},
		"ring":         {"bytes", ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: 4096}, 4096, 4096},
		"inner":        {"as many as it brings, and the template", ebpf.MapSpec{Type: ebpf.ArrayOfMaps, KeySize: 4, MaxEntries: 2, Contents: make([]ebpf.MapKV, 2), InnerMap: &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1000}}, 24_000, 25_000},
		"beyond count": {"no overflow into something small", ebpf.MapSpec{Type: ebpf.PerCPUHash, KeySize: math.MaxUint32, ValueSize: math.MaxUint32, MaxEntries: math.MaxUint32}, math.MaxUint64, math.MaxUint64},
	} {
		if n := footprint(&tt.spec, cpus, 0); n < tt.least || n > tt.most {
			t.Errorf("%s: %d bytes, want %d to %d: %s", name, n, tt.least, tt.most, tt.reason)
		}
	}
	bomb := &ebpf.CollectionSpec{Maps: map[string]*ebpf.MapSpec{"bomb": {Type: ebpf.Hash, KeySize: 1, ValueSize: 1, MaxEntries: 16 << 20}}}
	if err := defaultLimits.hold(bomb); !errors.Is(err, ErrLimit) {
		t.Errorf("more than a gigabyte in elements of two bytes: %v", err)
	}
}
