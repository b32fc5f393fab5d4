// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmaptest

import (
	"encoding/binary"
	"syscall"

	"github.com/cilium/ebpf"

	"github.com/ashlar-go/ashlar/bpfmap"
)

// handle is an open descriptor.
type handle struct {
	k         *Kernel
	m         *object
	fd        int
	readOnly  bool
	writeOnly bool
	closed    bool
}

var _ bpfmap.Backend = (*handle)(nil)

func u32(b []byte) uint32       { return binary.NativeEndian.Uint32(b) }
func putU32(b []byte, v uint32) { binary.NativeEndian.PutUint32(b, v) }

// begin locks the kernel and checks what every call checks. The caller unlocks.
func (h *handle) begin(write bool) error {
	h.k.mu.Lock()
	switch {
	case h.closed:
		return syscall.EBADF
	case write && (h.readOnly || h.m.frozen), !write && h.writeOnly:
		return syscall.EPERM
	}
	return nil
}

func (h *handle) Info() (bpfmap.Info, error) {
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	if h.closed {
		return bpfmap.Info{}, syscall.EBADF
	}
	s := &h.m.spec
	info := bpfmap.Info{
		ID: h.m.id, Name: s.Name, Type: s.Type, KeySize: s.KeySize, ValueSize: s.ValueSize, MaxEntries: s.MaxEntries,
		Flags: s.Flags, Frozen: h.m.frozen, ReadOnly: h.readOnly,
	}
	if s.Key != nil || s.Value != nil {
		info.BTF, info.KeyType, info.ValueType = h.m.id, 1, 2
	}
	return info, nil
}

func (h *handle) FD() int { return h.fd }

func (h *handle) Close() error {
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	if !h.closed {
		h.closed = true
		delete(h.k.fds, h.fd)
		h.k.drop(h.m)
	}
	return nil
}

func (h *handle) Freeze() error {
	err := h.begin(true) // a frozen map is EPERM or EBUSY, as the kernel sees fit
	defer h.k.mu.Unlock()
	if err == nil {
		h.m.frozen = true
	}
	return err
}

func (h *handle) Lookup(key, value []byte) error {
	err := h.begin(false)
	defer h.k.mu.Unlock()
	if err != nil {
		return err
	}
	return h.m.lookup(key, value)
}

func (m *object) lookup(key, value []byte) error {
	if m.spec.Type == ebpf.RingBuf {
		return errNotSupp
	}
	e := m.find(key)
	if m.spec.Type == ebpf.LPMTrie {
		if e = nil; u32(key) <= 8*(m.spec.KeySize-4) {
			e = m.longest(key)
		}
	}
	if e == nil || m.ofMaps() && u32(e.value) == 0 {
		return syscall.ENOENT
	}
	m.touch(e)
	copy(value[:m.size()], e.value)
	return nil
}

// longest is the element whose prefix holds the key and is longest.
func (m *object) longest(key []byte) (best *element) {
	for _, e := range m.buckets[0] {
		n := u32(e.key)
		if n <= u32(key) && common(e.key, key) >= int(n) && (best == nil || n > u32(best.key)) {
			best = e
		}
	}
	return best
}

func (h *handle) LookupDelete(key, value []byte) error {
	err := h.begin(true)
	defer h.k.mu.Unlock()
	switch {
	case err != nil:
		return err
	case !h.m.hash() || h.m.ofMaps():
		return errNotSupp
	}
	if err := h.m.lookup(key, value); err != nil {
		return err
	}
	h.m.remove(h.m.find(key))
	return nil
}

func (h *handle) Update(key, value []byte, flags ebpf.MapUpdateFlags) error {
	err := h.begin(true)
	defer h.k.mu.Unlock()
	if err != nil {
		return err
	}
	return h.k.update(h.m, key, value, flags)
}

