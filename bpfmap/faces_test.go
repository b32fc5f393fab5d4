// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap_test

import (
	"errors"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/ashlar-go/ashlar/bpfmap"
	"github.com/ashlar-go/ashlar/bpfmap/bpfmaptest"
)

func TestLPM(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		for bits, prefixes := range map[int][]string{
			32:  {"10.0.0.0/8", "10.0.0.0/16", "10.0.1.0/24", "0.0.0.0/0"},
			128: {"fd00::/8", "fd00:1::/32", "::ffff:10.0.0.0/104"},
		} {
			m := openLPM[uint32](t, w, bpfmap.Spec{Name: "routes", MaxEntries: 16}, bits)
			want := map[netip.Prefix]uint32{}
			for i, text := range prefixes {
				p := netip.MustParsePrefix(text)
				want[p] = uint32(i)
				ok(t, m.Put(p, uint32(i)))
				v, there, err := m.Get(p)
				ok(t, err)
				same(t, text, []any{v, there}, []any{uint32(i), true})
				longer := netip.PrefixFrom(p.Addr(), p.Bits()+1)
				if _, listed := want[longer]; !listed {
					_, there, err = m.Get(longer)
					ok(t, err)
					same(t, "one bit longer than "+text, there, false)
				}
			}
			same(t, "all", len(all[netip.Prefix, uint32](t, m)), len(want))
			if err := m.Create(netip.MustParsePrefix(prefixes[0]), 9); !errors.Is(err, bpfmap.ErrExist) {
				t.Errorf("created %s again: %v", prefixes[0], err)
			}
			was, err := m.Delete(netip.MustParsePrefix(prefixes[1]))
			ok(t, err)
			again, err := m.Delete(netip.MustParsePrefix(prefixes[1]))
			ok(t, err)
			same(t, "deleted", []bool{was, again}, []bool{true, false})
			delete(want, netip.MustParsePrefix(prefixes[1]))
			res, err := m.Sync(t.Context(), maps.All(want))
			ok(t, err)
			same(t, "in sync", []int{res.Written, res.Deleted, res.Unchanged}, []int{0, 0, len(want)})
			stat, err := m.Stat()
			ok(t, err)
			same(t, "used", stat.Used, len(want))
		}
		m := openLPM[uint32](t, w, bpfmap.Spec{Name: "routes", MaxEntries: 4}, 32)
		for _, bad := range []netip.Prefix{{}, netip.MustParsePrefix("fd00::/8")} {
			if err := m.Put(bad, 1); err == nil {
				t.Errorf("%v was written", bad)
			}
		}
		r, err := m.PutAll(entries(
			bpfmap.Entry[netip.Prefix, uint32]{Key: netip.MustParsePrefix("10.0.0.0/8")},
			bpfmap.Entry[netip.Prefix, uint32]{},
			bpfmap.Entry[netip.Prefix, uint32]{Key: netip.MustParsePrefix("11.0.0.0/8")},
		))
		if err == nil || r.Written != 2 || len(r.Failures) != 1 || r.Failures[0].Index != 1 {
			t.Errorf("a bad prefix in the middle: %+v, %v", r, err)
		}
		if _, err := bpfmap.OpenLPM[uint32](bpfmap.Spec{Name: "x", MaxEntries: 1}, 64, bpfmap.WithSystem(w.sys)); err == nil {
			t.Error("a prefix of 64 bits")
		}
	})
}

