// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmaptest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/ashlar-go/ashlar/bpfmap"
)

// Conformance holds a system to the contracts of bpf(2) that package bpfmap builds upon, one subtest for each. Dir is a
// directory for pins, in a bpf file system where the system is a real kernel.
func Conformance(t *testing.T, sys bpfmap.System, dir string) {
	for _, rule := range rules {
		t.Run(rule.name, func(t *testing.T) { rule.hold(&bench{T: t, sys: sys, dir: dir}) })
	}
}

// bench is what a rule works with.
type bench struct {
	*testing.T
	sys bpfmap.System
	dir string
}

type rule struct {
	name string
	hold func(b *bench)
}

// make creates a map with keys of 4 or, for a trie, 8 bytes and values of 4.
func (b *bench) make(typ ebpf.MapType, entries uint32, flags uint32) bpfmap.Backend {
	b.Helper()
	spec := &ebpf.MapSpec{Name: "conformance", Type: typ, KeySize: 4, ValueSize: 4, MaxEntries: entries, Flags: flags}
	if typ == ebpf.LPMTrie {
		spec.KeySize, spec.Flags = 8, flags|flagNoPrealloc
	}
	m, err := b.sys.Create(spec)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = m.Close() })
	return m
}

// want compares an errno; nil is no error.
func (b *bench) want(what string, got error, want error) {
	b.Helper()
	if want == nil && got != nil || want != nil && !errors.Is(got, want) {
		b.Errorf("%s: %v, want %v", what, got, want)
	}
}

// count compares a count and an errno.
func (b *bench) count(what string, n int, err error, wantN int, want error) {
	b.Helper()
	b.want(what, err, want)
	if n != wantN {
		b.Errorf("%s: %d elements, want %d", what, n, wantN)
	}
}

func n32(all ...uint32) (out []byte) {
	for _, v := range all {
		b := make([]byte, 4)
		putU32(b, v)
		out = append(out, b...)
	}
	return out
}

// prefix is a key of an IPv4 trie.
func prefix(a, b, c, d byte, bits uint32) []byte { return append(n32(bits), a, b, c, d) }

func seq(n int) []byte {
	var out []byte
	for i := range n {
		out = append(out, n32(uint32(i))...)
	}
	return out
}

var hashes = []ebpf.MapType{ebpf.Hash, ebpf.PerCPUHash}

// value is one for every CPU.
func (b *bench) value(typ ebpf.MapType, v uint32, n int) []byte {
	if typ != ebpf.PerCPUHash && typ != ebpf.PerCPUArray {
		return bytes.Repeat(n32(v), n)
	}
	cpus, err := b.sys.CPUs()
	if err != nil {
		b.Fatal(err)
	}
	return bytes.Repeat(append(n32(v), 0, 0, 0, 0), cpus*n)
}

