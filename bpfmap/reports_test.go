// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap_test

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/ashlar-go/ashlar/bpfmap"
	"github.com/ashlar-go/ashlar/bpfmap/bpfmaptest"
)

// padded has three bytes that no field has.
type padded struct {
	A uint8
	B uint32
}

// DataDog/datadog-agent#32979: lookup-and-delete into a type with padding deleted everything and delivered nothing.
func TestReport_datadog_agent_32979(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		m := open[uint32, padded](t, w, bpfmap.Spec{Name: "padded", MaxEntries: 10})
		for i := range uint32(10) {
			ok(t, m.Put(i, padded{uint8(i), 100 + i}))
		}
		got, err := m.Drain(t.Context())
		ok(t, err)
		slices.SortFunc(got, func(a, b bpfmap.Entry[uint32, padded]) int { return int(a.Key) - int(b.Key) })
		if len(got) != 10 || got[3] != (bpfmap.Entry[uint32, padded]{Key: 3, Value: padded{3, 103}}) {
			t.Errorf("drained %v, want ten entries", got)
		}
		same(t, "left", len(all[uint32, padded](t, m)), 0)
	})
}

// cilium/ebpf#1955: the last rows of a dump come together with the error that says it is over.
func TestReport_cilium_ebpf_1955(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		for _, typ := range []ebpf.MapType{ebpf.Hash, ebpf.Array} {
			m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "dump", Type: typ, MaxEntries: 10_000})
			_, err := m.PutAll(sorted(numbers(0, 10_000)))
			ok(t, err)
			same(t, typ.String(), len(all[uint32, uint32](t, m)), 10_000)
		}
	})
}

// cilium/cilium#48222: a bucket that does not fit into the buffer made a dump spin for ever.
func TestReport_cilium_48222(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		// Values of 1 MiB make the first chunk 2 elements; buckets are larger than that at times.
		type big [1 << 20]uint8
		m := open[uint32, big](t, w, bpfmap.Spec{Name: "big", MaxEntries: 48, Flags: 1})
		for i := range uint32(48) {
			ok(t, m.Put(i, big{0: uint8(i)}))
		}
		same(t, "entries", len(all[uint32, big](t, m)), 48)
	})
	t.Run("a bucket that never fits", func(t *testing.T) {
		faults := bpfmaptest.Inject(bpfmaptest.New())
		m := open[uint32, uint32](t, world{sys: faults}, bpfmap.Spec{Name: "spin", MaxEntries: 64})
		for i := range 100 {
			faults.Fail(i+1, syscall.ENOSPC)
		}
		var got error
		for _, err := range m.All(t.Context()) {
			got = err
		}
		if !errors.Is(got, bpfmap.ErrUnstable) || !errors.Is(got, syscall.ENOSPC) {
			t.Errorf("the walk ends with %v, want ErrUnstable", got)
		}
		if n := len(faults.Calls()); n > 10 {
			t.Errorf("%d calls to find out", n)
		}
	})
}

// iovisor/bcc#5273: a dump with room for MaxEntries while others insert.
func TestReport_bcc_5273(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		const room, stays = 1000, 500
		m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "full", MaxEntries: room})
		_, err := m.PutAll(sorted(numbers(0, room)))
		ok(t, err)
		// Entries move from before the cursor to after it, so that one walk finds more than the map has room for.
		var stop atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := uint32(stays); !stop.Load(); i++ {
				_, _ = m.Delete(i)
				_ = m.Put(i+room-stays, i)
			}
		}()
		defer func() { stop.Store(true); <-done }()
		most, complete := 0, 0
		for end := time.Now().Add(30 * time.Second); complete < 100 || w.fake == nil && most <= room; complete++ {
			if time.Now().After(end) {
				t.Fatalf("%d walks, the largest with %d entries: the map was never full and changing", complete, most)
			}
			got := all[uint32, uint32](t, m)
			most = max(most, len(got))
			for k := range uint32(stays) {
				if _, there := got[k]; !there {
					t.Fatalf("walk %d, %d entries: the stable key %d is missing", complete, len(got), k)
				}
			}
		}
	})
}

