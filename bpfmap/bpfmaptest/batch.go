// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmaptest

import (
	"syscall"

	"github.com/cilium/ebpf"
)

func (h *handle) LookupBatch(in, out, keys, values []byte, n int) (int, error) {
	err := h.begin(false)
	defer h.k.mu.Unlock()
	switch {
	case err != nil:
		return 0, err
	case h.m.spec.Type == ebpf.RingBuf:
		return 0, errNotSupp
	case n == 0:
		return 0, nil
	case h.m.hash():
		return h.m.readBuckets(in, out, keys, values, n, false)
	}
	return h.m.readKeys(in, out, keys, values, n)
}

func (h *handle) LookupDeleteBatch(in, out, keys, values []byte, n int) (int, error) {
	err := h.begin(true)
	defer h.k.mu.Unlock()
	switch {
	case err != nil:
		return 0, err
	case !h.m.hash():
		return 0, errNotSupp
	case n == 0:
		return 0, nil
	}
	return h.m.readBuckets(in, out, keys, values, n, true)
}

// readBuckets copies whole buckets, as hash tables do. The cursor is the number of the next bucket.
func (m *object) readBuckets(in, out, keys, values []byte, n int, take bool) (int, error) {
	at := 0
	if in != nil {
		at = int(u32(in))
	}
	ks, vs, count := int(m.spec.KeySize), m.size(), 0
	for ; at < len(m.buckets); at++ {
		bucket := m.buckets[at]
		if len(bucket) > n-count {
			putU32(out, uint32(at))
			if count == 0 {
				return 0, syscall.ENOSPC
			}
			return count, nil
		}
		for _, e := range bucket {
			copy(keys[count*ks:], e.key)
			copy(values[count*vs:], e.value)
			count++
		}
		if take {
			for _, e := range bucket {
				delete(m.where, string(e.key))
			}
			m.buckets[at] = nil
		}
	}
	putU32(out, uint32(at))
	return count, syscall.ENOENT
}

// readKeys goes from key to key, as arrays and tries do. The cursor is the last key, and when that was deleted it
// starts over.
func (m *object) readKeys(in, out, keys, values []byte, n int) (count int, err error) {
	ks, vs := int(m.spec.KeySize), m.size()
	last := in
	for count < n {
		e := m.next(last)
		if e == nil {
			err = syscall.ENOENT
			break
		}
		last = e.key
		if m.ofMaps() && u32(e.value) == 0 {
			continue
		}
		copy(keys[count*ks:], e.key)
		copy(values[count*vs:], e.value)
		count++
	}
	if count > 0 {
		copy(out, last)
	}
	return count, err
}

func (h *handle) UpdateBatch(keys, values []byte, n int) (int, error) {
	err := h.begin(true)
	defer h.k.mu.Unlock()
	if err == nil && h.m.spec.Type == ebpf.RingBuf {
		err = errNotSupp
	}
	ks, vs := int(h.m.spec.KeySize), h.m.size()
	for i := 0; err == nil && i < n; i++ {
		if err := h.k.update(h.m, keys[i*ks:(i+1)*ks], values[i*vs:(i+1)*vs], ebpf.UpdateAny); err != nil {
			return i, err
		}
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}

func (h *handle) DeleteBatch(keys []byte, n int) (int, error) {
	err := h.begin(true)
	defer h.k.mu.Unlock()
	if err == nil && (h.m.array() || h.m.spec.Type == ebpf.RingBuf) {
		err = errNotSupp
	}
	ks := int(h.m.spec.KeySize)
	for i := 0; err == nil && i < n; i++ {
		if err := h.k.delete(h.m, keys[i*ks:(i+1)*ks]); err != nil {
			return i, err
		}
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}
