// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"context"
	"errors"
	"syscall"

	"github.com/cilium/ebpf"
)

// table is a map in bytes: what the typed faces have in common.
type table struct {
	sys    System
	b      Backend
	info   Info
	name   string // for errors
	ks, vs int    // bytes of a key and of a value as calls exchange them
	cpus   int    // values for each key, 1 unless per-CPU
	spare  int    // entries an LRU may be short of MaxEntries when it begins to evict

	// What this type of map can do on this kernel, asked once. Without it the same is done element by element.
	updates, lookups, deletes, takes bool
}

const (
	chunkElems = 8192    // keeps buffers in the cache; larger is slower
	chunkBytes = 1 << 21 // for large values
)

func newTable(sys System, b Backend, name string) (*table, error) {
	info, err := b.Info()
	if err != nil {
		return nil, &Error{Op: "open", Map: name, Err: err}
	}
	if name == "" {
		name = info.Name
	}
	t := &table{sys: sys, b: b, info: info, name: name, ks: int(info.KeySize), vs: int(info.ValueSize), cpus: 1}
	if perCPU(info.Type) {
		if t.cpus, err = sys.CPUs(); err != nil {
			return nil, &Error{Op: "open", Map: name, Err: err}
		}
		t.vs = t.cpus * stride(t.vs)
	}
	if lru(info.Type) {
		cpus, err := sys.CPUs()
		if err != nil {
			return nil, &Error{Op: "open", Map: name, Err: err}
		}
		t.spare = lruFree * cpus
		if info.Flags&flagNoCommonLRU != 0 { // the list of one CPU is full before the others are touched
			t.spare = int(info.MaxEntries) - int(info.MaxEntries)/cpus + lruFree
		}
	}
	if ofMaps(info.Type) {
		t.vs = 4
	}
	t.probe()
	return t, nil
}

// stride is the distance of the values of two CPUs: the kernel rounds up to 8.
func stride(size int) int { return (size + 7) &^ 7 }

func perCPU(t ebpf.MapType) bool {
	return t == ebpf.PerCPUHash || t == ebpf.LRUCPUHash || t == ebpf.PerCPUArray
}

func ofMaps(t ebpf.MapType) bool { return t == ebpf.ArrayOfMaps || t == ebpf.HashOfMaps }

func lru(t ebpf.MapType) bool { return t == ebpf.LRUHash || t == ebpf.LRUCPUHash }

// lruFree is how many free elements each CPU keeps to itself, while others evict (LOCAL_FREE_TARGET).
const lruFree = 128

// evicts says whether the kernel may push entries out when the map holds n.
func (t *table) evicts(n int) bool { return lru(t.info.Type) && n+t.spare >= int(t.info.MaxEntries) }

// array says that all keys exist always, so that taking one away means zeroing its value.
func (t *table) array() bool { return t.info.Type == ebpf.Array || t.info.Type == ebpf.PerCPUArray }

// hashed says that the cursor of a batch is a bucket, which stays where it is while keys come and go.
func (t *table) hashed() bool {
	switch t.info.Type {
	case ebpf.Hash, ebpf.PerCPUHash, ebpf.LRUHash, ebpf.LRUCPUHash, ebpf.HashOfMaps:
		return true
	}
	return false
}

// probe asks for batches of nothing: 0 where the command exists, an error where not. A batch refused for lack of
// permission exists.
func (t *table) probe() {
	has := func(_ int, err error) bool {
		return err == nil || errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOENT)
	}
	cursor, key, value := block(max(4, t.ks)), block(t.ks), block(t.vs)
	t.updates = has(t.b.UpdateBatch(key, value, 0))
	t.lookups = has(t.b.LookupBatch(nil, cursor, key, value, 0))
	t.deletes = has(t.b.DeleteBatch(key, 0))
	t.takes = has(t.b.LookupDeleteBatch(nil, cursor, key, value, 0))
}

// chunk is how many elements go into one call.
func (t *table) chunk() int {
	return max(1, min(chunkElems, chunkBytes/(t.ks+t.vs), int(t.info.MaxEntries)))
}

// total says that an error is about the call, not about one element: the others would fail with it, too.
func total(err error) bool {
	return errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EBADF) || unsupported(err)
}

// write stores n elements. Every element that failed is told to failed, with its number; the others are written, also
// those after it. It returns how many were written. A false from failed ends it.
func (t *table) write(ctx context.Context, keys, values []byte, n int, failed func(i int, err error) bool) (written int) {
	for i, step := 0, t.chunk(); i < n; {
		m := min(step, n-i)
		if err := ctx.Err(); err != nil {
			for ; i < n && failed(i, err); i++ {
			}
			return written
		}
		var done int
		var err error
		k, v := keys[i*t.ks:], values[i*t.vs:]
		if t.updates {
			done, err = t.b.UpdateBatch(k[:m*t.ks], v[:m*t.vs], m)
		} else if err = t.b.Update(k[:t.ks], v[:t.vs], ebpf.UpdateAny); err == nil {
			done = 1
		}
		written += done
		i += done
		if err == nil {
			continue
		}
		if total(err) {
			for ; i < n && failed(i, err); i++ {
			}
			return written
		}
		if !failed(i, err) {
			return written
		}
		i++ // the one that failed; those after it were not tried
	}
	return written
}

// erase deletes n keys. A missing key is what was wanted and only counted.
func (t *table) erase(ctx context.Context, keys []byte, n int, failed func(i int, err error) bool) (deleted, missing int) {
	for i, step := 0, t.chunk(); i < n; {
		m := min(step, n-i)
		if err := ctx.Err(); err != nil {
			for ; i < n && failed(i, err); i++ {
			}
			return deleted, missing
		}
		var done int
		var err error
		k := keys[i*t.ks:]
		if t.deletes {
			done, err = t.b.DeleteBatch(k[:m*t.ks], m)
		} else if err = t.b.Delete(k[:t.ks]); err == nil {
			done = 1
		}
		deleted += done
		i += done
		switch {
		case err == nil:
			continue
		case errors.Is(err, syscall.ENOENT):
			missing++
		case total(err):
			for ; i < n && failed(i, err); i++ {
			}
			return deleted, missing
		case !failed(i, err):
			return deleted, missing
		}
		i++
	}
	return deleted, missing
}