// cilium/ebpf#9: deleting the current key while iterating made every key come twice.
func TestReport_cilium_ebpf_9(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		for _, n := range []int{10_000, 7} {
			m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "walk", MaxEntries: uint32(n)})
			_, err := m.PutAll(sorted(numbers(0, n)))
			ok(t, err)
			seen := map[uint32]int{}
			for e, err := range m.All(t.Context()) {
				ok(t, err)
				seen[e.Key]++
				if len(seen)%2 == 0 {
					_, err := m.Delete(e.Key)
					ok(t, err)
				}
			}
			for k, times := range seen {
				if times != 1 {
					t.Fatalf("key %d came %d times", k, times)
				}
			}
			same(t, "keys", len(seen), n)
		}
		type large [64 << 10]uint8 // so that a call reads only some of them
		trie := openLPM[large](t, w, bpfmap.Spec{Name: "walk", MaxEntries: 512}, 32)
		for i := range byte(255) {
			ok(t, trie.Put(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, i}), 16), large{i}))
		}
		seen := map[netip.Prefix]int{}
		for e, err := range trie.All(t.Context()) {
			ok(t, err)
			if seen[e.Key]++; seen[e.Key] > 1 {
				t.Fatalf("prefix %v came twice", e.Key)
			}
			if len(seen)%2 == 0 { // at times the one that the kernel goes on from
				_, err = trie.Delete(e.Key)
				ok(t, err)
			}
		}
		same(t, "prefixes", len(seen), 255)
	})
}

func openLPM[V any](t testing.TB, w world, s bpfmap.Spec, bits int, opts ...bpfmap.Option) *bpfmap.LPM[V] {
	t.Helper()
	m, err := bpfmap.OpenLPM[V](s, bits, append([]bpfmap.Option{bpfmap.WithSystem(w.sys)}, opts...)...)
	ok(t, err)
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// canyonroad/agentsh#349: a key of 28 bytes for a map of 32 failed at every write, and the policy was open.
func TestReport_agentsh_349(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		pin := w.dir + "/policy"
		open[[32]uint8, uint32](t, w, bpfmap.Spec{Name: "policy", MaxEntries: 4}, bpfmap.WithPin(pin))
		_, err := bpfmap.Open[[28]uint8, uint32](bpfmap.Spec{Name: "policy", MaxEntries: 4}, bpfmap.WithSystem(w.sys), bpfmap.WithPin(pin))
		if !errors.Is(err, bpfmap.ErrLayout) || !errors.Is(err, bpfmap.ErrIncompatible) {
			t.Fatalf("opened with a smaller key: %v", err)
		}
		if text := err.Error(); !strings.Contains(text, "28") || !strings.Contains(text, "32") {
			t.Errorf("the error does not name both sizes: %s", text)
		}
	})
}

type ab struct{ A, B uint64 }
type ba struct{ B, A uint64 }

// cilium/ebpf#821, cilium/cilium#5538: the same sizes, but the fields in another order.
func TestReport_cilium_ebpf_821(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		pin := w.dir + "/order"
		open[uint32, ab](t, w, bpfmap.Spec{Name: "order", MaxEntries: 4}, bpfmap.WithPin(pin))
		_, err := bpfmap.Open[uint32, ba](bpfmap.Spec{Name: "order", MaxEntries: 4}, bpfmap.WithSystem(w.sys), bpfmap.WithPin(pin))
		var layout *bpfmap.LayoutError
		if !errors.As(err, &layout) || !errors.Is(err, bpfmap.ErrIncompatible) {
			t.Fatalf("opened with fields in another order: %v", err)
		}
		if layout.Side != "value" || layout.Field != "B" {
			t.Errorf("the first difference is %q of the %s, want B of the value", layout.Field, layout.Side)
		}
		// The same name and place, but larger by the padding behind it.
		grown := bpfmap.WithPin(w.dir + "/grown")
		open[uint32, struct {
			A uint32
			_ uint32
		}](t, w, bpfmap.Spec{Name: "grown", MaxEntries: 4}, grown)
		_, err = bpfmap.Open[uint32, struct{ A uint64 }](bpfmap.Spec{Name: "grown", MaxEntries: 4}, bpfmap.WithSystem(w.sys), grown)
		if !errors.As(err, &layout) || layout.Field != "A" {
			t.Errorf("opened with a field that is larger: %v", err)
		}
		same(t, "the map opens as it is", all[uint32, ab](t, open[uint32, ab](t, w, bpfmap.Spec{Name: "order", MaxEntries: 4}, bpfmap.WithPin(pin))), map[uint32]ab{})
	})
}

