// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"sync"
	"syscall"

	"github.com/cilium/ebpf"
)

// Nested is a map of maps: a hash or array whose values are maps with keys IK and values IV. A program that reads the
// outer map sees the inner map it finds there to the end, so exchanging an inner map is how a whole set of entries
// changes at once: old or new, never a mix.
//
// Every call that writes the outer map waits for an RCU grace period, 8 to 14 ms; a batch waits once.
type Nested[K, IK, IV any] struct {
	t     *table
	kc    codec[K]
	inner Spec
	cfg   *config

	mu    sync.Mutex
	known map[string]*Map[IK, IV] // inner maps we hold, by the bytes of the outer key
}

// OpenNested is [Open] for a map of maps. Inner maps are made to inner. Reading the contents of an inner map that this
// process did not make needs CAP_SYS_ADMIN: maps are found by id.
//
// Options: [WithSystem], [WithPin], [WithReadOnly], [WithMaxDelete], [WithProgram], [WithObserver]. [WithMigration] is none
// of them: an outer map has no entries of its own to carry over. Remove the pin of one that is [ErrIncompatible] and let
// Sync fill the next.
func OpenNested[K, IK, IV any](s, inner Spec, opts ...Option) (*Nested[K, IK, IV], error) {
	fail := func(err error) error { return &Error{Op: "open", Map: s.Name, Err: err} }
	c, err := configure(opts, nestedTakes)
	kc, kerr := direct[K]("key")
	ik, ikerr := direct[IK]("inner key")
	iv, iverr := direct[IV]("inner value")
	if err := errors.Join(err, kerr, ikerr, iverr); err != nil {
		return nil, fail(err)
	}
	in, err := inner.full(plainFace, ik.wire(), iv.wire())
	if err != nil {
		return nil, fail(fmt.Errorf("inner map: %w", err))
	}
	want, err := s.full(outerFace, kc.wire(), wire{size: 4})
	if err != nil {
		return nil, fail(err)
	}
	want.InnerMap = in
	b, err := c.outer(want)
	if err != nil {
		return nil, fail(err)
	}
	t, err := newTable(c.sys, b, cmp.Or(c.pin, s.Name))
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return &Nested[K, IK, IV]{t: t, kc: kc, inner: inner, cfg: c, known: map[string]*Map[IK, IV]{}}, nil
}

// outer opens or makes the outer map.
func (c *config) outer(want *ebpf.MapSpec) (Backend, error) {
	for range 3 {
		if c.pin != "" {
			b, err := c.sys.OpenPin(c.pin, c.readOnly || want.Flags&flagReadOnly != 0)
			if err == nil {
				c.pinned = true
				info, err := b.Info()
				if diff := differs(want, info, 0); err == nil && len(diff) > 0 {
					err = fmt.Errorf("%w: %s", ErrIncompatible, brief(5, diff))
				}
				return closing(b, b, err)
			}
			if !errors.Is(err, syscall.ENOENT) || c.readOnly {
				return nil, permission(err, needPin)
			}
		}
		b, err := c.sys.Create(want)
		if err != nil {
			return nil, permission(err, needCreate)
		}
		if c.pin == "" {
			return b, nil
		}
		if err = c.sys.Pin(b, c.pin); err == nil {
			c.pinned = true
			return b, nil
		}
		if cerr := b.Close(); !errors.Is(err, syscall.EEXIST) {
			return nil, errors.Join(permission(err, needPin), cerr)
		}
	}
	return nil, fmt.Errorf("%w: the pin came and went at every try", ErrUnstable)
}

// NewInner makes an inner map that is in no slot yet, for Put.
func (n *Nested[K, IK, IV]) NewInner(opts ...Option) (*Map[IK, IV], error) {
	return Open[IK, IV](n.inner, append([]Option{WithSystem(n.cfg.sys)}, opts...)...)
}

// Inner is the map in a slot; false when there is none. It belongs to n, which closes it when the slot gets another one:
// do not close it. One call, and one by id for a map that n does not hold, which needs CAP_SYS_ADMIN.
func (n *Nested[K, IK, IV]) Inner(k K) (*Map[IK, IV], bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	key, value := block(n.t.ks), block(4)
	err := n.kc.put(key, k)
	if err == nil {
		err = n.t.b.Lookup(key, value)
	}
	if ok, err := found(err, n.t); !ok {
		return nil, false, err
	}
	m, err := n.open(key, binary.NativeEndian.Uint32(value))
	return m, err == nil, n.t.fail("get", err)
}

func (n *Nested[K, IK, IV]) open(key []byte, id uint32) (*Map[IK, IV], error) {
	if m := n.known[string(key)]; m != nil && m.info.ID == id {
		return m, nil
	}
	b, err := n.cfg.sys.OpenID(id)
	if err != nil {
		return nil, permission(err, needID)
	}
	c, kc, vc, err := prepare[IK, IV]([]Option{WithSystem(n.cfg.sys)}, wrapTakes)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	m, err := build(b, "", plainFace, c, kc, vc)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return m, n.hold(key, m)
}

