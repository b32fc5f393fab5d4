// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/ashlar-go/ashlar/bpfmap"
)

// move takes what one map holds over into another one, under traffic.
type move struct {
	object, pin string // name in the object, and as a pin
	keep        Keep
	from, to    *ebpf.Map

	// Set once the pins are there.
	src, dst, base bpfmap.Backend // base: what of src is in dst already, in the layout of src
	add            *ebpf.Program  // adds src-base to dst, for one key; nil for Merged
	full           int            // keys for which the second pass found no room
}

// equip makes and pins what a move needs, in the folder of the version that is being put together.
func (w *work) equip(m *move) error {
	base, err := w.scratch(m.from, m.to.MaxEntries(), preBase+m.pin)
	if err != nil {
		return err
	}
	if m.keep.how == keepCounters {
		if err := w.adder(m.from, base, m.to, m.keep.words, preForward+m.pin); err != nil {
			return err
		}
		back, err := w.scratch(m.from, m.to.MaxEntries(), preBackBas+m.pin)
		if err != nil {
			return err
		}
		var reverse []Word
		for _, word := range m.keep.words {
			reverse = append(reverse, Word{word.To, word.From})
		}
		if err := w.adder(m.to, back, m.from, reverse, preBack+m.pin); err != nil {
			return err
		}
	}
	old, _ := w.seen.last()
	return w.openMove(m, w.path(old.String(), preMap+m.pin), w.path(pinNext), preForward, preBase)
}

// openMove opens the data of a move by its pins.
func (w *work) openMove(m *move, src, folder, pre, preBase string) (err error) {
	open := func(path string) (b bpfmap.Backend) {
		if err == nil {
			if b, err = bpfmap.Kernel().OpenPin(path, false); err == nil {
				w.close = append(w.close, b.Close)
			}
		}
		return b
	}
	m.src, m.dst, m.base = open(src), open(folder+"/"+preMap+m.pin), open(folder+"/"+preBase+m.pin)
	if err != nil {
		return err
	}
	m.add, err = ebpf.LoadPinnedProgram(folder+"/"+pre+m.pin, nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil // Merged
	}
	if err == nil {
		w.close = append(w.close, m.add.Close)
	}
	return err
}

// resume finds the moves of a swap that was cut off.
func (w *work) resume(from, to version) (moves []move, err error) {
	entries, err := os.ReadDir(w.path(to.String()))
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		name, ok := strings.CutPrefix(entry.Name(), preBase)
		if !ok {
			continue
		}
		m := move{object: name, pin: name}
		if err := w.openMove(&m, w.path(from.String(), preMap+name), w.path(to.String()), preForward, preBase); err != nil {
			return nil, fmt.Errorf("resume map %s: %w", name, err)
		}
		moves = append(moves, m)
	}
	return moves, nil
}

// drop removes what moves needed from a version.
func (w *work) drop(v version, prefixes ...string) error {
	entries, err := os.ReadDir(w.path(v.String()))
	if err != nil {
		return err
	}
	for _, entry := range entries {
		for _, prefix := range prefixes {
			if strings.HasPrefix(entry.Name(), prefix) {
				w.does(StepRetire, entry.Name())
				if err := os.Remove(w.path(v.String(), entry.Name())); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// values are the sizes in which a backend exchanges values.
func valueSize(info bpfmap.Info) (int, error) {
	if !perCPU(info.Type) {
		return int(info.ValueSize), nil
	}
	cpus, err := ebpf.PossibleCPU()
	return (int(info.ValueSize) + 7) &^ 7 * cpus, err
}

func keysIn(b bpfmap.Backend, info bpfmap.Info) (keys [][]byte, err error) {
	var last []byte
	for {
		next := make([]byte, info.KeySize)
		err := b.NextKey(last, next)
		if errors.Is(err, unix.ENOENT) {
			return keys, nil
		}
		if err != nil {
			return nil, err
		}
		keys, last = append(keys, next), next
		// A walk over a map that others delete from may start over; more keys than there are places says so.
		if len(keys) > 2*int(info.MaxEntries) {
			return nil, bpfmap.ErrUnstable
		}
	}
}

func copyAll(ctx context.Context, moves []move, keeps map[string]Keep) error {
	for i := range moves {
		if err := moves[i].pass(ctx, keeps, true); err != nil {
			return fmt.Errorf("%w: copy %s: %w", ErrMap, moves[i].object, err)
		}
	}
	return nil
}

// mergeAll is past the swap, so it does not stop for anybody.
func mergeAll(moves []move, keeps map[string]Keep) error {
	for i := range moves {
		if err := moves[i].pass(context.Background(), keeps, false); err != nil {
			return fmt.Errorf("%w: merge %s: %w", ErrMap, moves[i].object, err)
		}
	}
	return nil
}

// overflow says that a map had no room in the second pass: the program is in force by then, and a swap that could not be
// finished would be worse than counters that the datapath could not have kept either.
func overflow(moves []move) error {
	var errs []error
	for _, m := range moves {
		if m.full > 0 {
			errs = append(errs, fmt.Errorf("%w: %s is full: what %d keys counted last is lost", ErrMap, m.object, m.full))
		}
	}
	return errors.Join(errs...)
}

// pass brings the destination up to date. It can be done again at any time, and after being cut off anywhere.
func (m *move) pass(ctx context.Context, keeps map[string]Keep, first bool) error {
	info, err := m.src.Info()
	if err != nil {
		return err
	}
	keys, err := keysIn(m.src, info)
	if err != nil {
		return err
	}
	if m.add == nil {
		return m.merge(ctx, info, keys, keeps, first)
	}
	if !perCPU(info.Type) {
		return m.addAll(ctx, keys, first)
	}
	return onEachCPU(func() error { return m.addAll(ctx, keys, first) })
}

func (m *move) merge(ctx context.Context, info bpfmap.Info, keys [][]byte, keeps map[string]Keep, first bool) error {
	merge := m.keep.merge
	for name, keep := range keeps { // after a crash only the pin's name is known
		if merge == nil && pinName(name) == m.pin {
			merge = keep.merge
		}
	}
	if merge == nil {
		return errors.New("it needs the function given to Merged: call Sync with the release that has it, or Rollback")
	}
	dst, err := m.dst.Info()
	if err != nil {
		return err
	}
	for _, key := range keys {
		if err := ctx.Err(); err != nil {
			return err
		}
		after, before, now := make([]byte, info.ValueSize), make([]byte, info.ValueSize), make([]byte, dst.ValueSize)
		if err := m.src.Lookup(key, after); errors.Is(err, unix.ENOENT) {
			continue
		} else if err != nil {
			return err
		}
		if first {
			before, now = nil, nil
		} else {
			for b, value := range map[bpfmap.Backend]*[]byte{m.base: &before, m.dst: &now} {
				if err := b.Lookup(key, *value); errors.Is(err, unix.ENOENT) {
					*value = nil
				} else if err != nil {
					return err
				}
			}
			if before != nil && bytes.Equal(before, after) {
				continue
			}
		}
		if value := merge(bytes.Clone(key), before, bytes.Clone(after), now); value != nil {
			if len(value) != int(dst.ValueSize) {
				return fmt.Errorf("key %x: merge returned %d bytes, values have %d", key, len(value), dst.ValueSize)
			}
			err := m.dst.Update(key, value, ebpf.UpdateAny)
			if !first && errors.Is(err, unix.E2BIG) {
				m.full++
				continue
			}
			if err != nil {
				return err
			}
		}
		if err := m.base.Update(key, after, ebpf.UpdateAny); err != nil {
			return err
		}
	}
	return nil
}
