// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/ashlar-go/ashlar/bpfmap"
	"github.com/ashlar-go/ashlar/bpfmap/bpfmaptest"
)

type narrow struct{ Count uint16 }
type wide struct {
	Extra uint32
	Count uint64
}

const tablePin = "/sys/fs/bpf/test/table"

var table = bpfmap.Spec{Name: "table", MaxEntries: 32}

// TestMigrationStops makes every call of a migration fail in turn, as if the process had died there: the next start has
// all entries, whichever layout it asks for.
func TestMigrationStops(t *testing.T) {
	t.Parallel()
	n := 1
	for ; ; n++ {
		kernel := bpfmaptest.New()
		old, err := bpfmap.Open[uint32, narrow](table, bpfmap.WithSystem(kernel), bpfmap.WithPin(tablePin))
		ok(t, err)
		for i := range uint32(20) {
			ok(t, old.Put(i, narrow{uint16(i)}))
		}
		ok(t, old.Close())
		faults := bpfmaptest.Inject(kernel)
		for i := range 100 { // it dies: nothing after that call happens either
			faults.Fail(n+i, syscall.EIO)
		}
		_, err = bpfmap.Open[uint32, wide](table, bpfmap.WithSystem(faults), bpfmap.WithPin(tablePin), bpfmap.WithMigration[uint32, wide](nil))
		if len(faults.Calls()) < n {
			ok(t, err)
			break
		}
		if err == nil && !strings.HasPrefix(faults.Calls()[n-1], "Lookup") && faults.Calls()[n-1] != "Types" && faults.Calls()[n-1] != "OpenPin" {
			t.Fatalf("call %d (%s) failed and the migration says nothing", n, faults.Calls()[n-1])
		}
		m, err := bpfmap.Open[uint32, wide](table, bpfmap.WithSystem(kernel), bpfmap.WithPin(tablePin), bpfmap.WithMigration[uint32, wide](nil))
		if err != nil {
			t.Fatalf("call %d failed, then: %v", n, err)
		}
		got := all[uint32, wide](t, m)
		for i := range uint32(20) {
			if got[i].Count != uint64(i) {
				t.Fatalf("call %d failed: entry %d is %+v", n, i, got[i])
			}
		}
		same(t, "entries", len(got), 20)
		ok(t, m.Close())
		if pins, err := kernel.Pins("/sys/fs/bpf/test"); err != nil || slices.ContainsFunc(pins, func(p bpfmap.Pinned) bool { return strings.Contains(p.Path, "-next") }) {
			t.Fatalf("call %d failed: left pinned are %v, %v", n, pins, err)
		}
	}
	if n < 12 {
		t.Errorf("a migration makes %d calls only", n-1)
	}
	t.Logf("%d calls, each failed once", n-1)
}

func TestMigrationRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason string
		opts   []bpfmaptest.Option
		use    bool
		count  uint32
		want   error
		text   string
	}{
		"in use":      {"the program would go on with the old map", nil, true, 1, bpfmap.ErrInUse, "program id [77]"},
		"cannot tell": {"without CAP_SYS_ADMIN nobody can say that it is not used", []bpfmaptest.Option{bpfmaptest.WithoutSysAdmin()}, false, 1, bpfmap.ErrInUse, "CAP_SYS_ADMIN"},
		"too large":   {"a number does not fit the new type", nil, false, 70_000, bpfmap.ErrLayout, "field count is 70000, which does not fit"},
	} {
		t.Run(name, func(t *testing.T) {
			kernel := bpfmaptest.New(test.opts...)
			old, err := bpfmap.Open[uint32, struct{ Count, Other uint32 }](table, bpfmap.WithSystem(kernel), bpfmap.WithPin(tablePin))
			ok(t, err)
			ok(t, old.Put(1, struct{ Count, Other uint32 }{Count: test.count}))
			if test.use {
				ok(t, kernel.Use(old.Backend(), 77))
			}
			before := kernel.FDs()
			_, err = bpfmap.Open[uint32, narrow](table, bpfmap.WithSystem(kernel), bpfmap.WithPin(tablePin), bpfmap.WithMigration[uint32, narrow](nil))
			if !errors.Is(err, test.want) || !strings.Contains(fmt.Sprint(err), test.text) {
				t.Errorf("%s: %v", test.reason, err)
			}
			_, there, err := old.Get(1)
			ok(t, err)
			same(t, "the old map is untouched", there, true)
			pins, err := kernel.Pins("/sys/fs/bpf/test")
			ok(t, err)
			same(t, "pins", len(pins), 2)
			same(t, "descriptors", kernel.FDs(), before)
		})
	}
	_, err := bpfmap.Open[uint32, wide](table, bpfmap.WithSystem(bpfmaptest.New()), bpfmap.WithMigration[uint32, wide](nil))
	if err == nil {
		t.Error("a migration without a pin")
	}
}

