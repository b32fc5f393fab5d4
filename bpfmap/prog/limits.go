// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"math"
	"math/bits"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Limits are what an object may ask for, held before anything is loaded. A zero field means its default.
type Limits struct {
	Object       uint64             // bytes of the file; default 16 MiB
	MapMemory    uint64             // bytes of kernel memory that all maps may grow to, filled; default 64 MiB
	Maps         int                // number of maps; default 64
	Instructions int                // of all programs that are loaded; default 100 000
	Types        []ebpf.ProgramType // nil: every type that the hook runs
	Allow        []asm.BuiltinFunc  // nil: every helper but those of Deny
	// Deny lists helpers that are refused. The default is those that write to user memory, override what the kernel
	// returns, kill processes or make system calls; an empty list that is not nil denies nothing.
	Deny   []asm.BuiltinFunc
	Kernel bool // functions of the kernel that are no helpers (kfuncs); default false, they are refused
}

var defaultLimits = Limits{
	Object: 16 << 20, MapMemory: 64 << 20, Maps: 64, Instructions: 100_000,
	Deny: []asm.BuiltinFunc{asm.FnProbeWriteUser, asm.FnOverrideReturn, asm.FnSendSignal, asm.FnSendSignalThread, asm.FnSysBpf, asm.FnSysClose},
}

func (l Limits) withDefaults() Limits {
	d := defaultLimits
	if l.Object == 0 {
		l.Object = d.Object
	}
	if l.MapMemory == 0 {
		l.MapMemory = d.MapMemory
	}
	if l.Maps == 0 {
		l.Maps = d.Maps
	}
	if l.Instructions == 0 {
		l.Instructions = d.Instructions
	}
	if l.Deny == nil {
		l.Deny = d.Deny
	}
	return l
}

// hold checks a parsed object.
func (l Limits) hold(spec *ebpf.CollectionSpec) error {
	if n := len(spec.Maps); n > l.Maps {
		return &LimitError{What: "maps", Got: uint64(n), Max: uint64(l.Maps)}
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		cpus = 1024 // too many refuses, too few would not
	}
	var memory uint64
	for _, name := range keysOf(spec.Maps) {
		if memory = add(memory, footprint(spec.Maps[name], uint64(cpus), 0)); memory > l.MapMemory {
			return &LimitError{What: "map bytes, with map", Subject: name, Got: memory, Max: l.MapMemory}
		}
	}
	instructions := 0
	for _, name := range keysOf(spec.Programs) {
		p := spec.Programs[name]
		if l.Types != nil && !slices.Contains(l.Types, p.Type) {
			return &LimitError{What: "program type", Subject: p.Type.String()}
		}
		for _, in := range p.Instructions {
			instructions += int(in.Width())
		}
		if instructions > l.Instructions {
			return &LimitError{What: "instructions", Got: uint64(instructions), Max: uint64(l.Instructions)}
		}
		calls(p.Instructions, func(helper asm.BuiltinFunc, kernel string) {
			switch {
			case err != nil && isLimit(err):
			case kernel != "" && !l.Kernel:
				err = &LimitError{What: "kernel function", Subject: kernel}
			case kernel != "":
			case slices.Contains(l.Deny, helper) || l.Allow != nil && !slices.Contains(l.Allow, helper):
				err = &LimitError{What: "helper", Subject: helper.String()}
			}
		})
		if isLimit(err) {
			return err
		}
	}
	return nil
}

func isLimit(err error) bool {
	_, ok := err.(*LimitError)
	return ok
}

// footprint is what a map takes when it is full, as the kernel (6.18) lays it out: to the next eight bytes, and with what
// the elements of a table are linked by, which for small values is most of it. Rather too much than too little.
func footprint(m *ebpf.MapSpec, cpus uint64, depth int) uint64 {
	if m == nil || depth > 4 {
		return 0
	}
	words := func(n uint32) uint64 { return (uint64(n) + 7) &^ 7 }
	entries, key, value := uint64(m.MaxEntries), words(m.KeySize), words(m.ValueSize)
	switch m.Type {
	case ebpf.RingBuf, ebpf.UserRingbuf:
		return entries
	case ebpf.Arena:
		return mul(entries, 4096)
	case ebpf.Array, ebpf.Queue, ebpf.Stack:
		return mul(entries, value)
	case ebpf.PerCPUArray:
		return mul(entries, add(8, mul(value, cpus)))
	case ebpf.PerCPUHash, ebpf.LRUCPUHash, ebpf.PerCPUCGroupStorage:
		value = mul(value, cpus)
	case ebpf.ArrayOfMaps, ebpf.HashOfMaps:
		// The object brings one inner map for each entry it fills, and the template.
		inner := footprint(m.InnerMap, cpus, depth+1)
		return add(mul(entries, 8+node+key), mul(inner, uint64(len(m.Contents))+1))
	}
	return mul(entries, add(node+key, value))
}

// node is what an element of a hash table has beside key and value, with its share of the buckets: there are up to twice
// as many as elements, of sixteen bytes.
const node = 48 + 32

func add(a, b uint64) uint64 {
	if sum, carry := bits.Add64(a, b, 0); carry == 0 {
		return sum
	}
	return math.MaxUint64
}

func mul(a, b uint64) uint64 {
	if hi, lo := bits.Mul64(a, b); hi == 0 {
		return lo
	}
	return math.MaxUint64
}
