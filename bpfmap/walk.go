// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/cilium/ebpf"
)

// buffers are what a walk reads into; a pass after the first allocates nothing.
type buffers struct {
	keys, values, in, out []byte
	n                     int
}

func (t *table) buffers(b *buffers, n int) {
	if b.n >= n {
		return
	}
	b.keys, b.values, b.n = block(n*t.ks), block(n*t.vs), n
	b.in, b.out = block(max(4, t.ks)), block(max(4, t.ks))
}

// walk reads the whole map and hands over chunks of n elements, which are valid until visit returns. A key that is
// there all the time is handed over exactly once, any other at most once. It ends, whatever others do to the map.
func (t *table) walk(ctx context.Context, b *buffers, take bool, visit func(keys, values []byte, n int) error) error {
	switch {
	case t.hashed() && (t.lookups && !take || t.takes && take):
		return t.buckets(ctx, b, take, visit)
	case t.lookups:
		return t.keyed(ctx, b, visit)
	}
	return t.steps(ctx, b, visit)
}

// buckets walks a hash table. The cursor is a bucket number and only grows, so the walk ends and sees no bucket twice;
// a call copies whole buckets, and one that does not fit is ENOSPC with the cursor still good.
func (t *table) buckets(ctx context.Context, b *buffers, take bool, visit func(keys, values []byte, n int) error) error {
	t.buffers(b, t.chunk())
	read := t.b.LookupBatch
	if take {
		read = t.b.LookupDeleteBatch
	}
	var in []byte
	for idle := 0; ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := read(in, b.out, b.keys, b.values, b.n)
		end := errors.Is(err, syscall.ENOENT)
		switch {
		case errors.Is(err, syscall.ENOSPC):
			// No bucket holds more than the map. More than that can only be asked for by a fault.
			if b.n >= 2*int(t.info.MaxEntries) {
				return fmt.Errorf("%w: a bucket does not fit into %d entries, the map has %d: %w", ErrUnstable, b.n, t.info.MaxEntries, err)
			}
			cursor := b.in
			t.buffers(b, 2*b.n)
			if in != nil {
				in = b.in
				copy(in, cursor)
			}
			continue
		case err != nil && !end && !errors.Is(err, syscall.EINTR):
			return err
		}
		if n > 0 {
			if err := visit(b.keys[:n*t.ks], b.values[:n*t.vs], n); err != nil {
				return err
			}
			idle = 0
		} else if idle++; idle > 8 && !end {
			return fmt.Errorf("%w: %d calls gave nothing and no end", ErrUnstable, idle)
		}
		if end {
			return nil
		}
		b.in, b.out = b.out, b.in
		in = b.in
	}
}

// keyed walks the types whose cursor is the last key: arrays, where it is never lost, and tries. When it was deleted in
// between, the kernel starts over, so what was seen is remembered and the walk gives up once it has read several times
// what the map can hold. Nothing is handed over before all is read: a visitor that deletes would make it start over.
func (t *table) keyed(ctx context.Context, b *buffers, visit func(keys, values []byte, n int) error) error {
	n := min(chunkBytes/(t.ks+t.vs), int(t.info.MaxEntries)+1)
	t.buffers(b, max(1, n))
	rows := 0
	read := func(found func(keys, values []byte, n int) error) error {
		var in []byte
		for {
			if err := ctx.Err(); err != nil {
				return err
			}
			n, err := t.b.LookupBatch(in, b.out, b.keys, b.values, b.n)
			end := errors.Is(err, syscall.ENOENT)
			if err != nil && !end && !errors.Is(err, syscall.EINTR) { // EINTR: older kernels, when the next key vanished
				return err
			}
			if rows += max(n, 1); rows > t.most() {
				return fmt.Errorf("%w: %d entries read, the map has room for %d", ErrUnstable, rows, t.info.MaxEntries)
			}
			if n > 0 {
				if err := found(b.keys[:n*t.ks], b.values[:n*t.vs], n); err != nil {
					return err
				}
				b.in, b.out = b.out, b.in
				in = b.in
			}
			if end {
				return nil
			}
		}
	}
	if t.array() {
		return read(visit)
	}
	return t.gather(read, visit)
}

// most is how many entries a walk by keys reads before it says that it never ends: restarts are rare and bounded by
// deletions, so several times the map is plenty.
func (t *table) most() int { return 16*int(t.info.MaxEntries) + 1024 }

// steps walks with one call per key, for types that have no batches. Keys first, then values: a visitor may delete.
func (t *table) steps(ctx context.Context, _ *buffers, visit func(keys, values []byte, n int) error) error {
	key, next, value := block(t.ks), block(t.ks), block(t.vs)
	rows := 0
	return t.gather(func(found func(keys, values []byte, n int) error) error {
		for from := []byte(nil); ; rows++ {
			if err := ctx.Err(); err != nil {
				return err
			}
			if rows > t.most() {
				return fmt.Errorf("%w: %d keys read, the map has room for %d", ErrUnstable, rows, t.info.MaxEntries)
			}
			err := t.b.NextKey(from, next)
			if errors.Is(err, syscall.ENOENT) {
				return nil
			}
			if err != nil {
				return err
			}
			if err = t.b.Lookup(next, value); err == nil {
				err = found(next, value, 1)
			}
			if err != nil && !errors.Is(err, syscall.ENOENT) { // gone since, or an empty slot
				return err
			}
			key, next = next, key
			from = key
		}
	}, visit)
}

// gather reads all before it hands over anything. A trie is read again: while others insert beside the cursor, the kernel
// can take a node for the other child of its parent and pass over the subtree of a sibling, without a word. When the second
// reading finds something that the first did not, there is a third.
func (t *table) gather(read func(found func(keys, values []byte, n int) error) error, visit func(keys, values []byte, n int) error) error {
	var all elems
	readings := 1
	if t.info.Type == ebpf.LPMTrie {
		readings = 3
	}
	for i, before := 0, -1; i < readings && before < len(all.seen); i++ {
		before = len(all.seen)
		err := read(func(keys, values []byte, n int) error {
			all.add(t, keys, values, n)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return all.visit(t, visit)
}

// elems is a set of elements by key.
type elems struct {
	seen         map[string]struct{}
	keys, values []byte
}

func (e *elems) add(t *table, keys, values []byte, n int) {
	if e.seen == nil {
		e.seen = make(map[string]struct{}, n)
	}
	for i := range n {
		k := keys[i*t.ks : (i+1)*t.ks]
		if t.info.Type == ebpf.LPMTrie {
			maskKey(k)
		}
		if _, ok := e.seen[string(k)]; ok {
			continue
		}
		e.seen[string(k)] = struct{}{}
		e.keys = append(e.keys, k...)
		e.values = append(e.values, values[i*t.vs:(i+1)*t.vs]...)
	}
}

func (e *elems) visit(t *table, visit func(keys, values []byte, n int) error) error {
	step := t.chunk()
	for i, n := 0, len(e.seen); i < n; i += step {
		m := min(step, n-i)
		if err := visit(e.keys[i*t.ks:(i+m)*t.ks], e.values[i*t.vs:(i+m)*t.vs], m); err != nil {
			return err
		}
	}
	return nil
}