// opentelemetry-ebpf-profiler#1055, cilium/cilium#15864: "argument list too long" for a full map.
func TestReport_otel_ebpf_profiler_1055(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "small", MaxEntries: 8})
		_, err := m.PutAll(sorted(numbers(0, 8)))
		ok(t, err)
		err = m.Put(8, 8)
		var full *bpfmap.FullError
		if !errors.Is(err, bpfmap.ErrFull) || !errors.Is(err, syscall.E2BIG) || !errors.As(err, &full) {
			t.Fatalf("the ninth of eight: %v", err)
		}
		same(t, "text", err.Error(), "put small: no more space in map (8 of 8)")
		array := open[uint32, uint32](t, w, bpfmap.Spec{Name: "slots", Type: ebpf.Array, MaxEntries: 8})
		if err := array.Put(8, 8); !errors.Is(err, bpfmap.ErrRange) || errors.Is(err, bpfmap.ErrFull) {
			t.Errorf("slot 8 of 8: %v, want ErrRange", err)
		}
		trie := openLPM[uint32](t, w, bpfmap.Spec{Name: "trie", MaxEntries: 1}, 32)
		ok(t, trie.Put(netip.MustParsePrefix("10.0.0.0/8"), 1))
		if err := trie.Put(netip.MustParsePrefix("11.0.0.0/8"), 1); !errors.Is(err, bpfmap.ErrFull) {
			t.Errorf("the second of one prefix: %v, want ErrFull", err)
		}
	})
}

// opentelemetry-ebpf-profiler#1833: "no exist" is ignored for batches and overwrote entries.
func TestReport_otel_ebpf_profiler_1833(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "create", MaxEntries: 8})
		ok(t, m.Create(1, 10))
		if err := m.Create(1, 20); !errors.Is(err, bpfmap.ErrExist) || !errors.Is(err, syscall.EEXIST) {
			t.Errorf("created twice: %v", err)
		}
		v, _, err := m.Get(1)
		ok(t, err)
		same(t, "value", v, uint32(10))
	})
}

// cilium/cilium#27686, #32311: pressure from a cache in user space.
func TestReport_cilium_27686(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		pin := w.dir + "/pressure"
		before := open[uint32, uint32](t, w, bpfmap.Spec{Name: "pressure", MaxEntries: 200}, bpfmap.WithPin(pin))
		_, err := before.PutAll(sorted(numbers(0, 150)))
		ok(t, err)
		// A process that has just started and has no cache.
		m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "pressure", MaxEntries: 200}, bpfmap.WithPin(pin))
		stat, err := m.Stat()
		ok(t, err)
		same(t, "pressure", stat.Pressure, 0.75)
		res, err := m.Sync(t.Context(), sorted(numbers(0, 150)))
		ok(t, err)
		same(t, "pressure of a pass", []any{res.Pressure, res.Used, res.Max, res.Written}, []any{0.75, 150, 200, 0})
	})
}

// cilium/cilium#40829: one key of several failed, and stale keys stayed.
func TestReport_cilium_40829(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		faults := bpfmaptest.Inject(w.sys)
		m := open[uint32, uint32](t, world{sys: faults}, bpfmap.Spec{Name: "policy", MaxEntries: 64})
		_, err := m.PutAll(sorted(numbers(100, 10))) // stale
		ok(t, err)
		faults.Reset()
		faults.FailElement(2, 3, syscall.EFAULT) // the write after the read: three go in, the fourth fails
		res, err := m.Sync(t.Context(), sorted(numbers(0, 8)))
		if !errors.Is(err, syscall.EFAULT) {
			t.Fatalf("the failure is not reported: %v", err)
		}
		same(t, "written, deleted", []int{res.Written, res.Deleted}, []int{7, 10})
		same(t, "failed", []any{len(res.Failures), res.Failures[0].Key}, []any{1, uint32(3)})
		want := numbers(0, 8)
		delete(want, 3)
		same(t, "the others", all[uint32, uint32](t, m), want)
		res, err = m.Sync(t.Context(), sorted(numbers(0, 8)))
		ok(t, err)
		same(t, "second pass", []int{res.Written, res.Deleted}, []int{1, 0})
		same(t, "converged", all[uint32, uint32](t, m), numbers(0, 8))
	})
}

