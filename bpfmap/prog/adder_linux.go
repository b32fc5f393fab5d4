// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/ashlar-go/ashlar/bpfmap"
)

// scratch is an empty map for the values of another one, pinned in the version that is being put together. It forgets
// nothing: what is missing from it would be added once more. So it is no LRU, and a table has room for other keys in the
// second pass than in the first one, up to others of them.
func (w *work) scratch(like *ebpf.Map, others uint32, name string) (*ebpf.Map, error) {
	info, err := like.Info()
	if err != nil {
		return nil, err
	}
	spec := &ebpf.MapSpec{
		Name: "ashlar_base", Type: info.Type, KeySize: info.KeySize, ValueSize: info.ValueSize, MaxEntries: info.MaxEntries,
	}
	switch info.Type {
	case ebpf.Hash, ebpf.LRUHash:
		spec.Type = ebpf.Hash
	case ebpf.PerCPUHash, ebpf.LRUCPUHash:
		spec.Type = ebpf.PerCPUHash
	default: // arrays have all of their keys from the beginning
		others = 0
	}
	if others > 0 {
		spec.Flags = unix.BPF_F_NO_PREALLOC
		spec.MaxEntries = uint32(min(uint64(info.MaxEntries)+uint64(max(info.MaxEntries, others)), math.MaxUint32))
	}
	m, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, err
	}
	w.close = append(w.close, m.Close)
	w.does(StepPin, name)
	return m, m.Pin(w.path(pinNext, name))
}

// adder is a program that brings one key up to date: dst += src - base; base = src, for each word, at once as far as any
// system call can see. The base has the layout of the old map, whichever direction that is: its offset is the other one's.
func (w *work) adder(src, base, dst *ebpf.Map, words []Word, name string) error {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "ashlar_add", Type: ebpf.SchedCLS, License: "GPL", Instructions: addition(src, base, dst, words, strings.HasPrefix(name, preBack)),
	})
	if err != nil {
		return err
	}
	w.close = append(w.close, p.Close)
	w.does(StepPin, name)
	return p.Pin(w.path(pinNext, name))
}

const (
	keyAt   = 64 // where the key is in the packet: beyond what the kernel looks at as headers
	added   = 0
	noDst   = 1
	noBase  = 2
	noSrc   = 3
	noBytes = 4
)

func addition(src, base, dst *ebpf.Map, words []Word, back bool) asm.Instructions {
	size := src.KeySize()
	stack := -int32((size + 7) &^ 7)
	find := func(m *ebpf.Map, to asm.Register, missing int32) asm.Instructions {
		return asm.Instructions{
			asm.LoadMapPtr(asm.R1, m.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, stack),
			asm.FnMapLookupElem.Call(),
			asm.Mov.Reg(to, asm.R0),
			asm.Mov.Imm(asm.R0, missing),
			asm.JEq.Imm(to, 0, "out"),
		}
	}
	out := asm.Instructions{
		asm.Mov.Imm(asm.R2, keyAt), // R1 is the packet already
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, stack),
		asm.Mov.Imm(asm.R4, int32(size)),
		asm.FnSkbLoadBytes.Call(),
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.Mov.Imm(asm.R0, noBytes),
		asm.JNE.Imm(asm.R1, 0, "out"),
	}
	out = append(out, find(src, asm.R7, noSrc)...)
	out = append(out, find(base, asm.R8, noBase)...)
	out = append(out, find(dst, asm.R9, noDst)...)
	for _, word := range words {
		from, to, known := int16(word.From), int16(word.To), int16(word.From)
		if back {
			known = to
		}
		out = append(out,
			asm.LoadMem(asm.R1, asm.R7, from, asm.DWord),
			asm.LoadMem(asm.R2, asm.R8, known, asm.DWord),
			asm.StoreMem(asm.R8, known, asm.R1, asm.DWord),
			asm.Sub.Reg(asm.R1, asm.R2),
			asm.AddAtomic.Mem(asm.R9, asm.R1, asm.DWord, to),
		)
	}
	return append(out, asm.Mov.Imm(asm.R0, added), asm.Return().WithSymbol("out"))
}

func (m *move) addAll(ctx context.Context, keys [][]byte, first bool) error {
	if len(keys) == 0 {
		return nil
	}
	m.full = 0 // for each CPU they are the same
	packet := make([]byte, keyAt+len(keys[0]))
	for i, key := range keys {
		if i%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		copy(packet[keyAt:], key)
		for try := 0; ; try++ {
			got, err := m.add.Run(&ebpf.RunOptions{Data: packet})
			if err != nil {
				return err
			}
			if got == added || got == noSrc {
				break
			}
			missing := m.dst
			if got == noBase {
				missing = m.base
			} else if got != noDst {
				return fmt.Errorf("key %x: the addition answers %d", key, got)
			}
			if try > 4 {
				return fmt.Errorf("key %x: it is taken away again and again", key)
			}
			err = createZero(missing, key)
			if got == noDst && !first && errors.Is(err, unix.E2BIG) {
				m.full++
				break
			}
			if err != nil {
				return fmt.Errorf("key %x: %w", key, err)
			}
		}
	}
	return nil
}

func createZero(b bpfmap.Backend, key []byte) error {
	info, err := b.Info()
	if err != nil {
		return err
	}
	size, err := valueSize(info)
	if err != nil {
		return err
	}
	if err = b.Update(key, make([]byte, size), ebpf.UpdateNoExist); errors.Is(err, unix.EEXIST) {
		return nil // the datapath was first
	}
	return err
}