func (k *Kernel) update(m *object, key, value []byte, flags ebpf.MapUpdateFlags) error {
	if m.spec.Type == ebpf.RingBuf {
		return errNotSupp
	}
	if flags > ebpf.UpdateExist {
		return syscall.EINVAL
	}
	if m.ofMaps() {
		return k.updateOuter(m, key, value, flags)
	}
	if m.spec.Type == ebpf.LPMTrie && u32(key) > 8*(m.spec.KeySize-4) {
		return syscall.EINVAL
	}
	if m.array() && u32(key) >= m.spec.MaxEntries {
		return syscall.E2BIG
	}
	e := m.find(key)
	switch {
	case e != nil && flags == ebpf.UpdateNoExist:
		return syscall.EEXIST
	case e == nil && flags == ebpf.UpdateExist:
		return syscall.ENOENT
	case e == nil && m.lru():
		m.evict()
	case e == nil && m.len() >= int(m.spec.MaxEntries):
		if m.spec.Type == ebpf.LPMTrie {
			return syscall.ENOSPC
		}
		return syscall.E2BIG
	}
	if e == nil {
		e = &element{key: append([]byte(nil), key[:m.spec.KeySize]...), value: make([]byte, m.size())}
		m.insert(e)
	} else if m.spec.Type == ebpf.LPMTrie {
		copy(e.key, key) // the host bits of the last writer stay
	}
	m.touch(e)
	copy(e.value, value[:m.size()])
	return nil
}

// updateOuter puts a map, given by its descriptor, into a slot.
func (k *Kernel) updateOuter(m *object, key, value []byte, flags ebpf.MapUpdateFlags) error {
	in, ok := k.fds[int(u32(value))]
	if !ok {
		return syscall.EBADF
	}
	want := m.spec.InnerMap
	s := &in.spec
	if s.Type != want.Type || s.KeySize != want.KeySize || s.ValueSize != want.ValueSize || s.Flags != want.Flags ||
		in.array() && s.MaxEntries != want.MaxEntries {
		return syscall.EINVAL
	}
	e := m.find(key)
	switch {
	case m.array() && flags != ebpf.UpdateAny:
		return syscall.EINVAL
	case m.array() && e == nil:
		return syscall.E2BIG
	case e != nil && flags == ebpf.UpdateNoExist:
		return syscall.EEXIST
	case e == nil && flags == ebpf.UpdateExist:
		return syscall.ENOENT
	case e == nil && m.len() >= int(m.spec.MaxEntries):
		return syscall.E2BIG
	}
	if e == nil {
		e = &element{key: append([]byte(nil), key[:m.spec.KeySize]...), value: make([]byte, 4)}
		m.insert(e)
	}
	k.release(m, u32(e.value))
	putU32(e.value, in.id)
	in.refs++
	m.inner[in.id] = in
	m.uses[in.id]++
	return nil
}

// release gives up the map in a slot.
func (k *Kernel) release(m *object, id uint32) {
	if id == 0 {
		return
	}
	in := m.inner[id]
	if m.uses[id]--; m.uses[id] == 0 {
		delete(m.inner, id)
		delete(m.uses, id)
	}
	k.drop(in)
}

func (h *handle) Delete(key []byte) error {
	err := h.begin(true)
	defer h.k.mu.Unlock()
	if err != nil {
		return err
	}
	return h.k.delete(h.m, key)
}

func (k *Kernel) delete(m *object, key []byte) error {
	e := (*element)(nil)
	switch {
	case m.spec.Type == ebpf.RingBuf:
		return errNotSupp
	case m.spec.Type == ebpf.LPMTrie && u32(key) > 8*(m.spec.KeySize-4), m.array() && !m.ofMaps():
		return syscall.EINVAL
	default:
		e = m.find(key)
	}
	switch {
	case m.array() && e == nil:
		return syscall.E2BIG
	case e == nil:
		return syscall.ENOENT
	case m.array():
		if u32(e.value) == 0 {
			return syscall.ENOENT
		}
		k.release(m, u32(e.value))
		putU32(e.value, 0)
		return nil
	}
	if m.ofMaps() {
		k.release(m, u32(e.value))
	}
	m.remove(e)
	return nil
}

func (h *handle) NextKey(key, next []byte) error {
	err := h.begin(false)
	defer h.k.mu.Unlock()
	if err != nil {
		return err
	}
	if h.m.spec.Type == ebpf.RingBuf {
		return errNotSupp
	}
	e := h.m.next(key)
	if e == nil {
		return syscall.ENOENT
	}
	copy(next, e.key)
	return nil
}
