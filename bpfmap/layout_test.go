// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap_test

import (
	"errors"
	"fmt"
	"strings"
	"structs"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/ashlar-go/ashlar/bpfmap"
	"github.com/ashlar-go/ashlar/bpfmap/bpfmaptest"
)

func u(size uint32) btf.Type {
	return &btf.Int{Name: fmt.Sprintf("__u%d", 8*size), Size: size, Encoding: btf.Unsigned}
}

func arrayOf(elem btf.Type, n uint32) btf.Type {
	return &btf.Array{Index: u(4), Type: elem, Nelems: n}
}

func cStruct(size uint32, members ...btf.Member) btf.Type {
	return &btf.Struct{Name: "value", Size: size, Members: members}
}

func at(name string, typ btf.Type, offset uint32) btf.Member {
	return btf.Member{Name: name, Type: typ, Offset: btf.Bits(8 * offset)}
}

// TestLayout holds one Go type against what C may say.
func TestLayout(t *testing.T) {
	t.Parallel()
	type value struct {
		SrcPort uint16
		_       [2]uint8
		Addr    [16]uint8
		HTTP2   uint32 `btf:"h2_count"`
	}
	in6 := cStruct(16, at("in6_u", &btf.Union{Size: 16, Members: []btf.Member{at("addr8", arrayOf(u(1), 16), 0)}}, 0))
	for name, test := range map[string]struct {
		reason string
		c      btf.Type
		want   string
	}{
		"as it is":      {"names without case and underscores, tags, blanks", cStruct(24, at("src_port", u(2), 0), at("addr", arrayOf(u(1), 16), 4), at("h2_count", u(4), 20)), ""},
		"typedefs":      {"typedefs and qualifiers do not matter", &btf.Typedef{Name: "v", Type: &btf.Const{Type: cStruct(24, at("src_port", &btf.Typedef{Name: "u16", Type: u(2)}, 0), at("addr", arrayOf(u(1), 16), 4), at("h2_count", u(4), 20))}}, ""},
		"struct inside": {"bytes in Go may be a struct in C", cStruct(24, at("src_port", u(2), 0), at("addr", in6, 4), at("h2_count", u(4), 20)), ""},
		"blank":         {"a blank field covers what Go does not care for", cStruct(24, at("src_port", u(2), 0), at("flags", u(2), 2), at("addr", in6, 4), at("h2_count", u(4), 20)), ""},
		"bit fields":    {"bits are bytes", cStruct(24, btf.Member{Name: "src_port", Type: u(2), Offset: 0, BitfieldSize: 12}, at("addr", in6, 4), at("h2_count", u(4), 20)), ""},
		"renamed":       {"another name is another field", cStruct(24, at("dst_port", u(2), 0), at("addr", in6, 4), at("h2_count", u(4), 20)), "value field SrcPort: Go has 2 bytes at 0, the map has dst_port (2 bytes at 0)"},
		"moved":         {"the message says where it is", cStruct(24, at("h2_count", u(4), 0), at("addr", in6, 4), at("src_port", u(2), 20)), "and src_port at 20 with 2 bytes"},
		"another size":  {"sizes are compared", cStruct(28, at("src_port", u(2), 0), at("addr", in6, 4), at("h2_count", u(8), 20)), "value: Go has 24 bytes"},
		"unknown to Go": {"a field in a hole of Go would be zeroed", cStruct(24, at("src_port", u(2), 0), at("addr", arrayOf(u(1), 12), 4), at("zone", u(4), 16), at("h2_count", u(4), 20)), "zone"},
	} {
		t.Run(name, func(t *testing.T) {
			kernel := bpfmaptest.New()
			size, err := btf.Sizeof(test.c)
			ok(t, err)
			b, err := kernel.Create(&ebpf.MapSpec{Name: "c", Type: ebpf.Hash, KeySize: 4, ValueSize: uint32(size), MaxEntries: 4, Key: u(4), Value: test.c})
			ok(t, err)
			ok(t, kernel.Pin(b, tablePin))
			_, err = bpfmap.Open[uint32, value](bpfmap.Spec{Name: "c", MaxEntries: 4}, bpfmap.WithSystem(kernel), bpfmap.WithPin(tablePin))
			if test.want == "" {
				ok(t, err)
				return
			}
			if size != 24 { // sizes come first
				if !errors.Is(err, bpfmap.ErrLayout) {
					t.Errorf("%s: %v", test.reason, err)
				}
				return
			}
			if !errors.Is(err, bpfmap.ErrLayout) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s:\n%v\ndoes not say %q", test.reason, err, test.want)
			}
		})
	}
}