// TestSidecar opens a pin where BTF may not be read.
func TestSidecar(t *testing.T) {
	t.Parallel()
	kernel := bpfmaptest.New(bpfmaptest.WithoutSysAdmin())
	m, err := bpfmap.Open[uint32, ab](table, bpfmap.WithSystem(kernel), bpfmap.WithPin(tablePin))
	ok(t, err)
	ok(t, m.Close())
	m, err = bpfmap.Open[uint32, ab](table, bpfmap.WithSystem(kernel), bpfmap.WithPin(tablePin))
	ok(t, err)
	stat, err := m.Stat()
	ok(t, err)
	same(t, "layout", stat.Layout, bpfmap.LayoutSidecar)
	if _, err := bpfmap.Open[uint32, ba](table, bpfmap.WithSystem(kernel), bpfmap.WithPin(tablePin)); !errors.Is(err, bpfmap.ErrIncompatible) {
		t.Errorf("opened with fields in another order: %v", err)
	}
	ok(t, kernel.Remove(tablePin+"-layout"))
	m, err = bpfmap.Open[uint32, ab](table, bpfmap.WithSystem(kernel), bpfmap.WithPin(tablePin))
	ok(t, err)
	stat, err = m.Stat()
	ok(t, err)
	same(t, "layout without a sidecar", stat.Layout, bpfmap.LayoutSizes)
}

// TestMigrateTypes moves entries between types of maps.
func TestMigrateTypes(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		pin := bpfmap.WithPin(w.dir + "/types")
		old := open[uint32, uint32](t, w, bpfmap.Spec{Name: "types", MaxEntries: 8}, pin)
		_, err := old.PutAll(sorted(numbers(0, 8)))
		ok(t, err)
		m := open[uint32, uint64](t, w, bpfmap.Spec{Name: "types", Type: ebpf.LRUHash, MaxEntries: 64}, pin, bpfmap.WithMigration[uint32, uint64](nil))
		same(t, "entries", len(all[uint32, uint64](t, m)), 8)
		_, err = bpfmap.OpenPerCPU[uint32, uint64](bpfmap.Spec{Name: "types", MaxEntries: 64}, bpfmap.WithSystem(w.sys), pin, bpfmap.WithMigration[uint32, []uint64](nil))
		if !errors.Is(err, bpfmap.ErrIncompatible) {
			t.Errorf("a plain map became a per-CPU one: %v", err)
		}
		small := bpfmap.Spec{Name: "types", MaxEntries: 4}
		if _, err := bpfmap.Open[uint32, uint64](small, bpfmap.WithSystem(w.sys), pin, bpfmap.WithMigration[uint32, uint64](nil)); !errors.Is(err, bpfmap.ErrFull) {
			t.Errorf("eight entries moved into room for four: %v", err)
		}
		found := []string{}
		for l, err := range bpfmap.Sweep(w.dir, []string{w.dir + "/types"}, bpfmap.WithSystem(w.sys)) {
			ok(t, err)
			found = append(found, l.Why)
		}
		same(t, "what lies beside the pin", found, []string{"backup of a migration", "backup of a migration"})
	})
}

func TestPinNames(t *testing.T) {
	t.Parallel()
	for _, pin := range []string{"", "relative", "/a/../b", "/sys/fs/bpf/a.b", "/", "/sys/fs/bpf/x-next", "/sys/fs/bpf/x-layout", "/sys//fs"} {
		if _, err := bpfmap.Open[uint32, uint32](table, bpfmap.WithSystem(bpfmaptest.New()), bpfmap.WithPin(pin)); err == nil {
			t.Errorf("%q is a pin", pin)
		}
	}
	kernel := bpfmaptest.New()
	_, err := bpfmap.Open[uint32, uint32](table, bpfmap.WithSystem(kernel), bpfmap.WithPin(tablePin), bpfmap.WithReadOnly())
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("opened a pin that is not there for reading: %v", err)
	}
	_, err = bpfmap.Open[uint32, uint32](table, bpfmap.WithSystem(kernel), bpfmap.WithPin(tablePin))
	ok(t, err)
	m, err := bpfmap.Open[uint32, uint32](table, bpfmap.WithSystem(kernel), bpfmap.WithPin(tablePin), bpfmap.WithReadOnly())
	ok(t, err)
	if err := m.Put(1, 1); !errors.Is(err, bpfmap.ErrReadOnly) {
		t.Errorf("written through a read-only handle: %v", err)
	}
}