// hold keeps a handle and closes the one it replaces.
func (n *Nested[K, IK, IV]) hold(key []byte, m *Map[IK, IV]) (err error) {
	if old := n.known[string(key)]; old != nil && old != m {
		err = old.Close()
	}
	if m == nil {
		delete(n.known, string(key))
	} else {
		n.known[string(key)] = m
	}
	return err
}

// Put puts maps into slots, all of them in one call and one grace period where the kernel has batches. What is put
// belongs to n from then on, and is closed when it does not get its slot. The maps they replace are closed.
func (n *Nested[K, IK, IV]) Put(seq iter.Seq2[K, *Map[IK, IV]]) (Report, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r, err := n.put(context.Background(), seq)
	return r, n.t.fail("put", err)
}

func (n *Nested[K, IK, IV]) put(ctx context.Context, seq iter.Seq2[K, *Map[IK, IV]]) (Report, error) {
	var r Report
	var keys, fds []byte
	var maps []*Map[IK, IV]
	var index []int
	at := 0
	for k, m := range seq {
		key := block(n.t.ks)
		err := n.kc.put(key, k)
		if err == nil && m == nil {
			err = errors.New("the map is nil")
		}
		if err != nil {
			r.Failures = append(r.Failures, Failure{at, k, err})
		} else {
			keys = append(keys, key...)
			fds = binary.NativeEndian.AppendUint32(fds, uint32(m.b.FD()))
			maps, index = append(maps, m), append(index, at)
		}
		at++
	}
	if err := n.cfg.undivided(n.t); err != nil {
		for _, m := range maps {
			err = errors.Join(err, m.Close())
		}
		return r, err
	}
	failed := map[int]bool{}
	r.Written = n.t.write(ctx, keys, fds, len(maps), func(i int, err error) bool {
		failed[i] = true
		r.Failures = append(r.Failures, Failure{index[i], n.kc.get(keys[i*n.t.ks:]), n.t.explain(err)})
		return true
	})
	err := r.failure(at)
	for i, m := range maps {
		if failed[i] {
			err = errors.Join(err, m.Close())
		} else {
			err = errors.Join(err, n.hold(keys[i*n.t.ks:(i+1)*n.t.ks], m))
		}
	}
	return r, err
}

// Replace fills a fresh map with entries and exchanges it for the one in the slot: the generation flip. Until the
// exchange readers see the old set, afterwards the new one; when something fails before, the old one stays.
func (n *Nested[K, IK, IV]) Replace(ctx context.Context, k K, entries iter.Seq2[IK, IV]) (Report, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m, r, err := n.filled(func(m *Map[IK, IV]) (Report, error) { return m.PutAll(entries) })
	if err != nil {
		return r, n.t.fail("replace", err)
	}
	_, err = n.put(ctx, func(yield func(K, *Map[IK, IV]) bool) { yield(k, m) })
	return r, n.t.fail("replace", err)
}

func (n *Nested[K, IK, IV]) filled(fill func(*Map[IK, IV]) (Report, error)) (*Map[IK, IV], Report, error) {
	m, err := n.NewInner()
	if err != nil {
		return nil, Report{}, err
	}
	r, err := fill(m)
	if err != nil {
		err = errors.Join(err, m.Close())
	}
	return m, r, err
}

// Sync makes the outer map hold exactly these sets. A slot whose inner map holds its set already is left alone, the
// others get a fresh map, all in one call; slots nobody wants are emptied, first where the outer map has no room for both.
// Each sequence is read once, and a key that comes twice with different values is an error. An inner map that may not be
// read, for lack of CAP_SYS_ADMIN, counts as different. Written and Deleted count slots; over the budget of
// [WithMaxDelete] none is emptied. A pin or a program that has another map ([WithPin], [WithProgram]) stops it before the
// first write.
func (n *Nested[K, IK, IV]) Sync(ctx context.Context, desired iter.Seq2[K, iter.Seq2[IK, IV]]) (Report, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r, err := n.sync(ctx, desired)
	err = n.t.fail("sync", err)
	if n.cfg.observe != nil && (err != nil || r.Written+r.Deleted > 0) {
		n.cfg.observe(Event{Map: n.t.name, Result: Result{Report: r, Max: int(n.t.info.MaxEntries), Audited: true}, Err: err})
	}
	return r, err
}