func TestNested(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		for _, typ := range []ebpf.MapType{ebpf.HashOfMaps, ebpf.ArrayOfMaps} {
			faults := bpfmaptest.Inject(w.sys)
			n, err := bpfmap.OpenNested[uint32, uint32, uint32](bpfmap.Spec{Name: "outer", Type: typ, MaxEntries: 4},
				bpfmap.Spec{Name: "inner", MaxEntries: 8}, bpfmap.WithSystem(faults))
			ok(t, err)
			defer n.Close()
			sets := func(s map[uint32]map[uint32]uint32) iter.Seq2[uint32, iter.Seq2[uint32, uint32]] {
				return func(yield func(uint32, iter.Seq2[uint32, uint32]) bool) {
					for _, k := range slices.Sorted(maps.Keys(s)) {
						if !yield(k, sorted(s[k])) {
							return
						}
					}
				}
			}
			want := map[uint32]map[uint32]uint32{0: numbers(0, 3), 2: numbers(5, 2), 3: {}}
			r, err := n.Sync(t.Context(), sets(want))
			ok(t, err)
			same(t, "first pass", []int{r.Written, r.Deleted}, []int{3, 0})
			faults.Reset()
			r, err = n.Sync(t.Context(), sets(want))
			ok(t, err)
			same(t, "in sync", []int{r.Written, r.Deleted}, []int{0, 0})
			if calls := faults.Calls(); slices.ContainsFunc(calls, func(c string) bool { return strings.HasPrefix(c, "Update") || c == "Create" }) {
				t.Errorf("in sync, and called %v", calls)
			}
			want[2][5] = 1
			delete(want, 3)
			faults.Reset()
			r, err = n.Sync(t.Context(), sets(want))
			ok(t, err)
			same(t, "one differs, one is stale", []int{r.Written, r.Deleted}, []int{1, 1})
			m, there, err := n.Inner(2)
			ok(t, err)
			same(t, "there", there, true)
			same(t, "contents", all[uint32, uint32](t, m), want[2])
			_, there, err = n.Inner(3)
			ok(t, err)
			same(t, "emptied", there, false)
			slots := map[uint32]uint32{}
			for e, err := range n.IDs(t.Context()) {
				ok(t, err)
				slots[e.Key] = e.Value
			}
			same(t, "slots", slices.Sorted(maps.Keys(slots)), []uint32{0, 2})
			was, err := n.Delete(0)
			ok(t, err)
			again, err := n.Delete(0)
			ok(t, err)
			same(t, "deleted", []bool{was, again}, []bool{true, false})

			// A set that does not fit leaves the one that is there.
			if _, err := n.Replace(t.Context(), 2, sorted(numbers(0, 9))); !errors.Is(err, bpfmap.ErrFull) {
				t.Errorf("nine into eight: %v", err)
			}
			m, _, err = n.Inner(2)
			ok(t, err)
			same(t, "still there", all[uint32, uint32](t, m), want[2])
			other, err := bpfmap.Open[uint32, uint32](bpfmap.Spec{Name: "other", Type: ebpf.Array, MaxEntries: 8}, bpfmap.WithSystem(faults))
			ok(t, err)
			if _, err := n.Put(func(yield func(uint32, *bpfmap.Map[uint32, uint32]) bool) { yield(1, other) }); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("an inner map of another type: %v", err)
			}
			if _, err := n.Sync(t.Context(), func(yield func(uint32, iter.Seq2[uint32, uint32]) bool) {
				for range 2 {
					if !yield(1, none[uint32, uint32]) {
						return
					}
				}
			}); err == nil {
				t.Error("one slot wanted twice")
			}
		}
	})
}

// TestNestedGuards: a map of maps is not emptied beyond the budget, nor when the pin is another map by now.
func TestNestedGuards(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		pin := w.dir + "/outer"
		var seen []bpfmap.Event
		outer, inner := bpfmap.Spec{Name: "outer", MaxEntries: 8}, bpfmap.Spec{Name: "inner", MaxEntries: 8}
		n, err := bpfmap.OpenNested[uint32, uint32, uint32](outer, inner, bpfmap.WithSystem(w.sys), bpfmap.WithPin(pin),
			bpfmap.WithMaxDelete(bpfmap.Budget{Max: 2}), bpfmap.WithObserver(func(e bpfmap.Event) { seen = append(seen, e) }))
		ok(t, err)
		defer n.Close()
		slots := func(keys ...uint32) iter.Seq2[uint32, iter.Seq2[uint32, uint32]] {
			return func(yield func(uint32, iter.Seq2[uint32, uint32]) bool) {
				for _, k := range keys {
					if !yield(k, sorted(numbers(int(k), 2))) {
						return
					}
				}
			}
		}
		_, err = n.Sync(t.Context(), slots(0, 1, 2, 3))
		ok(t, err)
		r, err := n.Sync(t.Context(), slots(0, 5))
		if !errors.Is(err, bpfmap.ErrBudget) || r.Written != 1 || r.Deleted != 0 {
			t.Errorf("three of two are emptied: %+v, %v", r, err)
		}
		same(t, "observed", []any{len(seen), seen[1].Result.Written, errors.Is(seen[1].Err, bpfmap.ErrBudget)}, []any{2, 1, true})
		// What is in its slot already is wanted twice as well.
		if _, err := n.Sync(t.Context(), slots(0, 0)); err == nil || !strings.Contains(err.Error(), "0 is wanted twice") {
			t.Errorf("one slot wanted twice: %v", err)
		}
		ok(t, w.sys.Remove(pin))
		for _, keys := range [][]uint32{{0, 1, 2, 3}, {0, 1, 2, 3, 5, 6}} { // one to empty, one to fill
			r, err = n.Sync(t.Context(), slots(keys...))
			if !errors.Is(err, bpfmap.ErrSplitBrain) || r.Written+r.Deleted != 0 {
				t.Errorf("%v: wrote to a map that is pinned no more: %+v, %v", keys, r, err)
			}
		}
		got := map[uint32]uint32{}
		for e, err := range n.IDs(t.Context()) {
			ok(t, err)
			got[e.Key] = e.Value
		}
		same(t, "slots", slices.Sorted(maps.Keys(got)), []uint32{0, 1, 2, 3, 5})
		if w.fake != nil { // the outer map and five inner ones
			same(t, "descriptors", w.fake.FDs(), 6)
		}
	})
}

