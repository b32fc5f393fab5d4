// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"context"
	"errors"
	"iter"
)

// Number is what counters are made of.
type Number interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// Sum adds up one key's counters over all CPUs; a key that is missing counts 0. One call, no allocation. CPUs count on
// while they are read: the sum is one that was right at some moment for each of them.
func Sum[K any, V Number](p *PerCPU[K, V], k K) (sum V, err error) {
	m := p.m
	s := m.pool.Get().(*scratch)
	if err = m.kc.put(s.key, k); err == nil {
		err = m.b.Lookup(s.key, s.value)
	}
	if err == nil {
		sum = total64(p, s.value)
	}
	m.pool.Put(s)
	_, err = found(err, m.table)
	return sum, err
}

// SumAll is [Map.All] with the sums over all CPUs. Nothing is allocated per entry.
func SumAll[K any, V Number](ctx context.Context, p *PerCPU[K, V]) iter.Seq2[Entry[K, V], error] {
	return func(yield func(Entry[K, V], error) bool) {
		m := p.m
		var b buffers
		err := m.walk(ctx, &b, false, func(keys, values []byte, n int) error {
			for i := range n {
				e := Entry[K, V]{m.kc.get(keys[i*m.ks:]), total64(p, values[i*m.vs:])}
				if !yield(e, nil) {
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

func total64[K any, V Number](p *PerCPU[K, V], src []byte) (sum V) {
	for i := range p.cpus {
		sum += p.one.get(src[i*p.step:])
	}
	return sum
}
