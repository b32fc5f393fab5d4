// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap_test

import (
	"errors"
	"math"
	"syscall"
	"testing"

	"github.com/ashlar-go/ashlar/bpfmap"
	"github.com/ashlar-go/ashlar/bpfmap/bpfmaptest"
)

// Merge that could not read the new map has merged nothing, and says so.
func TestMergeReportsAFailedRead(t *testing.T) {
	kernel := bpfmaptest.New()
	old := open[uint32, narrow](t, world{sys: kernel}, table, bpfmap.WithPin(tablePin))
	for i := range uint32(5) {
		ok(t, old.Put(i, narrow{7}))
	}
	faults := bpfmaptest.Inject(kernel)
	g, err := bpfmap.Migrate[uint32, wide](table, bpfmap.WithSystem(faults), bpfmap.WithPin(tablePin))
	ok(t, err)
	_, err = g.Copy(t.Context())
	ok(t, err)
	faults.Reset()
	faults.Before(func(n int, call string) {
		if call == "Lookup" {
			faults.Before(nil)
		}
	})
	for n := 1; n < 12; n++ {
		faults.Reset()
		faults.Fail(n, syscall.EIO)
		_, err := g.Merge(t.Context(), func(_ uint32, o, _ wide, _ bool) (wide, bool) { o.Count++; return o, true })
		if n <= len(faults.Calls()) && !errors.Is(err, syscall.EIO) {
			t.Errorf("call %d (%s) failed, and Merge says %v", n, faults.Calls()[n-1], err)
		}
	}
	ok(t, g.Abort())
}

// Two processes migrate one pin at once. Whoever commits puts its own map there, and that map is complete.
func TestMigrationBesideAnother(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		pin := w.dir + "/table"
		migrate := func() *bpfmap.Migration[uint32, wide] {
			g, err := bpfmap.Migrate[uint32, wide](table, bpfmap.WithSystem(w.sys), bpfmap.WithPin(pin))
			ok(t, err)
			return g
		}
		old, err := bpfmap.Open[uint32, narrow](table, bpfmap.WithSystem(w.sys), bpfmap.WithPin(pin))
		ok(t, err)
		ok(t, old.Put(1, narrow{7}))
		ok(t, old.Close())
		first := migrate()
		_, err = first.Copy(t.Context())
		ok(t, err)
		second := migrate() // takes the name of the unfinished map
		if err := first.Commit(); !errors.Is(err, bpfmap.ErrSplitBrain) {
			t.Errorf("the other one's map is beside the pin, and Commit says %v", err)
		}
		m, err := bpfmap.Open[uint32, narrow](table, bpfmap.WithSystem(w.sys), bpfmap.WithPin(pin))
		ok(t, err)
		same(t, "entries", all[uint32, narrow](t, m), map[uint32]narrow{1: {7}})
		ok(t, m.Close())
		_, err = second.Copy(t.Context())
		ok(t, err)
		ok(t, second.Commit())
		ok(t, second.Map().Put(2, wide{Count: 9}))
		ok(t, second.Map().Close())
		_ = first.Map().Close()

		// And one that began before the other committed must not put the old entries over what was written since.
		again, err := bpfmap.Open[uint32, wide](table, bpfmap.WithSystem(w.sys), bpfmap.WithPin(pin))
		ok(t, err)
		same(t, "entries", all[uint32, wide](t, again), map[uint32]wide{1: {Count: 7}, 2: {Count: 9}})
		ok(t, again.Close())
		for _, p := range pinned(t, w) {
			ok(t, w.sys.Remove(p))
		}
	})
}

// The pin has another map than the one that was copied: what was written there since would be lost.
func TestMigrationOfAMapThatWasReplaced(t *testing.T) {
	k := bpfmaptest.New()
	old := open[uint32, narrow](t, world{sys: k}, table, bpfmap.WithPin(tablePin))
	ok(t, old.Put(1, narrow{7}))
	g, err := bpfmap.Migrate[uint32, wide](table, bpfmap.WithSystem(k), bpfmap.WithPin(tablePin))
	ok(t, err)
	_, err = g.Copy(t.Context())
	ok(t, err)
	ok(t, k.Remove(tablePin))
	now := open[uint32, narrow](t, world{sys: k}, table, bpfmap.WithPin(tablePin))
	ok(t, now.Put(2, narrow{8}))
	if err := g.Commit(); !errors.Is(err, bpfmap.ErrSplitBrain) {
		t.Errorf("commit over a map that was not copied: %v", err)
	}
	last := open[uint32, narrow](t, world{sys: k}, table, bpfmap.WithPin(tablePin))
	same(t, "entries", all[uint32, narrow](t, last), map[uint32]narrow{2: {8}})
	_ = g.Abort()
}

// A commit that fails gives every descriptor back.
func TestFailedCommitLeaksNothing(t *testing.T) {
	for n := 1; ; n++ {
		kernel := bpfmaptest.New()
		old, err := bpfmap.Open[uint32, narrow](table, bpfmap.WithSystem(kernel), bpfmap.WithPin(tablePin))
		ok(t, err)
		ok(t, old.Close())
		faults := bpfmaptest.Inject(kernel)
		faults.Fail(n, syscall.EIO)
		m, err := bpfmap.Open[uint32, wide](table, bpfmap.WithSystem(faults), bpfmap.WithPin(tablePin), bpfmap.WithMigration[uint32, wide](nil))
		if err == nil {
			ok(t, m.Close())
		}
		if len(faults.Calls()) < n {
			break
		}
		if kernel.FDs() != 0 {
			t.Errorf("call %d (%s) failed, and %d descriptors are left open", n, faults.Calls()[n-1], kernel.FDs())
		}
	}
}

