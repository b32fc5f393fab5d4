// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/ashlar-go/ashlar/bpfmap"
	"github.com/ashlar-go/ashlar/bpfmap/bpfmaptest"
	"github.com/ashlar-go/ashlar/test/bench/load"
	"github.com/ashlar-go/ashlar/test/bench/side"
)

// The kernel is real: these need CAP_BPF.
var bpfmapBenches = []side.Bench{
	{Name: "bpfmap.lookup", Prepare: func() (side.Work, error) { return single(true, false) }},
	{Name: "bpfmap.update", Prepare: func() (side.Work, error) { return single(true, true) }},
	{Name: "bpf.lookup", Prepare: func() (side.Work, error) { return single(false, false) }},
	{Name: "bpf.update", Prepare: func() (side.Work, error) { return single(false, true) }},
	{Name: "bpfmap.percpu", Prepare: func() (side.Work, error) { return percpu("bpfmap") }},
	{Name: "bpf.percpu", Prepare: func() (side.Work, error) { return percpu("bpf") }},
	{Name: "ebpf.percpu", Prepare: func() (side.Work, error) { return percpu("ebpf") }},
	{Name: "bpfmap.dump100k", Prepare: func() (side.Work, error) { return dump("bpfmap") }},
	{Name: "bpf.dump100k", Prepare: func() (side.Work, error) { return dump("bpf") }},
	{Name: "ebpf.iterate100k", Prepare: func() (side.Work, error) { return dump("ebpf") }},
	{Name: "bpfmap.sync100k", Prepare: syncDrift},
	{Name: "bpfmap.sync100k_insync", Prepare: inSync},
	{Name: "bpfmap.delta1000", Prepare: delta},
	{Name: "ebpf.put1000", Prepare: put1000},
	{Name: "bpfmap.nested32", Prepare: func() (side.Work, error) { return nested(true) }},
	{Name: "ebpf.nested32", Prepare: func() (side.Work, error) { return nested(false) }},
}

type mapValue struct{ A, B, C uint64 }

const (
	few   = 10_000
	many  = load.Flows
	room  = load.FlowRoom
	chunk = 4096
)

// flows is a hash table of n entries with keys of 8 and values of 24 bytes.
func flows(n int) (*ebpf.Map, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "flows", Type: ebpf.Hash, KeySize: 8, ValueSize: 24, MaxEntries: uint32(n + n/8)})
	if err != nil {
		return nil, err
	}
	r := newRaw(m, 24, chunk)
	for at := 0; at < n; at += chunk {
		c := min(chunk, n-at)
		for i := range c {
			r.set(i, uint64(at+i), uint64(at+i))
		}
		if err := r.writes(unix.BPF_MAP_UPDATE_BATCH, c); err != nil {
			return nil, fmt.Errorf("fill: %w", err)
		}
	}
	return m, nil
}

// set puts an entry into the buffers of a batch.
func (r *rawMap) set(i int, key, a uint64) {
	binary.NativeEndian.PutUint64(r.keys[8*i:], key)
	binary.NativeEndian.PutUint64(r.values[24*i:], a)
}

func wanted(yield func(uint64, mapValue) bool) {
	for k := range uint64(many) {
		if !yield(k, mapValue{A: k}) {
			return
		}
	}
}

// single looks up or updates one entry at a time.
func single(ours, update bool) (side.Work, error) {
	m, err := flows(few)
	if err != nil {
		return side.Work{}, err
	}
	typed, err := bpfmap.Wrap[uint64, mapValue](m)
	if err != nil {
		return side.Work{}, err
	}
	r, k := newRaw(m, 24, 1), uint64(0)
	next := func() uint64 { k = (k + 7919) % few; return k }
	// A hundred calls an operation: the harness's own call is not what is measured.
	hundred := func(do func(k uint64) error) func() error {
		return func() error {
			for range 100 {
				if err := do(next()); err != nil {
					return err
				}
			}
			return nil
		}
	}
	switch {
	case ours && update:
		return side.Work{Do: hundred(func(k uint64) error { return typed.Put(k, mapValue{A: k}) })}, nil
	case ours:
		return side.Work{Do: hundred(func(k uint64) error {
			if v, ok, err := typed.Get(k); err != nil || !ok || v.A != k {
				return fmt.Errorf("key %d: %v %t %w", k, v, ok, err)
			}
			return nil
		})}, nil
	case update:
		return side.Work{Do: hundred(func(k uint64) error {
			binary.NativeEndian.PutUint64(r.key, k)
			binary.NativeEndian.PutUint64(r.value, k)
			return r.call(unix.BPF_MAP_UPDATE_ELEM)
		})}, nil
	default:
		return side.Work{Do: hundred(func(k uint64) error {
			binary.NativeEndian.PutUint64(r.key, k)
			if err := r.call(unix.BPF_MAP_LOOKUP_ELEM); err != nil || binary.NativeEndian.Uint64(r.value) != k {
				return fmt.Errorf("key %d: % x %w", k, r.value, err)
			}
			return nil
		})}, nil
	}
}

