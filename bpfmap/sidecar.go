// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
)

// A sidecar is a one-slot array, pinned beside a map, that holds the layout of the map as text. Reading BTF needs
// CAP_SYS_ADMIN; this needs no more than the map itself. It names the map's id, so that one left over from an earlier
// map is not believed.
type sidecar struct {
	id         uint32
	key, value described
}

func sidecarPath(pin string) string { return pin + "-layout" }

func (s sidecar) text() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "ashlar-layout 2 %d\n", s.id)
	for _, part := range []struct {
		name string
		d    described
	}{{"key", s.key}, {"value", s.value}} {
		fmt.Fprintf(&b, "%s %d\n", part.name, part.d.size)
		for _, f := range part.d.leaves {
			kind := "u"
			switch {
			case f.float:
				kind = "f"
			case f.signed:
				kind = "s"
			}
			if f.array {
				kind += strconv.Itoa(f.elem)
			}
			name := f.path
			if plain(name) != f.name { // a btf tag
				name = f.name
			}
			fmt.Fprintf(&b, "%d %d %s %s\n", f.from, f.size, kind, name)
		}
	}
	return b.Bytes()
}

var errSidecar = errors.New("not a layout of this library")

func parseSidecar(text []byte) (s sidecar, err error) {
	lines := strings.Split(strings.TrimRight(string(text), "\x00"), "\n")
	first := strings.Fields(lines[0])
	if len(first) != 3 || first[0] != "ashlar-layout" || first[1] != "2" {
		return s, errSidecar
	}
	id, err := strconv.ParseUint(first[2], 10, 32)
	if err != nil {
		return s, errSidecar
	}
	s.id = uint32(id)
	var at *described
	for _, line := range lines[1:] {
		words := strings.SplitN(line, " ", 4)
		if line == "" {
			continue
		}
		a, err1 := strconv.Atoi(words[0])
		switch {
		case len(words) == 2 && (words[0] == "key" || words[0] == "value"):
			if at = &s.value; words[0] == "key" {
				at = &s.key
			}
			if at.size, err = strconv.Atoi(words[1]); err != nil {
				return s, errSidecar
			}
		case len(words) == 4 && err1 == nil && at != nil:
			size, err := strconv.Atoi(words[1])
			if err != nil || size < 0 || a < 0 || a+size > at.size {
				return s, errSidecar
			}
			f := leaf{path: words[3], name: plain(words[3]), from: a, size: size}
			f.signed, f.float = strings.HasPrefix(words[2], "s"), strings.HasPrefix(words[2], "f")
			if f.array = len(words[2]) > 1; f.array {
				if f.elem, err = strconv.Atoi(words[2][1:]); err != nil || f.elem < 0 || f.elem > 0 && size%f.elem != 0 {
					return s, errSidecar
				}
			}
			at.leaves = append(at.leaves, f)
		default:
			return s, errSidecar
		}
	}
	return s, nil
}

// writeSidecar makes and pins one at path, over one that is there.
func writeSidecar(sys System, path string, s sidecar) error {
	b, err := newSidecar(sys, s)
	if err != nil {
		return err
	}
	return errors.Join(pinSidecar(sys, b, path), b.Close())
}

func newSidecar(sys System, s sidecar) (Backend, error) {
	text := s.text()
	size := stride(len(text) + 1)
	b, err := sys.Create(&ebpf.MapSpec{Name: "ashlar_layout", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(size), MaxEntries: 1})
	if err != nil {
		return nil, err
	}
	value := block(size)
	copy(value, text)
	return closing(b, b, b.Update(block(4), value, ebpf.UpdateAny))
}

func pinSidecar(sys System, b Backend, path string) error {
	if err := gone(sys.Remove(path)); err != nil {
		return err
	}
	return sys.Pin(b, path)
}

func readSidecar(sys System, pin string) (sidecar, error) {
	b, err := sys.OpenPin(sidecarPath(pin), true)
	if err != nil {
		return sidecar{}, err
	}
	info, err := b.Info()
	if err == nil && (info.Type != ebpf.Array || info.KeySize != 4) {
		err = errSidecar
	}
	value := block(int(info.ValueSize))
	if err == nil {
		err = b.Lookup(block(4), value)
	}
	if cerr := b.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return sidecar{}, err
	}
	return parseSidecar(value)
}
