// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
)

// store pins a loaded version.
func (w *work) store(l *Loaded, v version, moves []move) error {
	if err := os.Mkdir(w.path(pinNext), 0o700); err != nil {
		return err
	}
	if err := os.Symlink(v.program, w.path(pinNext, pinWhich)); err != nil {
		return fmt.Errorf("name program: %w", err)
	}
	for _, name := range keysOf(l.Maps) {
		w.does(StepPin, preMap+pinName(name))
		if err := pin(l.Maps[name], w.path(pinNext, preMap+pinName(name))); err != nil {
			return fmt.Errorf("pin map %s: %w", name, err)
		}
		if layout := l.layouts[name]; layout != "" {
			if err := os.Symlink(layout, w.path(pinNext, preLayout+pinName(name))); err != nil {
				return fmt.Errorf("describe map %s: %w", name, err)
			}
		}
	}
	for i := range moves {
		moves[i].to = l.Maps[moves[i].object]
		if err := w.equip(&moves[i]); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrMap, moves[i].object, err)
		}
	}
	w.does(StepPin, pinProg)
	if err := pin(l.Program, w.path(pinNext, pinProg)); err != nil {
		return fmt.Errorf("pin program: %w", err)
	}
	return nil
}

// publish makes the public names those of a version's maps.
func (w *work) publish(v version) error {
	maps, err := w.maps(v)
	if err != nil {
		return err
	}
	if err := os.Mkdir(w.path(pinMaps), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	for _, name := range keysOf(maps) {
		id, err := mapID(maps[name])
		if err != nil {
			return err
		}
		if public, err := ebpf.LoadPinnedMap(w.path(pinMaps, name), nil); err == nil {
			have, ierr := mapID(public)
			if err := errors.Join(ierr, public.Close()); err != nil {
				return err
			}
			if have == id {
				continue
			}
		}
		w.does(StepPublish, name)
		if err := os.RemoveAll(w.path(pinFresh)); err != nil {
			return err
		}
		if err := pin(maps[name], w.path(pinFresh)); err != nil {
			return err
		}
		if err := os.Rename(w.path(pinFresh), w.path(pinMaps, name)); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(w.path(pinMaps))
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if maps[entry.Name()] == nil {
			w.does(StepPublish, "no more "+entry.Name())
			if err := os.Remove(w.path(pinMaps, entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// probe runs golden packets on an instance of the program that has maps of its own, so that what it counts or remembers
// is not counted and remembered for real.
func (p *prepared) probe(probes []Probe) error {
	trial, err := p.load(nil)
	if err != nil {
		return err
	}
	defer trial.Close()
	for i, probe := range probes {
		opts := &ebpf.RunOptions{Data: probe.Data, DataOut: make([]byte, len(probe.Data)+256)}
		got, err := trial.Program.Run(opts)
		name := cmp.Or(probe.Name, fmt.Sprint(i))
		switch {
		case err != nil:
			return fmt.Errorf("%w: probe %s: %w", ErrProbe, name, err)
		case got != probe.Return:
			return fmt.Errorf("%w: probe %s returned %d, want %d", ErrProbe, name, got, probe.Return)
		case probe.Out != nil && !bytes.Equal(opts.DataOut, probe.Out):
			return fmt.Errorf("%w: probe %s left other bytes than wanted", ErrProbe, name)
		}
	}
	return nil
}