// A process that died between the two renames left the layout under the name it had before. It counts all the same,
// before the types are held against it, and that of the map before stays for Undo.
func TestLayoutAfterACutOffCommit(t *testing.T) {
	type swapped struct {
		Count uint64
		Other uint32
	}
	k := bpfmaptest.New(bpfmaptest.WithoutSysAdmin())
	withPin := bpfmap.WithPin(tablePin)
	old, err := bpfmap.Open[uint32, narrow](table, bpfmap.WithSystem(k), withPin)
	ok(t, err)
	ok(t, old.Close())
	faults := bpfmaptest.Inject(k)
	g, err := bpfmap.Migrate[uint32, wide](table, bpfmap.WithSystem(faults), withPin)
	ok(t, err)
	_, err = g.Copy(t.Context())
	ok(t, err)
	faults.Reset()
	renames := 0
	faults.Before(func(n int, call string) {
		if call == "Rename" {
			if renames++; renames == 1 {
				for i := range 20 {
					faults.Fail(1+i, syscall.EIO) // counted from this call on: everything after the rename of the map
				}
			}
		}
	})
	if err := g.Commit(); err == nil {
		t.Fatal("the commit was not cut off")
	}
	if m, err := bpfmap.Open[uint32, swapped](table, bpfmap.WithSystem(k), withPin); err == nil {
		t.Error("a type with other fields was accepted")
		_ = m.Close()
	}
	m, err := bpfmap.Open[uint32, wide](table, bpfmap.WithSystem(k), withPin)
	ok(t, err)
	if s, err := m.Stat(); err != nil || s.Layout != bpfmap.LayoutSidecar {
		t.Errorf("the layout is known from %s, %v", s.Layout, err)
	}
	ok(t, m.Close())
	ok(t, bpfmap.Undo(tablePin, bpfmap.WithSystem(k)))
	back, err := bpfmap.Open[uint32, narrow](table, bpfmap.WithSystem(k), withPin)
	ok(t, err)
	if s, err := back.Stat(); err != nil || s.Layout != bpfmap.LayoutSidecar {
		t.Errorf("after Undo the layout is known from %s, %v", s.Layout, err)
	}
	ok(t, back.Close())
}

// Numbers are widened, in arrays as well, and a real number is not its bits.
func TestMigrationConvertsElements(t *testing.T) {
	type before struct {
		Counts [4]uint32
		Signed [2]int16
		Ratio  float32
		Addr   [16]uint8
	}
	type after struct {
		Counts [4]uint64
		Signed [2]int64
		Ratio  float64
		Addr   [4]uint32
	}
	for name, opts := range map[string][]bpfmaptest.Option{"BTF": nil, "sidecar": {bpfmaptest.WithoutSysAdmin()}} {
		k := bpfmaptest.New(opts...)
		old, err := bpfmap.Open[uint32, before](table, bpfmap.WithSystem(k), bpfmap.WithPin(tablePin))
		ok(t, err)
		ok(t, old.Put(1, before{[4]uint32{1, 2, 3, 4}, [2]int16{-5, 6}, 0.5, [16]uint8{1, 0, 0, 0, 2}}))
		ok(t, old.Close())
		g, err := bpfmap.Migrate[uint32, after](table, bpfmap.WithSystem(k), bpfmap.WithPin(tablePin))
		ok(t, err)
		_, err = g.Copy(t.Context())
		ok(t, err)
		got := all[uint32, after](t, g.Map())
		want := after{[4]uint64{1, 2, 3, 4}, [2]int64{-5, 6}, 0.5, [4]uint32{1, 2}}
		same(t, name, got, map[uint32]after{1: want})
		ok(t, g.Abort())
	}
}

// What has no meaning in the new type is an error, not other numbers.
func TestMigrationRefusesElements(t *testing.T) {
	refused[struct{ X float64 }, struct{ X float32 }](t, "a double that a float cannot hold", struct{ X float64 }{math.Pi})
	refused[struct{ X float32 }, struct{ X uint64 }](t, "a real number as a whole one", struct{ X float32 }{1.5})
	refused[struct{ X [2]uint32 }, struct{ X [2]uint16 }](t, "an element that does not fit", struct{ X [2]uint32 }{[2]uint32{1 << 16, 1}})
	refused[struct{ X [4]uint8 }, struct{ X [8]uint32 }](t, "another number of elements of another size", struct{ X [4]uint8 }{[4]uint8{1, 2, 3, 4}})
}

func refused[From, To any](t *testing.T, what string, v From) {
	t.Helper()
	k := bpfmaptest.New()
	old, err := bpfmap.Open[uint32, From](table, bpfmap.WithSystem(k), bpfmap.WithPin(tablePin))
	ok(t, err)
	ok(t, old.Put(1, v))
	ok(t, old.Close())
	m, err := bpfmap.Open[uint32, To](table, bpfmap.WithSystem(k), bpfmap.WithPin(tablePin), bpfmap.WithMigration[uint32, To](nil))
	if err == nil {
		t.Errorf("%s became %v", what, all[uint32, To](t, m))
		ok(t, m.Close())
	} else if !errors.Is(err, bpfmap.ErrLayout) {
		t.Errorf("%s: %v", what, err)
	}
}
