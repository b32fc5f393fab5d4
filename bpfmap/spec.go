// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"fmt"
	"os"
	"reflect"
	"slices"

	"github.com/cilium/ebpf"
)

// Spec is what a map must be. Sizes and layout come from the Go types.
type Spec struct {
	Name       string       // at most 15 letters, digits and underscores
	Type       ebpf.MapType // the zero value is the plain one of the face: Hash, PerCPUHash, LPMTrie, HashOfMaps, RingBuf
	MaxEntries uint32       // for a ring buffer: bytes, rounded up to a power of 2 and at least a page
	Flags      uint32       // BPF_F_…
}

// flagNoCommonLRU gives each CPU a list of its own, which rounds MaxEntries up (BPF_F_NO_COMMON_LRU).
const flagNoCommonLRU = 1 << 1

// flagsOfHandle are about the descriptor that making a map gives back, and not kept with the map (BPF_F_RDONLY and
// BPF_F_WRONLY).
const flagsOfHandle = flagReadOnly | 1<<4

const flagReadOnly = 1 << 3

// flagNoPrealloc is required for tries (BPF_F_NO_PREALLOC).
const flagNoPrealloc = 1

// flagReadOnlyProg is what the kernel adds to device maps by itself (BPF_F_RDONLY_PROG).
const flagReadOnlyProg = 1 << 7

// face is what one of the typed faces asks of a map.
type face struct {
	name  string
	types []ebpf.MapType // the first is the default
	flags uint32         // added to what is asked for
}

var (
	plainFace = face{name: "Map", types: []ebpf.MapType{ebpf.Hash, ebpf.LRUHash, ebpf.Array, ebpf.DevMap, ebpf.DevMapHash, ebpf.CPUMap}}
	cpuFace   = face{name: "PerCPU", types: []ebpf.MapType{ebpf.PerCPUHash, ebpf.LRUCPUHash, ebpf.PerCPUArray}}
	lpmFace   = face{name: "LPM", types: []ebpf.MapType{ebpf.LPMTrie}, flags: flagNoPrealloc}
	outerFace = face{name: "Nested", types: []ebpf.MapType{ebpf.HashOfMaps, ebpf.ArrayOfMaps}}
	ringFace  = face{name: "Ring", types: []ebpf.MapType{ebpf.RingBuf}}
)

func (f face) check(t ebpf.MapType) error {
	if slices.Contains(f.types, t) {
		return nil
	}
	for _, other := range []face{plainFace, cpuFace, lpmFace, outerFace, ringFace} {
		if slices.Contains(other.types, t) {
			return fmt.Errorf("%w: a map of type %s is a %s, not a %s", ErrUnsupported, t, other.name, f.name)
		}
	}
	return fmt.Errorf("%w: a map of type %s has no keys and values to reconcile", ErrUnsupported, t)
}

// full is the specification for the kernel.
func (s Spec) full(f face, key, value wire) (*ebpf.MapSpec, error) {
	if s.Type == ebpf.UnspecifiedMap {
		s.Type = f.types[0]
	}
	if err := f.check(s.Type); err != nil {
		return nil, err
	}
	if len(s.Name) > 15 || s.Name == "" {
		return nil, fmt.Errorf("the name %q must have 1 to 15 bytes", s.Name)
	}
	for _, r := range s.Name {
		if r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return nil, fmt.Errorf("the name %q must have letters, digits and underscores only", s.Name)
		}
	}
	if s.MaxEntries == 0 {
		return nil, fmt.Errorf("MaxEntries of %s must be above zero", s.Name)
	}
	if indexed(s.Type) && key.size != 4 {
		return nil, fmt.Errorf("%w: keys of a map of type %s are indexes of 4 bytes, the Go type has %d", ErrLayout, s.Type, key.size)
	}
	spec := &ebpf.MapSpec{
		Name: s.Name, Type: s.Type, KeySize: uint32(key.size), ValueSize: uint32(value.size),
		MaxEntries: s.MaxEntries, Flags: s.Flags | f.flags,
	}
	if s.Type == ebpf.RingBuf {
		spec.MaxEntries = ringSize(s.MaxEntries)
	}
	if describable(s.Type) && key.typ != nil && value.typ != nil {
		spec.Key, spec.Value = btfOf(key.typ), btfOf(value.typ)
	}
	return spec, nil
}

// wire is a size with the type it comes from, nil when there is none to describe.
type wire struct {
	size int
	typ  reflect.Type
}

// describable says which types of maps take BTF for keys and values.
func describable(t ebpf.MapType) bool {
	switch t {
	case ebpf.Hash, ebpf.LRUHash, ebpf.PerCPUHash, ebpf.LRUCPUHash, ebpf.Array, ebpf.PerCPUArray, ebpf.LPMTrie:
		return true
	}
	return false
}

// differs lists how a map is not what was asked for. A size that is rounded is no difference: asking for 101 entries of
// an LRU with a list per CPU gives 102 with two CPUs, and so does asking again.
func differs(spec *ebpf.MapSpec, info Info, cpus int) (out []string) {
	add := func(what string, got, want any) { out = append(out, fmt.Sprintf("%s is %v, not %v", what, got, want)) }
	if info.Type != spec.Type {
		add("type", info.Type, spec.Type)
	}
	if info.KeySize != spec.KeySize {
		add("key size", info.KeySize, spec.KeySize)
	}
	if info.ValueSize != spec.ValueSize {
		add("value size", info.ValueSize, spec.ValueSize)
	}
	if info.MaxEntries != spec.MaxEntries && info.MaxEntries != rounded(spec, cpus) {
		add("max entries", info.MaxEntries, spec.MaxEntries)
	}
	got, want := info.Flags, spec.Flags&^flagsOfHandle
	if spec.Type == ebpf.DevMap || spec.Type == ebpf.DevMapHash {
		got, want = got|flagReadOnlyProg, want|flagReadOnlyProg
	}
	if got != want {
		add("flags", fmt.Sprintf("%#x", got), fmt.Sprintf("%#x", want))
	}
	return out
}

// rounded is what becomes of MaxEntries when a map is made.
func rounded(spec *ebpf.MapSpec, cpus int) uint32 {
	n := spec.MaxEntries
	switch {
	case lru(spec.Type) && spec.Flags&flagNoCommonLRU != 0 && cpus > 0:
		c := uint32(cpus)
		return (n + c - 1) / c * c
	case spec.Type == ebpf.CPUMap && cpus > 0: // cilium/ebpf asks for no more than there are
		return min(n, uint32(cpus))
	}
	return n
}

// ringSize is what the kernel takes: pages are of different sizes on different machines.
func ringSize(n uint32) uint32 {
	size := uint32(os.Getpagesize())
	for size < n && size < 1<<31 {
		size *= 2
	}
	return size
}