// TestOwnBTF reads back from the kernel what was built from Go types.
func TestOwnBTF(t *testing.T) {
	type inner struct{ X, Y int32 }
	type value struct {
		SrcPort uint16
		Pair    [2]inner
		Name    [4]uint8
		HTTPLen uint64
	}
	worlds(t, func(t *testing.T, w world) {
		m := open[uint32, value](t, w, bpfmap.Spec{Name: "btf", MaxEntries: 4})
		stat, err := m.Stat()
		ok(t, err)
		same(t, "layout", stat.Layout, bpfmap.LayoutBTF)
		_, typ, err := w.sys.Types(m.Backend())
		ok(t, err)
		s, isStruct := typ.(*btf.Struct)
		if !isStruct {
			t.Fatalf("the value is %v", typ)
		}
		var fields []string
		for _, f := range s.Members {
			fields = append(fields, fmt.Sprintf("%s@%d", f.Name, f.Offset.Bytes()))
		}
		same(t, "fields", fields, []string{"src_port@0", "pair@4", "name@20", "http_len@24"})
	})
}

// TestGeneratedType takes what bpf2go makes: its structs begin with a mark that has no bytes.
func TestGeneratedType(t *testing.T) {
	t.Parallel()
	type event struct {
		_    structs.HostLayout
		Port uint32
		Hits uint64
	}
	m, err := bpfmap.Open[uint32, event](table, bpfmap.WithSystem(bpfmaptest.New()))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Put(1, event{Port: 80, Hits: 7}); err != nil {
		t.Fatal(err)
	}
	if got, ok, err := m.Get(1); err != nil || !ok || got != (event{Port: 80, Hits: 7}) {
		t.Errorf("%+v, %v, %v", got, ok, err)
	}
}

func TestTypesRefused(t *testing.T) {
	t.Parallel()
	sys := bpfmap.WithSystem(bpfmaptest.New())
	refused := func(err error, field string) {
		t.Helper()
		var layout *bpfmap.LayoutError
		if !errors.As(err, &layout) || !strings.Contains(err.Error(), field) {
			t.Errorf("%v: want a layout error about %q", err, field)
		}
	}
	_, err := bpfmap.Open[struct{ P *int }, uint32](table, sys)
	refused(err, "key field P")
	_, err = bpfmap.Open[uint32, struct{ In struct{ S []byte } }](table, sys)
	refused(err, "value field In.S")
	_, err = bpfmap.Open[uint32, [2]map[int]int](table, sys)
	refused(err, "value field [0]")
	_, err = bpfmap.Open[uint32, struct{}](table, sys)
	refused(err, "which has no bytes")
	_, err = bpfmap.Open[uint32, struct{ F func() }](table, sys)
	refused(err, "value field F")
	_, err = bpfmap.Open[uint64, uint32](bpfmap.Spec{Name: "a", Type: ebpf.Array, MaxEntries: 1}, sys)
	if !errors.Is(err, bpfmap.ErrLayout) {
		t.Errorf("an array with keys of 8 bytes: %v", err)
	}
	for typ, face := range map[ebpf.MapType]string{ebpf.PerCPUHash: "PerCPU", ebpf.LPMTrie: "LPM", ebpf.HashOfMaps: "Nested", ebpf.RingBuf: "Ring", ebpf.Queue: "no keys"} {
		_, err := bpfmap.Open[uint32, uint32](bpfmap.Spec{Name: "x", Type: typ, MaxEntries: 1}, sys)
		if !errors.Is(err, bpfmap.ErrUnsupported) || !strings.Contains(err.Error(), face) {
			t.Errorf("%s as a Map: %v", typ, err)
		}
	}
	for _, s := range []bpfmap.Spec{{Name: "", MaxEntries: 1}, {Name: "sixteen_letters_", MaxEntries: 1}, {Name: "a-b", MaxEntries: 1}, {Name: "none"}} {
		if _, err := bpfmap.Open[uint32, uint32](s, sys); err == nil {
			t.Errorf("%+v is a specification", s)
		}
	}
	_, err = bpfmap.Open[uint32, uint32](table, sys, bpfmap.WithOwned(func(string) bool { return true }))
	if err == nil || !strings.Contains(err.Error(), "WithOwned") {
		t.Errorf("a filter for other keys: %v", err)
	}
}
