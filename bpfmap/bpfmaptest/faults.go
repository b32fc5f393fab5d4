// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmaptest

import (
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/ashlar-go/ashlar/bpfmap"
)

// Faults is a system that counts the calls that reach another one and fails some of them. It works on the real kernel
// as well.
//
// Counted are calls that read or change elements, maps or pins; not Info, CPUs, Ring and Close, and not batches of
// nothing, which only ask what there is.
type Faults struct {
	sys    bpfmap.System
	mu     sync.Mutex
	calls  []string
	faults map[int]fault
	before func(n int, call string)
}

type fault struct {
	err     error
	element int // of a batch: so many are handled first; -1 for none
}

var _ bpfmap.System = (*Faults)(nil)

// Inject wraps a system. Without more it only counts.
func Inject(sys bpfmap.System) *Faults { return &Faults{sys: sys, faults: map[int]fault{}} }

// Fail makes the n-th call from now, counted from 1, fail with err and without effect.
func (f *Faults) Fail(n int, err error) { f.plan(n, fault{err, -1}) }

// FailElement makes the n-th call from now, a batch that writes, handle so many elements and then fail.
func (f *Faults) FailElement(n, handled int, err error) { f.plan(n, fault{err, handled}) }

func (f *Faults) plan(n int, how fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults[len(f.calls)+n] = how
}

// Before sets a function that is told of every call before it is made, with its number from 1: to kill a process at
// each step of an operation, or to change the map behind its back.
func (f *Faults) Before(hook func(n int, call string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = hook
}

// Calls lists the names of all counted calls so far.
func (f *Faults) Calls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.calls...)
}

// Reset forgets the calls so far and the planned faults.
func (f *Faults) Reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls, f.faults = nil, map[int]fault{}
}

// call counts one and says whether it fails.
func (f *Faults) call(name string) (fault, bool) {
	f.mu.Lock()
	f.calls = append(f.calls, name)
	n, hook := len(f.calls), f.before
	how, fails := f.faults[n]
	f.mu.Unlock()
	if hook != nil {
		hook(n, name)
	}
	return how, fails
}

func (f *Faults) opened(b bpfmap.Backend, err error) (bpfmap.Backend, error) {
	if err != nil {
		return nil, err
	}
	return &faulty{Backend: b, f: f}, nil
}

// bare is the map below.
func bare(m bpfmap.Backend) bpfmap.Backend {
	if w, ok := m.(*faulty); ok {
		return w.Backend
	}
	return m
}

// Create counts and passes on, like the other methods.
func (f *Faults) Create(spec *ebpf.MapSpec) (bpfmap.Backend, error) {
	if how, fails := f.call("Create"); fails {
		return nil, how.err
	}
	return f.opened(f.sys.Create(spec))
}

// OpenPin counts and passes on.
func (f *Faults) OpenPin(path string, readOnly bool) (bpfmap.Backend, error) {
	if how, fails := f.call("OpenPin"); fails {
		return nil, how.err
	}
	return f.opened(f.sys.OpenPin(path, readOnly))
}

// OpenID counts and passes on.
func (f *Faults) OpenID(id uint32) (bpfmap.Backend, error) {
	if how, fails := f.call("OpenID"); fails {
		return nil, how.err
	}
	return f.opened(f.sys.OpenID(id))
}

// Pin counts and passes on.
func (f *Faults) Pin(m bpfmap.Backend, path string) error {
	if how, fails := f.call("Pin"); fails {
		return how.err
	}
	return f.sys.Pin(bare(m), path)
}

// Rename counts and passes on.
func (f *Faults) Rename(from, to string) error {
	if how, fails := f.call("Rename"); fails {
		return how.err
	}
	return f.sys.Rename(from, to)
}

// Remove counts and passes on.
func (f *Faults) Remove(path string) error {
	if how, fails := f.call("Remove"); fails {
		return how.err
	}
	return f.sys.Remove(path)
}

