// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
)

// What is left of an object is what is wanted from it.
func TestTrim(t *testing.T) {
	t.Parallel()
	object := func(change func(*ebpf.CollectionSpec)) *ebpf.CollectionSpec {
		spec := &ebpf.CollectionSpec{
			Programs: map[string]*ebpf.ProgramSpec{
				"count": {Name: "count", Type: ebpf.SchedCLS}, "tail": {Name: "tail", Type: ebpf.SchedCLS},
				"debug": {Name: "debug", Type: ebpf.SchedCLS}, "trace": {Name: "trace", Type: ebpf.Kprobe},
			},
			Maps: map[string]*ebpf.MapSpec{
				"flows": {Type: ebpf.Hash, Pinning: ebpf.PinByName},
				"tails": {Type: ebpf.ProgramArray, Contents: []ebpf.MapKV{{Key: uint32(0), Value: "tail"}}},
			},
		}
		if change != nil {
			change(spec)
		}
		return spec
	}
	want := Want{Program: "count", Hook: TCX("eth0", Ingress)}
	spec := object(nil)
	if err := trim(spec, want); err != nil {
		t.Fatal(err)
	}
	if got := keysOf(spec.Programs); len(got) != 2 || got[0] != "count" || got[1] != "tail" {
		t.Errorf("programs %v", got)
	}
	if spec.Maps["flows"].Pinning != ebpf.PinNone {
		t.Error("the object decides where a map is pinned")
	}
	for name, tt := range map[string]struct {
		reason string
		change func(*ebpf.CollectionSpec)
		want   error
	}{
		"another type of tail": {"it would be loaded, and the kernel not jump to it", func(s *ebpf.CollectionSpec) {
			s.Maps["tails"].Contents[0].Value = "trace"
		}, ErrHook},
		"dots":      {"nowhere else than in the folder", func(s *ebpf.CollectionSpec) { s.Maps["../../x"] = &ebpf.MapSpec{} }, ErrName},
		"one pin":   {"one would hide the other", func(s *ebpf.CollectionSpec) { s.Maps[".flows"] = &ebpf.MapSpec{} }, ErrName},
		"other one": {"a program of another type", func(s *ebpf.CollectionSpec) { s.Programs["count"].Type = ebpf.XDP }, ErrHook},
		"none":      {"no such program", func(s *ebpf.CollectionSpec) { delete(s.Programs, "count") }, ErrObject},
	} {
		if err := trim(object(tt.change), want); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v: %s", name, err, tt.want, tt.reason)
		}
	}
}