var rules = []rule{
	{"hash single elements", func(b *bench) {
		for _, typ := range hashes {
			m, v := b.make(typ, 2, 0), b.value(typ, 7, 1)
			got := make([]byte, len(v))
			b.want("lookup of nothing", m.Lookup(n32(1), got), syscall.ENOENT)
			b.want("update exist of nothing", m.Update(n32(1), v, ebpf.UpdateExist), syscall.ENOENT)
			b.want("create", m.Update(n32(1), v, ebpf.UpdateNoExist), nil)
			b.want("create again", m.Update(n32(1), v, ebpf.UpdateNoExist), syscall.EEXIST)
			b.want("lookup", m.Lookup(n32(1), got), nil)
			if !bytes.Equal(got, v) {
				b.Errorf("read % x, want % x", got, v)
			}
			b.want("second", m.Update(n32(2), v, 0), nil)
			b.want("third of two", m.Update(n32(3), v, 0), syscall.E2BIG)
			b.want("update in a full map", m.Update(n32(2), b.value(typ, 8, 1), 0), nil)
			b.want("delete", m.Delete(n32(1)), nil)
			b.want("delete again", m.Delete(n32(1)), syscall.ENOENT)
			b.want("take", m.LookupDelete(n32(2), got), nil)
			b.want("take again", m.LookupDelete(n32(2), got), syscall.ENOENT)
		}
	}},
	{"array single elements", func(b *bench) {
		for _, typ := range []ebpf.MapType{ebpf.Array, ebpf.PerCPUArray} {
			m, v := b.make(typ, 4, 0), b.value(typ, 7, 1)
			b.want("lookup", m.Lookup(n32(3), v), nil)
			if !bytes.Equal(v, make([]byte, len(v))) {
				b.Errorf("a new slot holds % x", v)
			}
			b.want("lookup out of range", m.Lookup(n32(4), v), syscall.ENOENT)
			b.want("update out of range", m.Update(n32(4), v, 0), syscall.E2BIG)
			b.want("create", m.Update(n32(3), v, ebpf.UpdateNoExist), syscall.EEXIST)
			b.want("delete", m.Delete(n32(3)), syscall.EINVAL)
			b.want("take", m.LookupDelete(n32(3), v), errNotSupp)
		}
	}},
	{"commands of each type", func(b *bench) {
		for typ, want := range map[ebpf.MapType][4]error{ // update, lookup, delete, lookup and delete
			ebpf.Hash: {}, ebpf.LRUHash: {}, ebpf.PerCPUHash: {}, ebpf.LRUCPUHash: {},
			ebpf.Array: {2: errNotSupp, 3: errNotSupp}, ebpf.PerCPUArray: {2: errNotSupp, 3: errNotSupp},
			ebpf.LPMTrie: {3: errNotSupp},
		} {
			m := b.make(typ, 4, 0)
			key, value, cursor := make([]byte, 8), make([]byte, 4096), make([]byte, 8)
			_, update := m.UpdateBatch(key, value, 0)
			_, lookup := m.LookupBatch(nil, cursor, key, value, 0)
			_, del := m.DeleteBatch(key, 0)
			_, take := m.LookupDeleteBatch(nil, cursor, key, value, 0)
			for i, err := range []error{update, lookup, del, take} {
				b.want(fmt.Sprintf("%s, command %d", typ, i), err, want[i])
			}
		}
	}},
	{"update batch stops at the first failure", func(b *bench) {
		for _, typ := range hashes {
			m := b.make(typ, 8, 0)
			n, err := m.UpdateBatch(seq(12), b.value(typ, 1, 12), 12)
			b.count("12 into 8", n, err, 8, syscall.E2BIG)
			n, err = m.UpdateBatch(n32(0, 1, 99, 2), b.value(typ, 2, 4), 4)
			b.count("old, old, new, old", n, err, 2, syscall.E2BIG)
			n, err = m.UpdateBatch(n32(5, 5), append(b.value(typ, 3, 1), b.value(typ, 4, 1)...), 2)
			b.count("twice the same key", n, err, 2, nil)
			got := b.value(typ, 0, 1)
			b.want("lookup", m.Lookup(n32(5), got), nil)
			if u32(got) != 4 {
				b.Errorf("the later of two is %d, want 4", u32(got))
			}
		}
	}},
	{"delete batch stops at the first missing key", func(b *bench) {
		for _, typ := range hashes {
			m := b.make(typ, 8, 0)
			_, err := m.UpdateBatch(seq(4), b.value(typ, 1, 4), 4)
			b.want("fill", err, nil)
			n, err := m.DeleteBatch(n32(0, 77, 1, 2), 4)
			b.count("hit, miss, hit, hit", n, err, 1, syscall.ENOENT)
			n, err = m.DeleteBatch(n32(1, 1), 2)
			b.count("twice the same key", n, err, 1, syscall.ENOENT)
		}
	}},
	{"refused batches handle nothing", func(b *bench) {
		m := b.make(ebpf.Hash, 8, 0)
		_, err := m.UpdateBatch(seq(2), b.value(ebpf.Hash, 1, 2), 2)
		b.want("fill", err, nil)
		b.want("freeze", m.Freeze(), nil)
		if err := m.Freeze(); err == nil {
			b.Error("a second freeze is no error")
		}
		n, err := m.UpdateBatch(seq(4), b.value(ebpf.Hash, 1, 4), 4)
		b.count("update of a frozen map", n, err, 0, syscall.EPERM)
		n, err = m.DeleteBatch(seq(2), 2)
		b.count("delete in a frozen map", n, err, 0, syscall.EPERM)
		info, err := m.Info()
		if b.want("info", err, nil); !info.Frozen {
			b.Error("info does not say that the map is frozen")
		}
	}},
	{"hash batches copy whole buckets", func(b *bench) {
		const entries = 512
		m := b.make(ebpf.Hash, entries, 0)
		_, err := m.UpdateBatch(seq(entries), b.value(ebpf.Hash, 1, entries), entries)
		b.want("fill", err, nil)
		in, out := []byte(nil), make([]byte, 4)
		keys, values := make([]byte, 4*entries), make([]byte, 4*entries)
		seen, tooSmall := map[uint32]int{}, false
		for chunk := 1; ; {
			n, err := m.LookupBatch(in, out, keys, values, chunk)
			if errors.Is(err, syscall.ENOSPC) {
				tooSmall = true
				if n != 0 {
					b.Errorf("ENOSPC came with %d elements", n)
				}
				chunk *= 2
				continue
			}
			for i := range n {
				seen[u32(keys[4*i:])]++
			}
			if errors.Is(err, syscall.ENOENT) {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
			in = append([]byte(nil), out...)
		}
		if !tooSmall {
			b.Error("a chunk of 1 was never too small for a bucket")
		}
		if len(seen) != entries {
			b.Errorf("%d keys seen, want %d", len(seen), entries)
		}
		for k, times := range seen {
			if times != 1 {
				b.Errorf("key %d was read %d times", k, times)
			}
		}
		n, err := m.LookupBatch(nil, out, keys, values, entries)
		b.count("a chunk as large as the map", n, err, entries, syscall.ENOENT)
		n, err = m.LookupDeleteBatch(nil, out, keys, values, entries)
		b.count("take all", n, err, entries, syscall.ENOENT)
		n, err = m.LookupBatch(nil, out, keys, values, entries)
		b.count("an empty map", n, err, 0, syscall.ENOENT)
	}},
	{"array batches go from key to key", func(b *bench) {
		m := b.make(ebpf.Array, 8, 0)
		keys, values := make([]byte, 64), make([]byte, 64)
		first, second, third := make([]byte, 4), make([]byte, 4), make([]byte, 4)
		n, err := m.LookupBatch(nil, first, keys, values, 4)
		b.count("first half", n, err, 4, nil)
		n, err = m.LookupBatch(first, second, keys, values, 4)
		b.count("second half", n, err, 4, nil)
		n, err = m.LookupBatch(second, third, keys, values, 4)
		b.count("end", n, err, 0, syscall.ENOENT)
		n, err = m.LookupBatch(nil, first, keys, values, 9)
		b.count("more than there is", n, err, 8, syscall.ENOENT)
	}},
	{"a trie starts over after a deleted cursor", func(b *bench) {
		m := b.make(ebpf.LPMTrie, 16, 0)
		for i := range byte(8) {
			b.want("fill", m.Update(prefix(10, 0, i, 0, 24), n32(uint32(i)), 0), nil)
		}
		keys, values, cursor := make([]byte, 128), make([]byte, 64), make([]byte, 8)
		n, err := m.LookupBatch(nil, cursor, keys, values, 4)
		b.count("first half", n, err, 4, nil)
		first := append([]byte(nil), keys[:8]...)
		b.want("delete the cursor", m.Delete(cursor), nil)
		n, err = m.LookupBatch(cursor, make([]byte, 8), keys, values, 8)
		b.count("after that", n, err, 7, syscall.ENOENT)
		if !bytes.Equal(keys[:8], first) {
			b.Errorf("goes on with % x, not with the first key % x", keys[:8], first)
		}
	}},
	{"tries match the longest prefix", func(b *bench) {
		m := b.make(ebpf.LPMTrie, 3, 0)
		got := make([]byte, 4)
		b.want("update", m.Update(prefix(10, 0, 1, 0, 24), n32(24), 0), nil)
		b.want("update", m.Update(prefix(10, 0, 0, 0, 8), n32(8), 0), nil)
		b.want("lookup", m.Lookup(prefix(10, 0, 1, 7, 32), got), nil)
		if u32(got) != 24 {
			b.Errorf("10.0.1.7 matches /%d, want /24", u32(got))
		}
		b.want("lookup", m.Lookup(prefix(10, 9, 1, 7, 32), got), nil)
		if u32(got) != 8 {
			b.Errorf("10.9.1.7 matches /%d, want /8", u32(got))
		}
		b.want("no match", m.Lookup(prefix(11, 0, 0, 0, 32), got), syscall.ENOENT)
		b.want("delete needs the prefix itself", m.Delete(prefix(10, 0, 1, 7, 32)), syscall.ENOENT)
		b.want("too long", m.Update(prefix(10, 0, 0, 0, 33), n32(0), 0), syscall.EINVAL)
		b.want("create what is there", m.Update(prefix(10, 0, 1, 9, 24), n32(0), ebpf.UpdateNoExist), syscall.EEXIST)
		// Host bits are stored as the last writer gave them.
		b.want("update with host bits", m.Update(prefix(10, 0, 1, 99, 24), n32(24), 0), nil)
		next := make([]byte, 8)
		b.want("next", m.NextKey(nil, next), nil)
		if !bytes.Equal(next, prefix(10, 0, 1, 99, 24)) {
			b.Errorf("the stored key is % x", next)
		}
		b.want("third", m.Update(prefix(12, 0, 0, 0, 8), n32(8), 0), nil)
		b.want("fourth of three", m.Update(prefix(13, 0, 0, 0, 8), n32(8), 0), syscall.ENOSPC)
		b.want("update in a full trie", m.Update(prefix(12, 0, 0, 0, 8), n32(9), 0), nil)
		n, err := m.UpdateBatch(slices.Concat(prefix(10, 0, 1, 0, 24), prefix(10, 0, 0, 0, 8), prefix(9, 0, 0, 0, 40)), seq(3), 3)
		b.count("third is invalid", n, err, 2, syscall.EINVAL)
		b.want("order: children first", m.NextKey(prefix(10, 0, 1, 0, 24), next), nil)
		if !bytes.Equal(next, prefix(10, 0, 0, 0, 8)) {
			b.Errorf("after the /24 comes % x, not its parent", next)
		}
		b.want("after one that is missing", m.NextKey(prefix(99, 0, 0, 0, 8), next), nil)
		if !bytes.Equal(next, prefix(10, 0, 1, 0, 24)) {
			b.Errorf("after one that is missing comes % x, not the first", next)
		}
	}},
	{"the key after a missing one is the first", func(b *bench) {
		m := b.make(ebpf.Hash, 8, 0)
		next, first := make([]byte, 4), make([]byte, 4)
		b.want("of an empty map", m.NextKey(nil, first), syscall.ENOENT)
		_, err := m.UpdateBatch(seq(4), seq(4), 4)
		b.want("fill", err, nil)
		b.want("first", m.NextKey(nil, first), nil)
		b.want("after a missing one", m.NextKey(n32(77), next), nil)
		if !bytes.Equal(first, next) {
			b.Errorf("after a missing key comes % x, the first is % x", next, first)
		}
		seen := 0
		for key := []byte(nil); ; seen++ {
			if err := m.NextKey(key, next); errors.Is(err, syscall.ENOENT) {
				break
			} else if err != nil || seen > 8 {
				b.Fatal(seen, err)
			}
			key = append([]byte(nil), next...)
		}
		if seen != 4 {
			b.Errorf("walked over %d keys, want 4", seen)
		}
	}},
	{"an LRU always takes and evicts early", func(b *bench) {
		const room = 10_000
		m := b.make(ebpf.LRUHash, room, 0)
		n, err := m.UpdateBatch(seq(room), seq(room), room)
		b.count("as many as it has room for", n, err, room, nil)
		n, err = m.LookupBatch(nil, make([]byte, 4), make([]byte, 4*room), make([]byte, 4*room), room)
		if b.want("read", err, syscall.ENOENT); n >= room || n < room/2 {
			b.Errorf("%d of %d are there, want fewer, but most", n, room)
		}
	}},
	{"an LRU with lists per CPU rounds up", func(b *bench) {
		cpus, err := b.sys.CPUs()
		if b.want("CPUs", err, nil); cpus < 2 {
			b.Skip("one CPU: nothing to round")
		}
		m := b.make(ebpf.LRUHash, uint32(50*cpus+1), flagNoCommonLRU)
		info, err := m.Info()
		if b.want("info", err, nil); int(info.MaxEntries) != 51*cpus {
			b.Errorf("%d entries, want %d", info.MaxEntries, 51*cpus)
		}
	}},
	{"values of CPUs are apart by 8 bytes", func(b *bench) {
		cpus, err := b.sys.CPUs()
		b.want("CPUs", err, nil)
		m, err := b.sys.Create(&ebpf.MapSpec{Name: "conformance", Type: ebpf.PerCPUHash, KeySize: 4, ValueSize: 5, MaxEntries: 2})
		if err != nil {
			b.Fatal(err)
		}
		defer m.Close()
		b.want("update", m.Update(n32(1), bytes.Repeat([]byte{0xee}, 8*cpus), 0), nil)
		got := make([]byte, 8*cpus)
		b.want("lookup", m.Lookup(n32(1), got), nil)
		if want := bytes.Repeat([]byte{0xee}, 8*cpus); !bytes.Equal(got, want) { // also what lies between them
			b.Errorf("read % x, want % x", got, want)
		}
	}},
	{"maps of maps take descriptors and give ids", func(b *bench) {
		inner := &ebpf.MapSpec{Name: "inner", Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 4}
		for _, typ := range []ebpf.MapType{ebpf.HashOfMaps, ebpf.ArrayOfMaps} {
			m, err := b.sys.Create(&ebpf.MapSpec{Name: "outer", Type: typ, KeySize: 4, ValueSize: 4, MaxEntries: 4, InnerMap: inner})
			if err != nil {
				b.Fatal(err)
			}
			defer m.Close()
			in := b.make(ebpf.Hash, 9, 0) // another size is accepted
			info, err := in.Info()
			b.want("info", err, nil)
			got := make([]byte, 4)
			b.want("lookup of nothing", m.Lookup(n32(1), got), syscall.ENOENT)
			n, err := m.UpdateBatch(n32(1, 2), n32(uint32(in.FD()), uint32(in.FD())), 2)
			b.count("update", n, err, 2, nil)
			b.want("lookup", m.Lookup(n32(1), got), nil)
			if u32(got) != info.ID {
				b.Errorf("the slot holds %d, want the id %d", u32(got), info.ID)
			}
			other := b.make(ebpf.Array, 4, 0)
			b.want("another type", m.Update(n32(1), n32(uint32(other.FD())), 0), syscall.EINVAL)
			b.want("no descriptor", m.Update(n32(1), n32(1<<20), 0), syscall.EBADF)
			b.want("delete", m.Delete(n32(1)), nil)
			b.want("delete again", m.Delete(n32(1)), syscall.ENOENT)
			n, err = m.LookupBatch(nil, make([]byte, 4), make([]byte, 64), make([]byte, 64), 8)
			b.count("read", n, err, 1, syscall.ENOENT)
		}
	}},
	{"pins", func(b *bench) {
		m := b.make(ebpf.Hash, 4, 0)
		info, err := m.Info()
		b.want("info", err, nil)
		one, two := b.dir+"/conformance", b.dir+"/conformance_two"
		defer func() { _, _ = b.sys.Remove(one), b.sys.Remove(two) }()
		_, err = b.sys.OpenPin(one, false)
		b.want("open nothing", err, syscall.ENOENT)
		b.want("pin", b.sys.Pin(m, one), nil)
		b.want("pin there again", b.sys.Pin(m, one), syscall.EEXIST)
		b.want("pin elsewhere as well", b.sys.Pin(m, two), nil)
		b.want("a dot in the name", b.sys.Pin(m, b.dir+"/a.b"), syscall.EPERM)
		other := b.make(ebpf.Hash, 4, 0)
		b.want("remove", b.sys.Remove(two), nil)
		b.want("pin another", b.sys.Pin(other, two), nil)
		b.want("rename over it", b.sys.Rename(one, two), nil)
		pins, err := b.sys.Pins(b.dir)
		b.want("list", err, nil)
		if len(pins) != 1 || pins[0].Path != two || pins[0].Kind != "map" || pins[0].ID != info.ID {
			b.Errorf("pinned are %+v, want only map %d at %s", pins, info.ID, two)
		}
		again, err := b.sys.OpenPin(two, true)
		if err != nil {
			b.Fatal(err)
		}
		defer again.Close()
		if now, err := again.Info(); err != nil || now.ID != info.ID {
			b.Errorf("opened map %d, want %d: %v", now.ID, info.ID, err)
		}
		b.want("write through a read-only handle", again.Update(n32(1), n32(1), 0), syscall.EPERM)
		b.want("remove", b.sys.Remove(two), nil)
		b.want("remove again", b.sys.Remove(two), syscall.ENOENT)
		b.want("rename nothing", b.sys.Rename(one, two), syscall.ENOENT)
	}},
	{"impossible maps", func(b *bench) {
		for name, spec := range map[string]*ebpf.MapSpec{
			"no entries":          {Type: ebpf.Hash, KeySize: 4, ValueSize: 4},
			"no key":              {Type: ebpf.Hash, ValueSize: 4, MaxEntries: 1},
			"array key":           {Type: ebpf.Array, KeySize: 8, ValueSize: 4, MaxEntries: 1},
			"trie with preallocs": {Type: ebpf.LPMTrie, KeySize: 8, ValueSize: 4, MaxEntries: 1},
			"odd ring":            {Type: ebpf.RingBuf, MaxEntries: 100},
		} {
			if m, err := b.sys.Create(spec); err == nil {
				b.Errorf("%s: was made", name)
				_ = m.Close()
			}
		}
	}},
	{"flags about a descriptor are not kept with the map", func(b *bench) {
		pin := b.dir + "/conformance"
		for flag, want := range map[uint32][2]error{flagReadOnly: {syscall.EPERM, syscall.ENOENT}, flagWriteOnly: {nil, syscall.EPERM}} {
			m := b.make(ebpf.Hash, 4, flag)
			b.want("write", m.Update(n32(1), n32(1), 0), want[0])
			b.want("read", m.Lookup(n32(2), n32(0)), want[1])
			info, err := m.Info()
			if b.want("info", err, nil); info.Flags != 0 || info.ReadOnly != (flag == flagReadOnly) {
				b.Errorf("flags %#x, read-only: %t", info.Flags, info.ReadOnly)
			}
			if flag == flagReadOnly {
				b.want("freeze", m.Freeze(), syscall.EPERM)
			}
			b.want("pin", b.sys.Pin(m, pin), nil)
			again, err := b.sys.OpenPin(pin, false)
			b.want("open", err, nil)
			b.want("write after opening", again.Update(n32(1), n32(1), 0), nil)
			b.want("read after opening", again.Lookup(n32(1), n32(0)), nil)
			b.want("close", again.Close(), nil)
			b.want("close again", again.Close(), nil)
			reader, err := b.sys.OpenPin(pin, true)
			b.want("open read-only", err, nil)
			b.want("freeze through a reader", reader.Freeze(), syscall.EPERM)
			b.want("close the reader", reader.Close(), nil)
			b.want("remove", b.sys.Remove(pin), nil)
		}
	}},
	{"closed maps", func(b *bench) {
		m := b.make(ebpf.Hash, 4, 0)
		b.want("close", m.Close(), nil)
		b.want("update", m.Update(n32(1), n32(1), 0), syscall.EBADF)
		_, err := m.Info()
		b.want("info", err, syscall.EBADF)
		b.want("freeze", m.Freeze(), syscall.EBADF)
	}},
}