func percpu(who string) (side.Work, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "hits", Type: ebpf.PerCPUHash, KeySize: 8, ValueSize: 8, MaxEntries: few})
	if err != nil {
		return side.Work{}, err
	}
	typed, err := bpfmap.WrapPerCPU[uint64, uint64](m)
	if err != nil {
		return side.Work{}, err
	}
	values := make([]uint64, typed.CPUs())
	for k := range uint64(few) {
		values[0] = k
		if err := typed.Put(k, values); err != nil {
			return side.Work{}, err
		}
	}
	r, key := newRaw(m, 8*typed.CPUs(), 1), new(uint64)
	k := uint64(0)
	do := func() (err error) {
		switch *key = k; who {
		case "bpfmap":
			values, _, err = typed.Get(k, values)
		case "bpf":
			binary.NativeEndian.PutUint64(r.key, k)
			err = r.call(unix.BPF_MAP_LOOKUP_ELEM)
			values[0] = binary.NativeEndian.Uint64(r.value)
		default:
			err = m.Lookup(key, &values)
		}
		if err != nil || values[0] != k {
			return fmt.Errorf("key %d: %v %w", k, values, err)
		}
		return nil
	}
	return side.Work{Do: func() error {
		for range 100 {
			k = (k + 7919) % few
			if err := do(); err != nil {
				return err
			}
		}
		return nil
	}}, nil
}

func dump(who string) (side.Work, error) {
	m, err := flows(many)
	if err != nil {
		return side.Work{}, err
	}
	typed, err := bpfmap.Wrap[uint64, mapValue](m)
	if err != nil {
		return side.Work{}, err
	}
	r := newRaw(m, 24, chunk)
	return side.Work{Do: func() (err error) {
		n := 0
		switch who {
		case "bpfmap":
			for _, err := range typed.All(context.Background()) {
				if err != nil {
					return err
				}
				n++
			}
		case "bpf":
			n, err = r.dump(chunk)
		default:
			var k uint64
			var v mapValue
			it := m.Iterate()
			for it.Next(&k, &v) {
				n++
			}
			err = it.Err()
		}
		if err != nil || n != many {
			return fmt.Errorf("%d entries: %w", n, err)
		}
		return nil
	}}, nil
}

// drifter changes 1 % of a map behind everybody's back. It is part of the operation on both sides.
type drifter struct {
	r                    *rawMap
	changed, gone, extra []uint64
}

func newDrifter(m *ebpf.Map) drifter {
	d := drifter{r: newRaw(m, 24, chunk)}
	d.changed, d.gone, d.extra = load.FlowDrift()
	return d
}

func (d drifter) drift() error {
	for _, do := range []struct {
		cmd   uintptr
		keys  []uint64
		value uint64
	}{
		{unix.BPF_MAP_UPDATE_BATCH, d.changed, 1 << 40},
		{unix.BPF_MAP_DELETE_BATCH, d.gone, 0},
		{unix.BPF_MAP_UPDATE_BATCH, d.extra, 1 << 40},
	} {
		for i, k := range do.keys {
			d.r.set(i, k, do.value)
		}
		if err := d.r.writes(do.cmd, len(do.keys)); err != nil {
			return err
		}
	}
	return nil
}

