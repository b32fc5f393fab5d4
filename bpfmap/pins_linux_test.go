// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/ashlar-go/ashlar/bpfmap"
)

// A pin root may be a link: what lies behind it is swept, and the link stays.
func TestSweepThroughALink(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		if w.fake != nil {
			return // has no links
		}
		ok(t, os.Mkdir(w.dir+"/real", 0o755))
		root := w.dir + "/link"
		ok(t, os.Symlink(w.dir+"/real", root))
		for _, name := range []string{"ours", "orphan"} {
			open[uint32, uint32](t, w, bpfmap.Spec{Name: name, MaxEntries: 4}, bpfmap.WithPin(root+"/"+name))
		}
		var found []string
		for l, err := range bpfmap.Sweep(root, []string{root + "/ours"}, bpfmap.WithSystem(w.sys), bpfmap.WithDelete()) {
			ok(t, err)
			found = append(found, l.Path)
		}
		same(t, "found", found, []string{root + "/orphan", root + "/orphan-layout"})
		_, err := os.Lstat(root)
		ok(t, err)
		_, err = os.Lstat(w.dir + "/real/ours")
		ok(t, err)
	})
}

// cilium/ebpf#821, for the variables of a program: the same sizes in another order were taken.
func TestReport_cilium_ebpf_821_variables(t *testing.T) {
	worlds(t, func(t *testing.T, w world) {
		if w.fake != nil {
			return // Wrap takes a map of the kernel
		}
		number := &btf.Int{Name: "__u32", Size: 4}
		variable := func(name string, at uint32) btf.VarSecinfo {
			return btf.VarSecinfo{Type: &btf.Var{Name: name, Type: number, Linkage: btf.GlobalVar}, Offset: at, Size: 4}
		}
		h, err := ebpf.NewMap(&ebpf.MapSpec{
			Name: ".data", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1, Key: &btf.Void{},
			Value: &btf.Datasec{Name: ".data", Size: 8, Vars: []btf.VarSecinfo{variable("rate", 0), variable("burst", 4)}},
		})
		ok(t, err)
		defer h.Close()
		type right struct{ Rate, Burst uint32 }
		type wrong struct{ Burst, Rate uint32 }
		if _, err := bpfmap.Wrap[uint32, wrong](h); !errors.Is(err, bpfmap.ErrLayout) || !strings.Contains(err.Error(), "Burst") {
			t.Errorf("variables in another order: %v", err)
		}
		m, err := bpfmap.Wrap[uint32, right](h)
		ok(t, err)
		s, err := m.Stat()
		ok(t, err)
		same(t, "layout", s.Layout, bpfmap.LayoutBTF)
	})
}