func (n *Nested[K, IK, IV]) sync(ctx context.Context, desired iter.Seq2[K, iter.Seq2[IK, IV]]) (Report, error) {
	var b buffers
	there := map[string]uint32{}
	err := n.t.walk(ctx, &b, false, func(keys, values []byte, count int) error {
		for i := range count {
			// An empty slot of an array of maps is not handed out.
			there[string(keys[i*n.t.ks:(i+1)*n.t.ks])] = binary.NativeEndian.Uint32(values[4*i:])
		}
		return nil
	})
	if err != nil {
		return Report{}, err
	}
	used := len(there)
	wanted := map[string]bool{}
	var slots []Entry[K, *Map[IK, IV]]
	added := 0 // slots that are empty now
	// drop gives up the maps that are in no slot yet.
	drop := func(err error) (Report, error) {
		for _, s := range slots {
			err = errors.Join(err, s.Value.Close())
		}
		return Report{}, err
	}
	for k, entries := range desired {
		key := block(n.t.ks)
		if err := n.kc.put(key, k); err != nil {
			return drop(fmt.Errorf("%v: %w", k, err))
		}
		if wanted[string(key)] {
			return drop(fmt.Errorf("%v is wanted twice", k))
		}
		wanted[string(key)] = true
		id, ok := there[string(key)]
		delete(there, string(key))
		set := once(entries)
		if ok && n.same(ctx, key, id, set) {
			continue
		}
		// Sync on a map that is empty refuses a key that comes twice with different values, as same does.
		m, _, err := n.filled(func(m *Map[IK, IV]) (Report, error) {
			res, err := m.Sync(ctx, set)
			return res.Report, err
		})
		if err != nil {
			return drop(fmt.Errorf("%v: %w", k, err))
		}
		slots = append(slots, Entry[K, *Map[IK, IV]]{k, m})
		if !ok {
			added++
		}
	}
	if len(slots)+len(there) == 0 {
		return Report{}, nil
	}
	if err := n.cfg.undivided(n.t); err != nil {
		return drop(err)
	}
	var r Report
	put := func() (err error) {
		if len(slots) == 0 {
			return nil
		}
		var done Report
		done, err = n.put(ctx, func(yield func(K, *Map[IK, IV]) bool) {
			for _, s := range slots {
				if !yield(s.Key, s.Value) {
					return
				}
			}
		})
		r.Written, r.Failures = done.Written, append(r.Failures, done.Failures...)
		return err
	}
	refused := n.cfg.budget.refuses(len(there), used)
	if refused != nil {
		return r, errors.Join(put(), refused)
	}
	if used+added > int(n.t.info.MaxEntries) {
		err = n.empty(ctx, there, &r)
		return r, errors.Join(err, put())
	}
	err = put()
	return r, errors.Join(err, n.empty(ctx, there, &r))
}

// empty takes the maps out of slots that nobody wants.
func (n *Nested[K, IK, IV]) empty(ctx context.Context, slots map[string]uint32, r *Report) error {
	var keys []byte
	for key := range slots {
		keys = append(keys, key...)
	}
	var failed Report
	r.Deleted, r.Missing = n.t.erase(ctx, keys, len(slots), func(i int, err error) bool {
		failed.Failures = append(failed.Failures, Failure{i, n.kc.get(keys[i*n.t.ks:]), n.t.explain(err)})
		return true
	})
	r.Failures = append(r.Failures, failed.Failures...)
	err := failed.failure(len(slots))
	for key := range slots {
		err = errors.Join(err, n.hold([]byte(key), nil))
	}
	return err
}

// once is a sequence that can be ranged over again, whatever the other one can.
func once[K, V any](seq iter.Seq2[K, V]) iter.Seq2[K, V] {
	var all []Entry[K, V]
	for k, v := range seq {
		all = append(all, Entry[K, V]{k, v})
	}
	return func(yield func(K, V) bool) {
		for _, e := range all {
			if !yield(e.Key, e.Value) {
				return
			}
		}
	}
}

// same says that an inner map holds exactly these entries.
func (n *Nested[K, IK, IV]) same(ctx context.Context, key []byte, id uint32, entries iter.Seq2[IK, IV]) bool {
	m, err := n.open(key, id)
	if err != nil {
		return false
	}
	p, err := m.Plan(ctx, entries)
	return err == nil && p.Empty()
}

// IDs reads which map is in which slot.
func (n *Nested[K, IK, IV]) IDs(ctx context.Context) iter.Seq2[Entry[K, uint32], error] {
	return func(yield func(Entry[K, uint32], error) bool) {
		var b buffers
		err := n.t.walk(ctx, &b, false, func(keys, values []byte, count int) error {
			for i := range count {
				if !yield(Entry[K, uint32]{n.kc.get(keys[i*n.t.ks:]), binary.NativeEndian.Uint32(values[4*i:])}, nil) {
					return errStop
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(Entry[K, uint32]{}, n.t.fail("read", err))
		}
	}
}

// Delete empties a slot and says whether there was a map in it.
func (n *Nested[K, IK, IV]) Delete(k K) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := block(n.t.ks)
	err := n.kc.put(key, k)
	if err == nil {
		err = n.t.b.Delete(key)
	}
	was, err := found(err, n.t)
	if err != nil {
		return false, err
	}
	return was, n.t.fail("delete", n.hold(key, nil))
}

// Backend is [Map.Backend] of the outer map.
func (n *Nested[K, IK, IV]) Backend() Backend { return n.t.b }

// Close closes the outer map and every inner map that n holds.
func (n *Nested[K, IK, IV]) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	err := n.t.b.Close()
	for _, m := range n.known {
		err = errors.Join(err, m.Close())
	}
	clear(n.known)
	return err
}
