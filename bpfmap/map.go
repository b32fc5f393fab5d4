// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"syscall"

	"github.com/cilium/ebpf"
)

// Map is a hash, LRU hash, array, device or CPU map with keys K and values V, types of fixed layout. It is safe for
// concurrent use; Plan, Apply and Sync take turns.
type Map[K, V any] struct {
	*table
	kc   codec[K]
	vc   codec[V]
	pool sync.Pool // *scratch
	bufs sync.Pool // *buffers
	cfg  *config
	// layout says what the layout was held against when the map was opened.
	layout Layout
	owned  func(K) bool
	mask   mask    // bytes of a value that are compared, nil for all
	kept   mask    // bytes of a value that a change leaves to the kernel, nil for none
	filled mask    // bytes of an array's value that tell it from an empty slot
	plans  planner // guarded by mu
	mu     sync.Mutex
}

// Entry is a key with its value.
type Entry[K, V any] struct {
	Key   K // as it is in the kernel; host bits of a prefix are cleared
	Value V
}

// scratch is what one call hands to the kernel. It is on the heap and kept, so a call allocates nothing.
type scratch struct{ key, value []byte }

// Open makes the map, or opens it where it is pinned ([WithPin]). Types are checked once, here: neither K nor V may
// hold pointers, strings, slices, bools, or integers whose size depends on the machine, and what the map says about its
// layout must agree. A map that is made gets BTF built from the Go types.
//
// Errors: [ErrLayout] (as *[LayoutError], one for each field), [ErrIncompatible], [ErrInUse], *[PermissionError].
// Capabilities: CAP_BPF, and for the BTF of a map that others made CAP_SYS_ADMIN; see [Stat].
func Open[K, V any](s Spec, opts ...Option) (*Map[K, V], error) {
	c, kc, vc, err := prepare[K, V](opts, openTakes)
	if err != nil {
		return nil, &Error{Op: "open", Map: s.Name, Err: err}
	}
	return open(s, plainFace, c, kc, vc)
}

// Wrap takes over a map that somebody else made or loaded, checks it as Open does, and closes it with [Map.Close].
// [WithPin] is no option here: the handle knows where it is pinned.
func Wrap[K, V any](m *ebpf.Map, opts ...Option) (*Map[K, V], error) {
	c, kc, vc, err := prepare[K, V](opts, wrapTakes)
	if err != nil {
		return nil, &Error{Op: "wrap", Map: "map", Err: err}
	}
	return wrap(m, plainFace, c, kc, vc)
}

func prepare[K, V any](opts []Option, takes []string) (*config, codec[K], codec[V], error) {
	c, cerr := configure(opts, takes)
	kc, kerr := direct[K]("key")
	vc, verr := direct[V]("value")
	return c, kc, vc, errors.Join(cerr, kerr, verr)
}

// build checks an open map against the types and puts the face on.
func build[K, V any](b Backend, name string, f face, c *config, kc codec[K], vc codec[V]) (*Map[K, V], error) {
	t, err := newTable(c.sys, b, name)
	if err != nil {
		return nil, err
	}
	fail := func(err error) error { return &Error{Op: "open", Map: t.name, Err: err} }
	if err := f.check(t.info.Type); err != nil {
		return nil, fail(err)
	}
	if err := errors.Join(kc.fits("key", t.ks), vc.fits("value", t.vs)); err != nil {
		return nil, fail(err)
	}
	m := &Map[K, V]{table: t, kc: kc, vc: vc, cfg: c}
	m.pool.New = func() any { return &scratch{key: block(t.ks), value: block(t.vs)} }
	if m.layout, err = c.verify(b, t.info, kc.lay, vc.lay); err != nil {
		return nil, fail(err)
	}
	switch owned := c.owned.(type) {
	case nil:
	case func(K) bool:
		m.owned = owned
	default:
		var k K
		return nil, fail(fmt.Errorf("WithOwned: %T does not take a key of type %T", owned, k))
	}
	if m.mask, m.kept, err = masks(vc, c.ignore); err != nil {
		return nil, fail(err)
	}
	m.filled = m.mask
	m.plans.ix = newIndex(t.ks, t.vs)
	return m, nil
}

// masks marks the bytes that are compared, which are neither padding nor named by WithIgnore, and those named.
func masks[V any](vc codec[V], ignore []string) (compared, kept mask, err error) {
	if len(vc.zero)+len(ignore) == 0 {
		return nil, nil, nil
	}
	compared = bytes.Repeat([]byte{0xff}, vc.size)
	for _, s := range vc.zero {
		clear(compared[s.from:s.to])
	}
	for _, path := range ignore {
		spans := vc.lay.find(path)
		if len(spans) == 0 {
			return nil, nil, fmt.Errorf("WithIgnore: %s has no field %q", vc.lay.typ, path)
		}
		if kept == nil {
			kept = make(mask, vc.size)
		}
		for _, s := range spans {
			clear(compared[s.from:s.to])
			copy(kept[s.from:s.to], bytes.Repeat([]byte{0xff}, s.to-s.from))
		}
	}
	return compared, kept, nil
}

