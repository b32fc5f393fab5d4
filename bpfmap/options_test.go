// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap_test

import (
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/bpfmap"
	"github.com/ashlar-go/ashlar/bpfmap/bpfmaptest"
)

// TestOptionsRefused gives each constructor what it would not honour: a guard that is dropped in silence does harm.
func TestOptionsRefused(t *testing.T) {
	t.Parallel()
	sys, pin := bpfmap.WithSystem(bpfmaptest.New()), bpfmap.WithPin(tablePin)
	owned, budget := bpfmap.WithOwned(func(uint32) bool { return true }), bpfmap.WithMaxDelete(bpfmap.Budget{Max: 1})
	migration := bpfmap.WithMigration[uint32, uint32](nil)
	open := func(opts ...bpfmap.Option) error { _, err := bpfmap.Open[uint32, uint32](table, opts...); return err }
	wrap := func(opts ...bpfmap.Option) error { _, err := bpfmap.Wrap[uint32, uint32](nil, opts...); return err }
	migrate := func(opts ...bpfmap.Option) error {
		_, err := bpfmap.Migrate[uint32, uint32](table, opts...)
		return err
	}
	nested := func(opts ...bpfmap.Option) error {
		_, err := bpfmap.OpenNested[uint32, uint32, uint32](table, table, opts...)
		return err
	}
	ring := func(opts ...bpfmap.Option) error {
		_, err := bpfmap.OpenRing[uint32](bpfmap.Spec{Name: "ring", MaxEntries: 4096}, opts...)
		return err
	}
	percpu := func(opts ...bpfmap.Option) error {
		_, err := bpfmap.OpenPerCPU[uint32, uint32](table, opts...)
		return err
	}
	undo := func(opts ...bpfmap.Option) error { return bpfmap.Undo(tablePin, opts...) }
	sweep := func(opts ...bpfmap.Option) error {
		for _, err := range bpfmap.Sweep("/sys/fs/bpf", nil, opts...) {
			return err
		}
		return nil
	}
	for name, test := range map[string]struct {
		reason string
		make   func(...bpfmap.Option) error
		opt    bpfmap.Option
		text   string
	}{
		"lost in a map":           {"nobody would read the counter", open, bpfmap.WithLost(nil), "WithLost is no option here"},
		"delete in a map":         {"it is about pins", open, bpfmap.WithDelete(), "WithDelete is no option here"},
		"read-only without a pin": {"a new map cannot be read-only", open, bpfmap.WithReadOnly(), "need WithPin"},
		"migration without a pin": {"nothing is replaced", open, migration, "need WithPin"},
		"pin of a handle":         {"the handle knows where it is pinned", wrap, pin, "WithPin is no option here"},
		"guards of a migration":   {"the copy would not honour them", migrate, owned, "WithOwned is no option here"},
		"migration of sets":       {"an outer map has no entries of its own", nested, migration, "WithMigration is no option here"},
		"fields of sets":          {"a set is compared as a whole", nested, bpfmap.WithIgnore("X"), "WithIgnore is no option here"},
		"audits of sets":          {"they are read at every pass", nested, bpfmap.WithAudit(1), "WithAudit is no option here"},
		"budget of a ring":        {"nothing is deleted from it", ring, budget, "WithMaxDelete is no option here"},
		"fields of counters":      {"values are the programs'", percpu, bpfmap.WithIgnore("X"), "no value of a per-CPU map is compared"},
		"budget of a sweep":       {"it lists, and removes what it is told to", sweep, budget, "WithMaxDelete is no option here"},
		"pin of an undo":          {"the pin is its argument", undo, pin, "WithPin is no option here"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := test.make(sys, test.opt); err == nil || !strings.Contains(err.Error(), test.text) {
				t.Errorf("%s: %v, want %q", test.reason, err, test.text)
			}
		})
	}
}