// cilium/cilium#47062: stale entries of an earlier process let traffic through for 15 minutes.
func TestReport_cilium_47062(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		pin := w.dir + "/allow"
		before := open[uint32, uint32](t, w, bpfmap.Spec{Name: "allow", MaxEntries: 64}, bpfmap.WithPin(pin))
		_, err := before.PutAll(sorted(numbers(0, 20)))
		ok(t, err)
		m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "allow", MaxEntries: 64}, bpfmap.WithPin(pin))
		res, err := m.Sync(t.Context(), sorted(numbers(0, 10)))
		ok(t, err)
		same(t, "deleted in the first pass", res.Deleted, 10)
		same(t, "left", all[uint32, uint32](t, m), numbers(0, 10))
	})
}

// elastiflow/mermin#299, cilium/tetragon#542: objects of an earlier version that the new one does not know.
func TestReport_mermin_299(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		claimed, orphan := w.dir+"/flows", w.dir+"/flows_v1"
		open[uint32, uint32](t, w, bpfmap.Spec{Name: "flows", MaxEntries: 4}, bpfmap.WithPin(claimed))
		open[uint32, uint32](t, w, bpfmap.Spec{Name: "flows_v1", MaxEntries: 4}, bpfmap.WithPin(orphan))
		sweep := func(opts ...bpfmap.Option) (found []string) {
			for l, err := range bpfmap.Sweep(w.dir, []string{claimed}, append(opts, bpfmap.WithSystem(w.sys))...) {
				ok(t, err)
				found = append(found, fmt.Sprintf("%s %s %s", strings.TrimPrefix(l.Path, w.dir), l.Kind, l.Why))
			}
			return found
		}
		want := []string{"/flows_v1 map orphan", "/flows_v1-layout map orphan"}
		same(t, "reported", sweep(), want)
		same(t, "reported once more", sweep(bpfmap.WithDelete()), want)
		same(t, "after the sweep", sweep(), []string(nil))
		if _, err := w.sys.OpenPin(orphan, true); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the orphan is still pinned: %v", err)
		}
	})
}

// A frozen map refuses a batch as a whole, and bpf(2) leaves the count as if all had been written.
func TestReport_frozen_batch(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "frozen", MaxEntries: 8})
		ok(t, m.Put(9, 9))
		ok(t, m.Freeze())
		ok(t, m.Freeze())
		r, err := m.PutAll(sorted(numbers(0, 4)))
		if !errors.Is(err, bpfmap.ErrReadOnly) || !errors.Is(err, syscall.EPERM) {
			t.Errorf("written to a frozen map: %v", err)
		}
		same(t, "written and failed", []int{r.Written, len(r.Failures)}, []int{0, 4})
		del, err := m.DeleteAll(slices.Values([]uint32{9}))
		if !errors.Is(err, bpfmap.ErrReadOnly) {
			t.Errorf("deleted from a frozen map: %v", err)
		}
		same(t, "deleted", del.Deleted, 0)
	})
}

