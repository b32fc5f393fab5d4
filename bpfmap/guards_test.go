// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap_test

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/ashlar-go/ashlar/bpfmap"
	"github.com/ashlar-go/ashlar/bpfmap/bpfmaptest"
)

// What this process itself wrote among the keys of others is theirs all the same.
func TestOwnedAfterPut(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		for _, audit := range []time.Duration{0, time.Hour} {
			now := time.Unix(0, 0)
			m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "owned", MaxEntries: 64}, bpfmap.WithAudit(audit),
				bpfmap.WithClock(func() time.Time { return now }), bpfmap.WithOwned(func(k uint32) bool { return k < 100 }))
			_, err := m.Sync(t.Context(), sorted(numbers(0, 3)))
			ok(t, err)
			ok(t, m.Put(200, 1))
			r, err := m.PutAll(maps.All(map[uint32]uint32{201: 1}))
			ok(t, err)
			same(t, "written", r.Written, 1)
			for i := range 3 {
				_, err = m.Sync(t.Context(), sorted(numbers(0, 3)))
				ok(t, err)
				now = now.Add(time.Duration(i) * time.Hour)
			}
			if got := all[uint32, uint32](t, m); got[200] != 1 || got[201] != 1 || len(got) != 5 {
				t.Errorf("audit every %v: left are %v, want 200 and 201 among them", audit, got)
			}
		}
	})
}

// Deletions that the budget refused are due in every pass until they are done, not only in those that read the map.
func TestRefusedBetweenAudits(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "refused", MaxEntries: 64}, bpfmap.WithAudit(time.Hour),
			bpfmap.WithMaxDelete(bpfmap.Budget{Max: 1}))
		for i := range uint32(5) { // somebody else's
			key, value := []byte{byte(i), 0, 0, 9}, make([]byte, 4)
			ok(t, m.Backend().Update(key, value, 0))
		}
		for pass := range 3 {
			res, err := m.Sync(t.Context(), none[uint32, uint32])
			if !errors.Is(err, bpfmap.ErrBudget) || res.Used != 5 {
				t.Errorf("pass %d: %d used, %v, want 5 and %v", pass, res.Used, err, bpfmap.ErrBudget)
			}
		}
	})
}

// What a full LRU has lost is held back, also by a pass for which no audit is due.
func TestHeldBackBetweenAudits(t *testing.T) {
	const room = 10_000
	now := time.Unix(0, 0)
	m := open[uint32, uint32](t, world{sys: bpfmaptest.New()}, bpfmap.Spec{Name: "heldback", Type: ebpf.LRUHash, MaxEntries: room},
		bpfmap.WithAudit(100*time.Millisecond), bpfmap.WithClock(func() time.Time { return now }))
	var err error
	for range 5 { // audits, until one holds back what it finds lost
		_, err = m.Sync(t.Context(), maps.All(numbers(0, room)))
		now = now.Add(200 * time.Millisecond)
	}
	if !errors.Is(err, bpfmap.ErrNotConverging) {
		t.Fatalf("a full LRU converges: %v", err)
	}
	now = now.Add(-200 * time.Millisecond)
	res, err := m.Sync(t.Context(), maps.All(numbers(0, room)))
	if res.Written > 0 || !errors.Is(err, bpfmap.ErrNotConverging) {
		t.Errorf("right after that: %d written, %v", res.Written, err)
	}
}

// A pass that a guard stopped has done nothing, and the next one says so again.
func TestSplitBrainBetweenAudits(t *testing.T) {
	k := bpfmaptest.New()
	m, err := bpfmap.Open[uint32, uint32](table, bpfmap.WithSystem(k), bpfmap.WithPin(tablePin), bpfmap.WithAudit(time.Hour))
	ok(t, err)
	defer m.Close()
	ok(t, m.Backend().Update([]byte{9, 0, 0, 0}, make([]byte, 4), 0))
	ok(t, k.Remove(tablePin))
	for pass := range 3 {
		if _, err := m.Sync(t.Context(), none[uint32, uint32]); !errors.Is(err, bpfmap.ErrSplitBrain) {
			t.Errorf("pass %d: %v", pass, err)
		}
	}
}

