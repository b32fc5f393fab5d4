// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"context"
	"iter"
)

// PutAll writes a sequence in batches and says exactly what became of each element: one that fails keeps no other from
// being written. Of two entries with the same key the later wins. Writing more than the map holds fails for what is too
// much with [ErrFull], also in the error that sums up. 8192 elements a call, one call each where the type has no
// batches.
func (m *Map[K, V]) PutAll(seq iter.Seq2[K, V]) (Report, error) {
	var r Report
	n := m.inChunks(func(add func(k K, v V) bool) {
		for k, v := range seq {
			add(k, v)
		}
	}, &r, func(b *buffers, first, n int) {
		if m.shadows() {
			m.mu.Lock()
			defer m.mu.Unlock()
		}
		at := len(r.Failures)
		r.Written += m.write(context.Background(), b.keys, b.values, n, func(i int, err error) bool {
			r.Failures = append(r.Failures, Failure{first + i, m.kc.get(b.keys[i*m.ks:]), m.explain(err)})
			return true
		})
		m.remember(b, n, first, r.Failures[at:], m.wrote)
	})
	return r, m.fail("put", r.failure(n))
}

// DeleteAll deletes a sequence of keys in batches. A missing key is no failure and is counted. In an array it writes
// zeros.
func (m *Map[K, V]) DeleteAll(seq iter.Seq[K]) (Report, error) {
	var r Report
	n := m.inChunks(func(add func(k K, v V) bool) {
		var zero V
		for k := range seq {
			add(k, zero)
		}
	}, &r, func(b *buffers, first, n int) {
		if m.shadows() {
			m.mu.Lock()
			defer m.mu.Unlock()
		}
		at := len(r.Failures)
		failed := func(i int, err error) bool {
			r.Failures = append(r.Failures, Failure{first + i, m.kc.get(b.keys[i*m.ks:]), m.explain(err)})
			return true
		}
		if m.array() {
			clear(b.values)
			r.Deleted += m.write(context.Background(), b.keys, b.values, n, failed)
		} else {
			deleted, missing := m.erase(context.Background(), b.keys, n, failed)
			r.Deleted, r.Missing = r.Deleted+deleted, r.Missing+missing
		}
		m.remember(b, n, first, r.Failures[at:], func(key, _ []byte, err error) { m.erased(key, err) })
	})
	return r, m.fail("delete", r.failure(n))
}

// inChunks encodes what feed adds and flushes whenever a chunk is full. An element that cannot be encoded is a failure.
// It returns how many elements came.
func (m *Map[K, V]) inChunks(feed func(add func(K, V) bool), r *Report, flush func(b *buffers, first, n int)) (came int) {
	b, _ := m.bufs.Get().(*buffers)
	if b == nil {
		b = &buffers{}
	}
	defer m.bufs.Put(b)
	m.buffers(b, m.chunk())
	n, first := 0, 0
	feed(func(k K, v V) bool {
		at := came
		came++
		err := m.kc.put(b.keys[n*m.ks:(n+1)*m.ks], k)
		if err == nil {
			err = m.vc.put(b.values[n*m.vs:(n+1)*m.vs], v)
		}
		if err != nil {
			// What is in the chunk goes first, so that positions in it are positions in the sequence.
			if n > 0 {
				flush(b, first, n)
			}
			r.Failures = append(r.Failures, Failure{at, k, err})
			n, first = 0, came
			return true
		}
		if n++; n == b.n {
			flush(b, first, n)
			n, first = 0, came
		}
		return true
	})
	if n > 0 {
		flush(b, first, n)
	}
	return came
}