// Get reads one value; false when the key is missing. One call, no allocation.
func (m *Map[K, V]) Get(k K) (v V, ok bool, err error) {
	s := m.pool.Get().(*scratch)
	if err = m.kc.put(s.key, k); err == nil {
		err = m.b.Lookup(s.key, s.value)
	}
	if err == nil {
		v = m.vc.get(s.value)
	}
	m.pool.Put(s)
	ok, err = found(err, m.table)
	return v, ok, err
}

// Put writes one value, whether the key is there or not. One call, no allocation. Bytes that no field has are zero.
// Errors: [ErrFull], [ErrRange], [ErrReadOnly].
func (m *Map[K, V]) Put(k K, v V) error { return m.update("put", k, v, ebpf.UpdateAny) }

// Create writes the value of a key that is not there, else [ErrExist]. Slots of an array exist always.
func (m *Map[K, V]) Create(k K, v V) error { return m.update("create", k, v, ebpf.UpdateNoExist) }

func (m *Map[K, V]) update(op string, k K, v V, flags ebpf.MapUpdateFlags) error {
	if m.shadows() {
		m.mu.Lock()
		defer m.mu.Unlock()
	}
	s := m.pool.Get().(*scratch)
	err := m.kc.put(s.key, k)
	if err == nil {
		err = m.vc.put(s.value, v)
	}
	if err == nil {
		err = m.b.Update(s.key, s.value, flags)
	}
	if m.shadows() {
		m.wrote(s.key, s.value, err)
	}
	m.pool.Put(s)
	return m.fail(op, err)
}

// Delete deletes one key and says whether it was there. In an array it writes zeros, and the slot was there.
func (m *Map[K, V]) Delete(k K) (bool, error) {
	if m.shadows() {
		m.mu.Lock()
		defer m.mu.Unlock()
	}
	s := m.pool.Get().(*scratch)
	defer m.pool.Put(s)
	err := m.kc.put(s.key, k)
	if err == nil && m.array() {
		clear(s.value)
		err = m.b.Update(s.key, s.value, ebpf.UpdateAny)
	} else if err == nil {
		err = m.b.Delete(s.key)
	}
	missing := errors.Is(err, syscall.ENOENT)
	if m.shadows() {
		if missing {
			m.erased(s.key, nil)
		} else {
			m.erased(s.key, err)
		}
	}
	if missing {
		return false, nil
	}
	return err == nil, m.fail("delete", err)
}

// All reads the whole map, in batches where the kernel has them. A key that is there all the time comes exactly once,
// any other at most once; a value is the one of some moment during the walk. The body may write to the map, delete the
// current key and stop early. When the walk cannot go on, or ctx ends, the last element is the error: [ErrUnstable] says
// that the map changed faster than it could be read, which only tries and types without batches can.
func (m *Map[K, V]) All(ctx context.Context) iter.Seq2[Entry[K, V], error] {
	return func(yield func(Entry[K, V], error) bool) {
		var b buffers
		err := m.walk(ctx, &b, false, func(keys, values []byte, n int) error {
			for i := range n {
				if !yield(m.entry(keys, values, i), nil) {
					return errStop
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(Entry[K, V]{}, m.fail("read", err))
		}
	}
}

var errStop = errors.New("stop")

func (m *Map[K, V]) entry(keys, values []byte, i int) Entry[K, V] {
	return Entry[K, V]{m.kc.get(keys[i*m.ks:]), m.vc.get(values[i*m.vs : (i+1)*m.vs])}
}

// Drain reads and deletes every entry in one step each, so that what a program adds meanwhile is neither lost nor
// counted twice. What was deleted is returned, also next to an error. Hash tables only, else [ErrUnsupported].
func (m *Map[K, V]) Drain(ctx context.Context) ([]Entry[K, V], error) {
	var out []Entry[K, V]
	if !m.hashed() {
		return nil, m.fail("drain", errNotSupp)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.plans.stale = true
	err := m.walk(ctx, &m.plans.bufs, m.takes, func(keys, values []byte, n int) error {
		for i := range n {
			if !m.takes {
				k, v := keys[i*m.ks:(i+1)*m.ks], values[i*m.vs:(i+1)*m.vs]
				if err := m.b.LookupDelete(k, v); errors.Is(err, syscall.ENOENT) {
					continue
				} else if err != nil {
					return err
				}
			}
			out = append(out, m.entry(keys, values, i))
		}
		return nil
	})
	return out, m.fail("drain", err)
}

// Freeze makes the map read-only for system calls, for good; programs still write. A frozen map is no error. A map that
// is being written this moment is busy, so it is tried a few times.
func (m *Map[K, V]) Freeze() (err error) {
	for range 8 {
		if err = m.b.Freeze(); err == nil {
			return nil
		}
		if info, ierr := m.b.Info(); ierr == nil && info.Frozen {
			return nil
		}
		if !errors.Is(err, syscall.EBUSY) {
			break
		}
	}
	return m.fail("freeze", err)
}

// Backend is the open map in bytes.
func (m *Map[K, V]) Backend() Backend { return m.b }

// Close gives the descriptor back. The map lives on while it is pinned or a program uses it.
func (m *Map[K, V]) Close() error { return m.b.Close() }

// found splits the error of a lookup.
func found(err error, t *table) (bool, error) {
	if err == nil {
		return true, nil
	}
	if errors.Is(err, syscall.ENOENT) {
		return false, nil
	}
	return false, t.fail("get", err)
}