// Paths are claimed however they are spelled: what is taken for an orphan is deleted.
func TestSweepClaimsPathsAsSpelled(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		pin := w.dir + "/claimed"
		m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "claimed", MaxEntries: 4}, bpfmap.WithPin(pin))
		_ = m
		for _, claim := range []string{pin + "/", w.dir + "//claimed", w.dir + "/./claimed", w.dir + "/x/../claimed", w.dir + "/"} {
			for l, err := range bpfmap.Sweep(w.dir, []string{claim}, bpfmap.WithSystem(w.sys)) {
				t.Errorf("claimed as %s, and found as %+v, %v", claim, l, err)
			}
		}
		var errs []error
		for l, err := range bpfmap.Sweep(w.dir, []string{"claimed"}, bpfmap.WithSystem(w.sys), bpfmap.WithDelete()) {
			if errs = append(errs, err); err == nil {
				t.Errorf("a relative claim, and %s is gone", l.Path)
			}
		}
		same(t, "errors", len(errs), 1)
		same(t, "left", len(pinned(t, w)), 2)
		ok(t, w.sys.Remove(pin))
		ok(t, w.sys.Remove(pin+"-layout"))
	})
}

func pinned(t *testing.T, w world) (out []string) {
	t.Helper()
	pins, err := w.sys.Pins(w.dir)
	ok(t, err)
	for _, p := range pins {
		out = append(out, p.Path)
	}
	return out
}

// The kernel keeps the host bits of whoever wrote last. A prefix that changes them between two readings of a trie is one
// prefix still.
func TestLPMHostBitsChangeDuringAWalk(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		faults := bpfmaptest.Inject(w.sys)
		m, err := bpfmap.OpenLPM[uint32](bpfmap.Spec{Name: "lpm", MaxEntries: 8}, 32, bpfmap.WithSystem(faults))
		ok(t, err)
		defer m.Close()
		prefix := netip.MustParsePrefix("10.0.1.0/24")
		ok(t, m.Put(prefix, 1))
		reads := 0
		faults.Before(func(_ int, call string) {
			if call != "LookupBatch" {
				return
			}
			if reads++; reads%2 == 0 { // a program, or somebody who does not mask
				key := []byte{24, 0, 0, 0, 10, 0, 1, byte(reads)}
				if err := m.Backend().Update(key, []byte{1, 0, 0, 0}, 0); err != nil {
					t.Error(err)
				}
			}
		})
		same(t, "entries", all[netip.Prefix, uint32](t, m), map[netip.Prefix]uint32{prefix: 1})
		p, err := m.Plan(t.Context(), none[netip.Prefix, uint32])
		ok(t, err)
		same(t, "used and to delete", []int{p.Used, len(p.Delete)}, []int{1, 1})
	})
}

// A key that was gone before it could be deleted is not in the map any more.
func TestUsedAfterMissing(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		faults := bpfmaptest.Inject(w.sys)
		m := open[uint32, uint32](t, world{sys: faults}, bpfmap.Spec{Name: "used", MaxEntries: 64})
		_, err := m.PutAll(maps.All(numbers(0, 10)))
		ok(t, err)
		faults.Before(func(_ int, call string) {
			if call == "DeleteBatch" {
				faults.Before(nil)
				_ = m.Backend().Delete([]byte{9, 0, 0, 0})
			}
		})
		res, err := m.Sync(t.Context(), sorted(numbers(0, 5)))
		ok(t, err)
		same(t, "deleted, missing, used", []int{res.Deleted, res.Missing, res.Used}, []int{4, 1, 5})
	})
}

// Deletions that are refused make no room.
func TestOverflowWhenRefused(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "overflow", MaxEntries: 4}, bpfmap.WithMaxDelete(bpfmap.Budget{Max: 1}))
		_, err := m.PutAll(maps.All(numbers(0, 4)))
		ok(t, err)
		p, err := m.Plan(t.Context(), sorted(numbers(10, 2)))
		ok(t, err)
		if p.Refused == nil {
			t.Fatal("the plan is not refused")
		}
		r, err := m.Apply(t.Context(), p)
		if !errors.Is(err, bpfmap.ErrBudget) {
			t.Error(err)
		}
		same(t, "overflow", p.Overflow, len(r.Failures))
	})
}