func syncDrift() (side.Work, error) {
	m, err := flows(many)
	if err != nil {
		return side.Work{}, err
	}
	typed, err := bpfmap.Wrap[uint64, mapValue](m)
	if err != nil {
		return side.Work{}, err
	}
	d := newDrifter(m)
	return side.Work{Do: func() error {
		if err := d.drift(); err != nil {
			return err
		}
		res, err := typed.Sync(context.Background(), wanted)
		if err != nil && !errors.Is(err, bpfmap.ErrNotConverging) { // we are the ones who fight
			return err
		}
		if res.Changed != len(d.changed) || res.Added != len(d.gone) || res.Deleted != len(d.extra) {
			return fmt.Errorf("pass: %+v", res)
		}
		return nil
	}}, nil
}

func inSync() (side.Work, error) {
	faults := bpfmaptest.Inject(bpfmap.Kernel())
	m, err := bpfmap.Open[uint64, mapValue](bpfmap.Spec{Name: "flows", MaxEntries: room}, bpfmap.WithSystem(faults))
	if err != nil {
		return side.Work{}, err
	}
	if _, err := m.Sync(context.Background(), wanted); err != nil {
		return side.Work{}, err
	}
	faults.Reset()
	return side.Work{
		Do: func() error {
			res, err := m.Sync(context.Background(), wanted)
			if err == nil && (res.Unchanged != many || !res.Audited) {
				err = fmt.Errorf("pass: %+v", res)
			}
			return err
		},
		Counts: func() map[string]int64 {
			n := int64(0)
			for _, call := range faults.Calls() {
				if call != "LookupBatch" {
					n++
				}
			}
			return map[string]int64{"writes": n}
		},
	}, nil
}

// delta writes 1 000 changes that are known, between audits.
func delta() (side.Work, error) {
	m, err := bpfmap.Open[uint64, mapValue](bpfmap.Spec{Name: "flows", MaxEntries: room}, bpfmap.WithAudit(time.Hour))
	if err != nil {
		return side.Work{}, err
	}
	if _, err := m.Sync(context.Background(), wanted); err != nil {
		return side.Work{}, err
	}
	pass := uint64(0)
	changes := func(yield func(uint64, mapValue) bool) {
		for i := range uint64(1000) {
			if !yield(i*97, mapValue{A: pass}) {
				return
			}
		}
	}
	return side.Work{Do: func() error {
		pass++
		r, err := m.PutAll(changes)
		if err == nil && r.Written != 1000 {
			err = fmt.Errorf("wrote %+v", r)
		}
		return err
	}}, nil
}

func put1000() (side.Work, error) {
	m, err := flows(many)
	if err != nil {
		return side.Work{}, err
	}
	key, value := new(uint64), new(mapValue)
	return side.Work{Do: func() error {
		value.B++
		for i := range uint64(1000) {
			*key, value.A = i*97, i
			if err := m.Put(key, value); err != nil {
				return err
			}
		}
		return nil
	}}, nil
}

// nested puts 32 maps into an outer map.
func nested(ours bool) (side.Work, error) {
	inner := bpfmap.Spec{Name: "inner", MaxEntries: 8}
	n, err := bpfmap.OpenNested[uint32, uint32, uint32](bpfmap.Spec{Name: "outer", MaxEntries: 64}, inner)
	if err != nil {
		return side.Work{}, err
	}
	maps := make([]*bpfmap.Map[uint32, uint32], 32)
	for i := range maps {
		if maps[i], err = n.NewInner(); err != nil {
			return side.Work{}, err
		}
	}
	if ours {
		return side.Work{Do: func() error {
			r, err := n.Put(func(yield func(uint32, *bpfmap.Map[uint32, uint32]) bool) {
				for i, m := range maps {
					if !yield(uint32(i), m) {
						return
					}
				}
			})
			if err == nil && r.Written != len(maps) {
				err = fmt.Errorf("wrote %+v", r)
			}
			return err
		}}, nil
	}
	spec := &ebpf.MapSpec{Name: "inner", Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 8}
	outer, err := ebpf.NewMap(&ebpf.MapSpec{Name: "outer", Type: ebpf.HashOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 64, InnerMap: spec})
	if err != nil {
		return side.Work{}, err
	}
	theirs := make([]*ebpf.Map, 32)
	for i := range theirs {
		if theirs[i], err = ebpf.NewMap(spec); err != nil {
			return side.Work{}, err
		}
	}
	return side.Work{Do: func() error {
		for i, m := range theirs {
			if err := outer.Put(uint32(i), m); err != nil {
				return err
			}
		}
		return nil
	}}, nil
}