func TestNestedCloses(t *testing.T) {
	t.Parallel()
	k := bpfmaptest.New()
	n, err := bpfmap.OpenNested[uint32, uint32, uint32](bpfmap.Spec{Name: "outer", MaxEntries: 4}, bpfmap.Spec{Name: "inner", MaxEntries: 8}, bpfmap.WithSystem(k))
	ok(t, err)
	for range 5 {
		_, err := n.Replace(t.Context(), 1, sorted(numbers(0, 3)))
		ok(t, err)
	}
	same(t, "descriptors of the outer map and one inner map", k.FDs(), 2)
	ok(t, n.Close())
	same(t, "descriptors after Close", k.FDs(), 0)
}

// slowly has no batches at all, as kernels before 5.6 and some types have not.
type slowly struct{ bpfmap.System }

func (s slowly) Create(spec *ebpf.MapSpec) (bpfmap.Backend, error) {
	b, err := s.System.Create(spec)
	return slow{b}, err
}

func (s slowly) Types(m bpfmap.Backend) (key, value btf.Type, err error) {
	return s.System.Types(m.(slow).Backend)
}

type slow struct{ bpfmap.Backend }

var errNotSupp = syscall.Errno(524)

func (slow) LookupBatch(_, _, _, _ []byte, _ int) (int, error)       { return 0, errNotSupp }
func (slow) LookupDeleteBatch(_, _, _, _ []byte, _ int) (int, error) { return 0, errNotSupp }
func (slow) UpdateBatch(_, _ []byte, _ int) (int, error)             { return 0, errNotSupp }
func (slow) DeleteBatch(_ []byte, _ int) (int, error)                { return 0, errNotSupp }

func TestWithoutBatches(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		w.sys = slowly{w.sys}
		for _, typ := range []ebpf.MapType{ebpf.Hash, ebpf.Array} {
			m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "slow", Type: typ, MaxEntries: 16})
			_, err := m.PutAll(sorted(numbers(1, 10)))
			ok(t, err)
			_, err = m.Sync(t.Context(), sorted(numbers(5, 8)))
			ok(t, err)
			got := all[uint32, uint32](t, m)
			maps.DeleteFunc(got, func(_, v uint32) bool { return v == 0 })
			same(t, typ.String(), got, numbers(5, 8))
			if typ != ebpf.Hash {
				continue
			}
			if r, err := m.PutAll(sorted(numbers(100, 20))); !errors.Is(err, bpfmap.ErrFull) || r.Written != 8 || len(r.Failures) != 12 {
				t.Errorf("twenty into eight: %d written, %d failed, %v", r.Written, len(r.Failures), err)
			}
			drained, err := m.Drain(t.Context())
			ok(t, err)
			same(t, "drained", len(drained), 16)
		}
	})
}

// TestDeviceMap is a type without batches in the real kernel.
func TestDeviceMap(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		if w.fake != nil {
			t.Log("the kernel in memory has no devices")
			return
		}
		for _, typ := range []ebpf.MapType{ebpf.DevMap, ebpf.DevMapHash} {
			m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "devices", Type: typ, MaxEntries: 4})
			for range 2 {
				res, err := m.Sync(t.Context(), sorted(map[uint32]uint32{2: 1})) // lo
				ok(t, err)
				same(t, "left alone the second time", res.Added+res.Unchanged, 1)
			}
			same(t, typ.String(), all[uint32, uint32](t, m), map[uint32]uint32{2: 1})
			res, err := m.Sync(t.Context(), entries(bpfmap.Entry[uint32, uint32]{Key: 2, Value: 1},
				bpfmap.Entry[uint32, uint32]{Key: 9, Value: 1}, bpfmap.Entry[uint32, uint32]{Key: 3, Value: 1}))
			if typ == ebpf.DevMap { // index 9 of 4 is nobody else's fault
				if !errors.Is(err, bpfmap.ErrRange) || errors.Is(err, bpfmap.ErrFull) || len(res.Failures) != 1 || res.Failures[0].Key != uint32(9) {
					t.Errorf("index 9 of 4: %+v, %v", res.Report, err)
				}
				same(t, "the others", all[uint32, uint32](t, m), map[uint32]uint32{2: 1, 3: 1})
			}
			_, err = m.Sync(t.Context(), none[uint32, uint32])
			ok(t, err)
			same(t, typ.String(), all[uint32, uint32](t, m), map[uint32]uint32{})
		}
	})
}