// An LRU evicts before it is full. A desired set of its size may or may not be held, a larger one never.
func TestReport_lru_never_converges(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		const room = 10_000
		exact := open[uint32, uint32](t, w, bpfmap.Spec{Name: "exact", Type: ebpf.LRUHash, MaxEntries: room})
		for pass := range 3 {
			res, err := exact.Sync(t.Context(), sorted(numbers(0, room)))
			if err != nil && !errors.Is(err, bpfmap.ErrNotConverging) {
				t.Fatal(err)
			}
			// The kernel evicts 128 at a time, and any of them: what is missing can be more than a pass before, but is never much.
			if pass > 0 && res.Written > room/10 {
				t.Errorf("pass %d writes %d of %d", pass, res.Written, room)
			}
		}
		now := time.Unix(1000, 0)
		m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "lru", Type: ebpf.LRUHash, MaxEntries: room}, bpfmap.WithClock(func() time.Time { return now }))
		var written []int
		var told int
		for pass := range 5 {
			res, err := m.Sync(t.Context(), sorted(numbers(0, room+room/5)))
			if err != nil && !errors.Is(err, bpfmap.ErrNotConverging) {
				t.Fatal(err)
			}
			if err != nil {
				told++
			}
			if pass >= 3 && (res.RequeueAfter <= 0 || res.RequeueAfter > 5*time.Second) {
				t.Errorf("pass %d: try again after %v", pass, res.RequeueAfter)
			}
			written = append(written, res.Written)
		}
		if told < 3 {
			t.Errorf("said %d times in 5 passes that it does not converge, want 3", told)
		}
		if written[1] > room/2 || written[3] != 0 || written[4] != 0 {
			t.Errorf("written in each pass: %v, want it to stop", written)
		}
		now = now.Add(10 * time.Second)
		res, err := m.Sync(t.Context(), sorted(numbers(0, room+room/5)))
		if !errors.Is(err, bpfmap.ErrNotConverging) || res.Written == 0 {
			t.Errorf("after the wait %d are written: %v", res.Written, err)
		}
	})
}

// Host bits of a prefix are stored but not compared: a diff by bytes would see a change for ever.
func TestReport_lpm_host_bits(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		m := openLPM[uint32](t, w, bpfmap.Spec{Name: "routes", MaxEntries: 8}, 32)
		// Somebody else wrote one with host bits.
		ok(t, m.Backend().Update([]byte{24, 0, 0, 0, 10, 0, 2, 7}, []byte{2, 0, 0, 0}, 0))
		want := entries(
			bpfmap.Entry[netip.Prefix, uint32]{Key: netip.MustParsePrefix("10.0.1.99/24"), Value: 1},
			bpfmap.Entry[netip.Prefix, uint32]{Key: netip.MustParsePrefix("10.0.2.0/24"), Value: 2},
		)
		res, err := m.Sync(t.Context(), want)
		ok(t, err)
		same(t, "first pass", []int{res.Added, res.Changed, res.Deleted, res.Unchanged}, []int{1, 0, 0, 1})
		res, err = m.Sync(t.Context(), want)
		ok(t, err)
		same(t, "second pass", []int{res.Written, res.Deleted, res.Unchanged}, []int{0, 0, 2})
		same(t, "entries", slices.Sorted(func(yield func(string) bool) {
			for k := range maps.Keys(all[netip.Prefix, uint32](t, m)) {
				yield(k.String())
			}
		}), []string{"10.0.1.0/24", "10.0.2.0/24"})
	})
}

// cilium/cilium#42511: a pinned LRU that the kernel had rounded up was recreated at every start.
func TestReport_cilium_42511(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		s := bpfmap.Spec{Name: "lru", Type: ebpf.LRUHash, MaxEntries: 101, Flags: 1 << 1}
		m := open[uint32, uint32](t, w, s, bpfmap.WithPin(w.dir+"/lru"))
		ok(t, m.Put(1, 1))
		again := open[uint32, uint32](t, w, s, bpfmap.WithPin(w.dir+"/lru"))
		_, there, err := again.Get(1)
		ok(t, err)
		same(t, "the same map", there, true)
	})
}

// libbpf/libbpf#531: the same for a ring buffer.
func TestReport_libbpf_531(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		var ids []uint32
		for range 2 {
			size := uint32(3 * os.Getpagesize()) // becomes 4 pages
			r, err := bpfmap.OpenRing[uint64](bpfmap.Spec{Name: "events", MaxEntries: size}, bpfmap.WithSystem(w.sys), bpfmap.WithPin(w.dir+"/events"))
			ok(t, err)
			info, err := r.Backend().Info()
			ok(t, err)
			ids = append(ids, info.ID)
			ok(t, r.Close())
		}
		same(t, "the same ring", ids[1], ids[0])
	})
}

