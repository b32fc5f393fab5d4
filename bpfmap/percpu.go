// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"context"
	"fmt"
	"iter"

	"github.com/cilium/ebpf"
)

// PerCPU is a per-CPU hash, LRU hash or array: each key has one V for every possible CPU, also for those that are not
// there. Programs count in them without a lock, so what is reconciled are the keys: values are theirs.
type PerCPU[K, V any] struct {
	m    *Map[K, []V]
	one  codec[V]
	cpus int
	step int
	zero []V
}

// OpenPerCPU is [Open] for per-CPU maps.
func OpenPerCPU[K, V any](s Spec, opts ...Option) (*PerCPU[K, V], error) {
	return perCPUOf(s.Name, opts, openTakes, func(c *config, kc codec[K], vc codec[[]V]) (*Map[K, []V], error) {
		return open(s, cpuFace, c, kc, vc)
	})
}

// WrapPerCPU is [Wrap] for per-CPU maps.
func WrapPerCPU[K, V any](m *ebpf.Map, opts ...Option) (*PerCPU[K, V], error) {
	return perCPUOf("map", opts, wrapTakes, func(c *config, kc codec[K], vc codec[[]V]) (*Map[K, []V], error) {
		return wrap(m, cpuFace, c, kc, vc)
	})
}

func perCPUOf[K, V any](name string, opts []Option, takes []string, face func(*config, codec[K], codec[[]V]) (*Map[K, []V], error)) (*PerCPU[K, V], error) {
	c, kc, one, err := prepare[K, V](opts, takes)
	var cpus int
	if err == nil && len(c.ignore) > 0 {
		err = fmt.Errorf("WithIgnore: no value of a per-CPU map is compared")
	}
	if err == nil {
		cpus, err = c.sys.CPUs()
	}
	if err != nil {
		return nil, &Error{Op: "open", Map: name, Err: err}
	}
	p := &PerCPU[K, V]{one: one, cpus: cpus, step: stride(one.size), zero: make([]V, cpus)}
	m, err := face(c, kc, p.codec())
	if err != nil {
		return nil, err
	}
	m.mask = make(mask, m.vs) // compares nothing
	m.filled = nil            // but a slot of an array is empty only when it is all zero
	p.m = m
	return p, nil
}

// codec lays the values of all CPUs side by side, each on 8 bytes.
func (p *PerCPU[K, V]) codec() codec[[]V] {
	return codec[[]V]{
		size: p.step * p.cpus, one: p.one.size, lay: p.one.lay,
		enc: func(dst []byte, vs []V) error {
			if len(vs) != p.cpus {
				return fmt.Errorf("%d values for %d CPUs: a shorter list would zero the others", len(vs), p.cpus)
			}
			clear(dst)
			for i, v := range vs {
				if err := p.one.put(dst[i*p.step:], v); err != nil {
					return err
				}
			}
			return nil
		},
		dec: func(src []byte) []V { return p.values(src, nil) },
	}
}

func (p *PerCPU[K, V]) values(src []byte, dst []V) []V {
	if cap(dst) < p.cpus {
		dst = make([]V, p.cpus)
	}
	dst = dst[:p.cpus]
	for i := range dst {
		dst[i] = p.one.get(src[i*p.step:])
	}
	return dst
}

// CPUs is how many values each key has.
func (p *PerCPU[K, V]) CPUs() int { return p.cpus }

// Get reads the values of all CPUs into dst, which is returned, grown if it was too small; false when the key is
// missing. One call; no allocation with a dst that fits.
func (p *PerCPU[K, V]) Get(k K, dst []V) ([]V, bool, error) {
	m := p.m
	s := m.pool.Get().(*scratch)
	err := m.kc.put(s.key, k)
	if err == nil {
		err = m.b.Lookup(s.key, s.value)
	}
	if err == nil {
		dst = p.values(s.value, dst)
	}
	m.pool.Put(s)
	ok, err := found(err, m.table)
	return dst, ok, err
}

// Put writes one value for each CPU; their number must be CPUs. What programs add between a Get and a Put is lost.
func (p *PerCPU[K, V]) Put(k K, vs []V) error { return p.m.Put(k, vs) }

// Create is [Map.Create].
func (p *PerCPU[K, V]) Create(k K, vs []V) error { return p.m.Create(k, vs) }

// Delete is [Map.Delete].
func (p *PerCPU[K, V]) Delete(k K) (bool, error) { return p.m.Delete(k) }

// PutAll is [Map.PutAll].
func (p *PerCPU[K, V]) PutAll(seq iter.Seq2[K, []V]) (Report, error) { return p.m.PutAll(seq) }

// DeleteAll is [Map.DeleteAll].
func (p *PerCPU[K, V]) DeleteAll(seq iter.Seq[K]) (Report, error) { return p.m.DeleteAll(seq) }

// All is [Map.All]; every entry has a slice of its own.
func (p *PerCPU[K, V]) All(ctx context.Context) iter.Seq2[Entry[K, []V], error] { return p.m.All(ctx) }

// Drain is [Map.Drain].
func (p *PerCPU[K, V]) Drain(ctx context.Context) ([]Entry[K, []V], error) { return p.m.Drain(ctx) }

// Plan is [Map.Plan] for a set of keys: those that are missing start at zero, values of the others are left alone.
func (p *PerCPU[K, V]) Plan(ctx context.Context, keys iter.Seq[K]) (Plan[K, []V], error) {
	return p.m.Plan(ctx, p.zeros(keys))
}

// Apply is [Map.Apply].
func (p *PerCPU[K, V]) Apply(ctx context.Context, plan Plan[K, []V]) (Report, error) {
	return p.m.Apply(ctx, plan)
}

// Sync is [Map.Sync] for a set of keys.
func (p *PerCPU[K, V]) Sync(ctx context.Context, keys iter.Seq[K]) (Result, error) {
	return p.m.Sync(ctx, p.zeros(keys))
}

func (p *PerCPU[K, V]) zeros(keys iter.Seq[K]) iter.Seq2[K, []V] {
	return func(yield func(K, []V) bool) {
		for k := range keys {
			if !yield(k, p.zero) {
				return
			}
		}
	}
}

// Stat is [Map.Stat].
func (p *PerCPU[K, V]) Stat() (Stat, error) { return p.m.Stat() }

// Backend is [Map.Backend].
func (p *PerCPU[K, V]) Backend() Backend { return p.m.b }

// Close is [Map.Close].
func (p *PerCPU[K, V]) Close() error { return p.m.Close() }