// TestCPUMap: each entry is a queue of the kernel's own, with a thread.
func TestCPUMap(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		if w.fake != nil {
			t.Log("the kernel in memory has no CPUs")
			return
		}
		type queue struct{ Size, Program uint32 } // struct bpf_cpumap_val: a descriptor on the way down, an id on the way up
		s := bpfmap.Spec{Name: "cpus", Type: ebpf.CPUMap, MaxEntries: 4}
		pin := bpfmap.WithPin(w.dir + "/cpus")
		m := open[uint32, queue](t, w, s, pin, bpfmap.WithIgnore("Program"))
		want := map[uint32]queue{0: {Size: 192}}
		for _, added := range []int{1, 0} {
			res, err := m.Sync(t.Context(), sorted(want))
			ok(t, err)
			same(t, "added", []int{res.Added, res.Changed}, []int{added, 0})
		}
		want[0] = queue{Size: 64}
		res, err := m.Sync(t.Context(), sorted(want))
		ok(t, err)
		same(t, "changed", res.Changed, 1)
		same(t, "entries", all[uint32, queue](t, open[uint32, queue](t, w, s, pin)), want)
		if err := m.Put(4, queue{Size: 1}); !errors.Is(err, bpfmap.ErrRange) {
			t.Errorf("index 4 of 4: %v", err)
		}
		if err := m.Put(0, queue{Size: 1 << 20}); !errors.Is(err, syscall.EOVERFLOW) {
			t.Errorf("a queue of a million: %v", err)
		}
		_, err = m.Sync(t.Context(), none[uint32, queue])
		ok(t, err)
		same(t, "left", len(all[uint32, queue](t, m)), 0)
	})
}

func TestSums(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		m, err := bpfmap.OpenPerCPU[uint32, uint16](bpfmap.Spec{Name: "sums", MaxEntries: 100}, bpfmap.WithSystem(w.sys))
		ok(t, err)
		defer m.Close()
		want := map[uint32]uint16{}
		for k := range uint32(50) {
			values := make([]uint16, m.CPUs())
			for i := range values {
				values[i] = uint16(k) + uint16(i)
				want[k] += values[i]
			}
			ok(t, m.Put(k, values))
		}
		got := map[uint32]uint16{}
		for e, err := range bpfmap.SumAll(t.Context(), m) {
			ok(t, err)
			got[e.Key] = e.Value
			one, err := bpfmap.Sum(m, e.Key)
			ok(t, err)
			same(t, "alone", one, e.Value)
		}
		same(t, "sums", got, want)
		absent, err := bpfmap.Sum(m, 99)
		ok(t, err)
		same(t, "a key that is missing", absent, uint16(0))
		res, err := m.Sync(t.Context(), slices.Values([]uint32{1, 2, 200}))
		ok(t, err)
		same(t, "keys", []int{res.Added, res.Unchanged, res.Deleted, res.Changed}, []int{1, 2, 48, 0})
		drained, err := m.Drain(t.Context())
		ok(t, err)
		same(t, "drained", len(drained), 3)
	})
}

func TestRingStops(t *testing.T) {
	t.Parallel()
	k := bpfmaptest.New()
	lost, err := bpfmap.OpenPerCPU[uint32, uint64](bpfmap.Spec{Name: "lost", Type: ebpf.PerCPUArray, MaxEntries: 1}, bpfmap.WithSystem(k))
	ok(t, err)
	r, err := bpfmap.OpenRing[uint32](bpfmap.Spec{Name: "ring", MaxEntries: 4096}, bpfmap.WithSystem(k), bpfmap.WithLost(lost))
	ok(t, err)
	produced, dropped := 1000, uint64(0)
	for range produced {
		if !k.Emit(r.Backend(), make([]byte, 4)) {
			dropped++
		}
	}
	ok(t, lost.Put(0, []uint64{dropped, 0}))
	n := 0
	for _, err := range r.All(t.Context()) {
		ok(t, err)
		n++
		if s, err := r.Stat(); err != nil || s.Available == 0 {
			break
		}
	}
	s, err := r.Stat()
	ok(t, err)
	same(t, "delivered and lost", s.Delivered+s.Lost, uint64(produced))
	if n != 255 {
		t.Errorf("%d records fit into 4096 bytes, want 255", n)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range r.All(t.Context()) {
			t.Error("a record out of nothing")
		}
	}()
	ok(t, r.Close())
	<-done
}