// sched-ext/scx#3693, golang/go#14094: bytes that no field has differ between two keys that are equal.
func TestReport_scx_3693(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		type key struct {
			A uint8
			_ [3]uint8
			B uint32
		}
		m := open[key, padded](t, w, bpfmap.Spec{Name: "padding", MaxEntries: 4})
		for _, dirty := range []byte{0x00, 0x55, 0xff} {
			k, v := key{A: 1, B: 2}, padded{3, 4}
			soil(&k, 1, 4, dirty)
			soil(&v, 1, 4, dirty)
			ok(t, m.Put(k, v))
			_, there, err := m.Get(key{A: 1, B: 2})
			ok(t, err)
			if !there {
				t.Errorf("a key with %#x in its padding is another key", dirty)
			}
		}
		same(t, "entries", len(all[key, padded](t, m)), 1)
		raw := make([]byte, 8)
		ok(t, m.Backend().Lookup([]byte{1, 0, 0, 0, 2, 0, 0, 0}, raw))
		same(t, "bytes in the kernel", raw, []byte{3, 0, 0, 0, 4, 0, 0, 0})
		// Garbage that a program left in the value's padding is no difference.
		ok(t, m.Backend().Update([]byte{1, 0, 0, 0, 2, 0, 0, 0}, []byte{3, 9, 9, 9, 4, 0, 0, 0}, 0))
		plan, err := m.Plan(t.Context(), entries(bpfmap.Entry[key, padded]{Key: key{A: 1, B: 2}, Value: padded{3, 4}}))
		ok(t, err)
		same(t, "plan", plan.Empty(), true)
	})
}

// iovisor/gobpf#281, daeuniverse/honk#224: buffers for fewer CPUs than are possible, and lists that zero the rest.
func TestReport_gobpf_281(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		m, err := bpfmap.OpenPerCPU[uint32, [5]uint8](bpfmap.Spec{Name: "cpus", MaxEntries: 4}, bpfmap.WithSystem(w.sys))
		ok(t, err)
		defer m.Close()
		full := slices.Repeat([][5]uint8{{1, 2, 3, 4, 5}}, m.CPUs())
		ok(t, m.Put(1, full))
		if err := m.Put(1, full[1:]); err == nil {
			t.Error("a list that is too short was written")
		}
		got, there, err := m.Get(1, nil)
		ok(t, err)
		same(t, "there", there, true)
		same(t, "values", got, full)
	})
}

// kmesh-net/kmesh#1409, cilium/cilium#2799: a new layout of a pinned map threw the entries away.
func TestReport_kmesh_1409(t *testing.T) {
	type v1 struct {
		Hits uint32
		Name [4]uint8
	}
	type v2 struct {
		Name  [8]uint8
		Hits  uint64
		Limit uint64
	}
	worlds(t, func(t *testing.T, w world) {
		pin := w.dir + "/table"
		old := open[uint32, v1](t, w, bpfmap.Spec{Name: "table", MaxEntries: 4}, bpfmap.WithPin(pin))
		ok(t, old.Put(1, v1{7, [4]uint8{'a'}}))
		ok(t, old.Put(2, v1{8, [4]uint8{'b'}}))
		m := open[uint32, v2](t, w, bpfmap.Spec{Name: "table", MaxEntries: 8}, bpfmap.WithPin(pin),
			bpfmap.WithMigration(func(old bpfmap.Old, k *uint32, v *v2) (bool, error) {
				hits, known := old.Value("hits")
				if !known {
					return false, errors.New("hits is not known")
				}
				v.Limit = 100 * hits
				return true, nil
			}))
		same(t, "entries", all[uint32, v2](t, m), map[uint32]v2{1: {[8]uint8{'a'}, 7, 700}, 2: {[8]uint8{'b'}, 8, 800}})
		// The old handle no longer is what the pin is.
		if _, err := old.Sync(t.Context(), none[uint32, v1]); !errors.Is(err, bpfmap.ErrSplitBrain) {
			t.Errorf("wrote to the map that was replaced: %v", err)
		}
		ok(t, bpfmap.Undo(pin, bpfmap.WithSystem(w.sys)))
		back := open[uint32, v1](t, w, bpfmap.Spec{Name: "table", MaxEntries: 4}, bpfmap.WithPin(pin))
		same(t, "undone", all[uint32, v1](t, back), map[uint32]v1{1: {7, [4]uint8{'a'}}, 2: {8, [4]uint8{'b'}}})
	})
}