// Pins counts and passes on.
func (f *Faults) Pins(dir string) ([]bpfmap.Pinned, error) {
	if how, fails := f.call("Pins"); fails {
		return nil, how.err
	}
	return f.sys.Pins(dir)
}

// Types counts and passes on.
func (f *Faults) Types(m bpfmap.Backend) (key, value btf.Type, err error) {
	if how, fails := f.call("Types"); fails {
		return nil, nil, how.err
	}
	return f.sys.Types(bare(m))
}

// Users counts and passes on.
func (f *Faults) Users(id uint32) (programs []uint32, complete bool, err error) {
	if how, fails := f.call("Users"); fails {
		return nil, false, how.err
	}
	return f.sys.Users(id)
}

// CPUs passes on.
func (f *Faults) CPUs() (int, error) { return f.sys.CPUs() }

// Ring passes on.
func (f *Faults) Ring(m bpfmap.Backend) (bpfmap.RingSource, error) { return f.sys.Ring(bare(m)) }

// faulty is a map whose calls are counted.
type faulty struct {
	bpfmap.Backend
	f *Faults
}

func (b *faulty) Lookup(key, value []byte) error {
	if how, fails := b.f.call("Lookup"); fails {
		return how.err
	}
	return b.Backend.Lookup(key, value)
}

func (b *faulty) LookupDelete(key, value []byte) error {
	if how, fails := b.f.call("LookupDelete"); fails {
		return how.err
	}
	return b.Backend.LookupDelete(key, value)
}

func (b *faulty) Update(key, value []byte, flags ebpf.MapUpdateFlags) error {
	if how, fails := b.f.call("Update"); fails {
		return how.err
	}
	return b.Backend.Update(key, value, flags)
}

func (b *faulty) Delete(key []byte) error {
	if how, fails := b.f.call("Delete"); fails {
		return how.err
	}
	return b.Backend.Delete(key)
}

func (b *faulty) NextKey(key, next []byte) error {
	if how, fails := b.f.call("NextKey"); fails {
		return how.err
	}
	return b.Backend.NextKey(key, next)
}

func (b *faulty) LookupBatch(in, out, keys, values []byte, n int) (int, error) {
	if n > 0 {
		if how, fails := b.f.call("LookupBatch"); fails {
			return 0, how.err
		}
	}
	return b.Backend.LookupBatch(in, out, keys, values, n)
}

func (b *faulty) LookupDeleteBatch(in, out, keys, values []byte, n int) (int, error) {
	if n > 0 {
		if how, fails := b.f.call("LookupDeleteBatch"); fails {
			return 0, how.err
		}
	}
	return b.Backend.LookupDeleteBatch(in, out, keys, values, n)
}

func (b *faulty) UpdateBatch(keys, values []byte, n int) (int, error) {
	if n > 0 {
		if how, fails := b.f.call("UpdateBatch"); fails {
			return partly(how, n, func(n int) (int, error) { return b.Backend.UpdateBatch(keys, values, n) })
		}
	}
	return b.Backend.UpdateBatch(keys, values, n)
}

func (b *faulty) DeleteBatch(keys []byte, n int) (int, error) {
	if n > 0 {
		if how, fails := b.f.call("DeleteBatch"); fails {
			return partly(how, n, func(n int) (int, error) { return b.Backend.DeleteBatch(keys, n) })
		}
	}
	return b.Backend.DeleteBatch(keys, n)
}

// partly handles the elements before the fault.
func partly(how fault, n int, do func(n int) (int, error)) (int, error) {
	if how.element <= 0 || how.element >= n {
		return 0, how.err
	}
	if done, err := do(how.element); err != nil {
		return done, err
	}
	return how.element, how.err
}

func (b *faulty) Freeze() error {
	if how, fails := b.f.call("Freeze"); fails {
		return how.err
	}
	return b.Backend.Freeze()
}
