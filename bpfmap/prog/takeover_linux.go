// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// takeover decides for every map of the object whether it is kept, and what has to be moved.
func (w *work) takeover(old version, hasOld bool, p *prepared, r Release) ([]move, map[string]*ebpf.Map, error) {
	for name := range r.Maps {
		if p.spec.Maps[name] == nil {
			return nil, nil, fmt.Errorf("%w: the object has no map %.80q", ErrMap, name)
		}
	}
	if !hasOld {
		return nil, nil, nil
	}
	have, err := w.maps(old)
	if err != nil {
		return nil, nil, err
	}
	var moves []move
	same := map[string]*ebpf.Map{}
	for _, name := range keysOf(p.spec.Maps) {
		spec, m, keep := p.spec.Maps[name], have[pinName(name)], r.Maps[name]
		if keep.how == keepDefault {
			keep = Same()
			if strings.HasPrefix(name, ".") || spec.Type == ebpf.ProgramArray {
				keep = Fresh()
			}
		}
		switch {
		case m == nil || keep.how == keepFresh:
		case keep.how == keepSame:
			rounded(spec, m)
			if err := spec.Compatible(m); err != nil {
				return nil, nil, fmt.Errorf("%w: %s: %w; declare Fresh, Counters or Merged", ErrMap, name, err)
			}
			was, is := readlink(w.path(old.String(), preLayout+pinName(name))), layoutOf(spec)
			if was != "" && is != "" && was != is {
				return nil, nil, fmt.Errorf("%w: %s: layout was %s, is %s; declare Fresh, Counters or Merged", ErrMap, name, was, is)
			}
			same[name] = m
		default:
			mv := move{object: name, pin: pinName(name), keep: keep, from: m}
			if err := mv.check(spec); err != nil {
				return nil, nil, fmt.Errorf("%w: %s: %w", ErrMap, name, err)
			}
			moves = append(moves, mv)
		}
	}
	return moves, same, nil
}

// rounded gives a declaration the size that the kernel makes of it: it rounds the entries of an LRU list for each CPU up,
// and would refuse the very same declaration otherwise. https://github.com/cilium/cilium/issues/42511
func rounded(spec *ebpf.MapSpec, m *ebpf.Map) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil || spec.Flags&unix.BPF_F_NO_COMMON_LRU == 0 || cpus == 0 {
		return
	}
	n := uint32(cpus)
	if up := (spec.MaxEntries + n - 1) / n * n; up == m.MaxEntries() {
		spec.MaxEntries = up
	}
}

func (m *move) check(spec *ebpf.MapSpec) error {
	from := m.from.Type()
	movable := []ebpf.MapType{ebpf.Hash, ebpf.Array, ebpf.LRUHash}
	if m.keep.how == keepCounters {
		movable = append(movable, ebpf.PerCPUHash, ebpf.PerCPUArray, ebpf.LRUCPUHash)
	}
	switch {
	case !slices.Contains(movable, from) || !slices.Contains(movable, spec.Type):
		return fmt.Errorf("a %s cannot be moved to a %s", from, spec.Type)
	case m.from.KeySize() != spec.KeySize || spec.KeySize > 256:
		return fmt.Errorf("keys have %d bytes and had %d; at most 256 can be moved, and only unchanged", spec.KeySize, m.from.KeySize())
	case perCPU(from) != perCPU(spec.Type):
		return errors.New("one is per-CPU and the other one is not")
	case m.keep.how == keepMerged && m.keep.merge == nil:
		return errors.New("Merged without a function")
	case m.keep.how == keepMerged:
		return nil
	}
	if len(m.keep.words) == 0 {
		for at := uint32(0); at+8 <= min(m.from.ValueSize(), spec.ValueSize); at += 8 {
			m.keep.words = append(m.keep.words, Word{at, at})
		}
	}
	if n := len(m.keep.words); n == 0 || n > 64 {
		return fmt.Errorf("%d counters, want 1 to 64", n)
	}
	for _, word := range m.keep.words {
		if word.From%8 != 0 || word.To%8 != 0 || uint64(word.From)+8 > uint64(m.from.ValueSize()) || uint64(word.To)+8 > uint64(spec.ValueSize) {
			return fmt.Errorf("counter %v is not within the values of %d and %d bytes, at multiples of 8", word, m.from.ValueSize(), spec.ValueSize)
		}
	}
	return nil
}

func perCPU(t ebpf.MapType) bool {
	return t == ebpf.PerCPUHash || t == ebpf.PerCPUArray || t == ebpf.LRUCPUHash
}