// A System may say more than the errno, as long as errors.Is finds it.
func TestWrappedErrno(t *testing.T) {
	faults := bpfmaptest.Inject(bpfmaptest.New())
	m := open[uint32, uint32](t, world{sys: faults}, table)
	faults.Fail(1, fmt.Errorf("bpf: %w", syscall.ENOENT))
	if _, there, err := m.Get(1); there || err != nil {
		t.Errorf("get of nothing: %v, %v", there, err)
	}
}

// BPF_F_RDONLY is about the descriptor, and the kernel does not keep it: the same specification opens the map again, and
// what refuses a write is said by its name.
func TestReadOnlyForSystemCalls(t *testing.T) {
	const readOnly = 1 << 3
	worlds(t, func(t *testing.T, w world) {
		spec, pin := bpfmap.Spec{Name: "rdonly", MaxEntries: 4, Flags: readOnly}, w.dir+"/rdonly"
		for i := range 2 {
			m, err := bpfmap.Open[uint32, uint32](spec, bpfmap.WithSystem(w.sys), bpfmap.WithPin(pin))
			if err != nil {
				t.Fatalf("open %d: %v", i+1, err)
			}
			if err := m.Put(1, 1); !errors.Is(err, bpfmap.ErrReadOnly) {
				t.Errorf("open %d: put: %v, want %v", i+1, err, bpfmap.ErrReadOnly)
			}
			if _, there, err := m.Get(1); there || err != nil {
				t.Errorf("open %d: get: %v, %v", i+1, there, err)
			}
			ok(t, m.Close())
		}
		ok(t, w.sys.Remove(pin))
		ok(t, w.sys.Remove(pin+"-layout"))
	})
}

// Two processes find no pin and both make a map. The one that comes second must not leave its layout beside the map of
// the first.
func TestLayoutOfTheMapThatIsPinned(t *testing.T) {
	calls := 0
	for step := 1; ; step++ {
		k := bpfmaptest.New(bpfmaptest.WithoutSysAdmin())
		faults := bpfmaptest.Inject(k)
		var first *bpfmap.Map[uint32, uint32]
		faults.Before(func(n int, _ string) {
			if calls = n; n == step {
				var err error
				first, err = bpfmap.Open[uint32, uint32](table, bpfmap.WithSystem(k), bpfmap.WithPin(tablePin))
				ok(t, err)
			}
		})
		second, err := bpfmap.Open[uint32, uint32](table, bpfmap.WithSystem(faults), bpfmap.WithPin(tablePin))
		if err != nil {
			t.Fatalf("the other one opened before call %d: %v", step, err)
		}
		ok(t, second.Close())
		if first == nil {
			break
		}
		ok(t, first.Close())
		third, err := bpfmap.Open[uint32, uint32](table, bpfmap.WithSystem(k), bpfmap.WithPin(tablePin))
		ok(t, err)
		if s, err := third.Stat(); err != nil || s.Layout != bpfmap.LayoutSidecar {
			t.Errorf("the other one opened before call %d (%s): the layout is known from %s, %v", step, faults.Calls()[step-1], s.Layout, err)
		}
		ok(t, third.Close())
		same(t, "descriptors", k.FDs(), 0)
	}
	if calls < 4 {
		t.Errorf("opening makes %d calls only", calls)
	}
}

// One map in 16 goroutines, and closed under their hands: every answer is an answer, and nothing races.
func TestSixteenGoroutines(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "sixteen", MaxEntries: 512}, bpfmap.WithAudit(time.Hour))
		var all sync.WaitGroup
		try := func(do func(i uint32) error) {
			all.Go(func() {
				for i := range uint32(200) {
					if err := do(i); err != nil && !errors.Is(err, syscall.EBADF) {
						t.Error(err)
						return
					}
				}
			})
		}
		for range 2 {
			try(func(i uint32) error { return m.Put(i, i) })
			try(func(i uint32) error { _, _, err := m.Get(i); return err })
			try(func(i uint32) error { _, err := m.Delete(i); return err })
			try(func(i uint32) error { _, err := m.PutAll(maps.All(numbers(int(i), 5))); return err })
			try(func(i uint32) error { _, err := m.Sync(t.Context(), sorted(numbers(0, 20))); return err })
			try(func(i uint32) error {
				for _, err := range m.All(t.Context()) {
					return err
				}
				return nil
			})
			try(func(i uint32) error { _, err := m.Stat(); return err })
			try(func(i uint32) error { _, err := m.Backend().Info(); return err })
		}
		time.Sleep(20 * time.Millisecond)
		ok(t, m.Close())
		all.Wait()
	})
}

// A predicate, program or counter that is nil by mistake would switch the guard off.
func TestNilOptionsRefused(t *testing.T) {
	k := bpfmap.WithSystem(bpfmaptest.New())
	for name, make := range map[string]func() error{
		"WithOwned": func() error {
			_, err := bpfmap.Open[uint32, uint32](table, k, bpfmap.WithOwned[uint32](nil))
			return err
		},
		"WithProgram": func() error {
			_, err := bpfmap.Open[uint32, uint32](table, k, bpfmap.WithProgram(nil))
			return err
		},
		"WithLost": func() error {
			_, err := bpfmap.OpenRing[uint32](ringSpec, k, bpfmap.WithLost(nil))
			return err
		},
	} {
		if err := make(); err == nil {
			t.Errorf("%s(nil) was accepted", name)
		}
	}
}

// single is a sequence that can be ranged over once, as one that reads a file or a channel.
func single[V any](m map[uint32]V) iter.Seq2[uint32, V] {
	spent := false
	return func(yield func(uint32, V) bool) {
		if spent {
			return
		}
		spent = true
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}

// Each inner set is read once: a second look at a sequence may find nothing, and an empty set would take its place.
func TestNestedSyncReadsASequenceOnce(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		n := nested(t, w, 4)
		for _, count := range []int{3, 4} {
			_, err := n.Sync(t.Context(), one(7, single(numbers(0, count))))
			ok(t, err)
			in, there, err := n.Inner(7)
			ok(t, err)
			if !there {
				t.Fatal("no inner map")
			}
			same(t, "entries", all[uint32, uint32](t, in), numbers(0, count))
		}
	})
}

// A key that comes twice with different values is an error, as it is in Map.Sync: one of them is wrong, and the map would
// be exchanged at every pass.
func TestNestedSyncRefusesAKeyTwice(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		n := nested(t, w, 4)
		twice := entries(bpfmap.Entry[uint32, uint32]{Key: 1, Value: 1}, bpfmap.Entry[uint32, uint32]{Key: 1, Value: 2})
		_, err := n.Sync(t.Context(), one(7, twice))
		if err == nil {
			t.Error("a key with two values was accepted")
		}
	})
}

// A full outer map that is to hold other sets gives up the old ones first.
func TestNestedSyncInAFullMap(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		n := nested(t, w, 1)
		for k := range uint32(3) {
			r, err := n.Sync(t.Context(), one(k, sorted(numbers(0, 2))))
			if err != nil {
				t.Fatalf("slot %d: %+v, %v", k, r, err)
			}
		}
	})
}

func nested(t *testing.T, w world, room uint32) *bpfmap.Nested[uint32, uint32, uint32] {
	t.Helper()
	n, err := bpfmap.OpenNested[uint32, uint32, uint32](bpfmap.Spec{Name: "outer", MaxEntries: room},
		bpfmap.Spec{Name: "inner", MaxEntries: 16}, bpfmap.WithSystem(w.sys))
	ok(t, err)
	t.Cleanup(func() { _ = n.Close() })
	return n
}

func one(k uint32, set iter.Seq2[uint32, uint32]) iter.Seq2[uint32, iter.Seq2[uint32, uint32]] {
	return func(yield func(uint32, iter.Seq2[uint32, uint32]) bool) { yield(k, set) }
}
