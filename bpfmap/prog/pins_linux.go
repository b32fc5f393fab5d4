// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Pins of a slot, relative to its folder.
const (
	pinLink   = "link"
	pinRelink = "link-new" // of a target that came back, until it takes the place of link
	pinJump   = "jump"
	pinNext   = "next" // a version that is being put together
	pinGone   = "gone" // a version that is being taken apart
	pinMaps   = "maps"
	pinState  = "state"
	pinFresh  = "new" // whatever takes another one's place by rename

	// In the folder of a version.
	pinProg    = "prog"
	pinWhich   = "name" // a symbolic link whose target is the name of the program in its object
	preMap     = "m-"
	preLayout  = "l-" // a symbolic link whose target describes the map
	preForward = "f-" // program that adds what the version before counted
	preBase    = "g-" // what it has added already
	preBack    = "r-" // the same in the other direction, for a rollback
	preBackBas = "s-"
)

func readlink(path string) string {
	text, err := os.Readlink(path)
	if err != nil {
		return ""
	}
	return text
}

// mounted says early and clearly that a folder is no place for pins.
func mounted(dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if uint32(fs.Type) != unix.BPF_FS_MAGIC {
		return fmt.Errorf("%s is not in a bpf file system: mount one with mount -t bpf bpf %s: %w", dir, dir, ErrUnsupported)
	}
	return nil
}

type pinner interface {
	Pin(string) error
	Close() error
}

// pin pins a copy of the handle: a handle that is pinned already would be moved.
func pin[P interface {
	Clone() (C, error)
}, C pinner](p P, path string) error {
	c, err := p.Clone()
	if err != nil {
		return err
	}
	return errors.Join(c.Pin(path), c.Close())
}

// retire removes a version: at once as far as anybody can see, because half of one could still be rolled back to.
func (w *work) retire(name string) error {
	w.does(StepRetire, name)
	if err := os.Rename(w.path(name), w.path(pinGone)); err != nil {
		return err
	}
	w.seen.versions = slices.DeleteFunc(w.seen.versions, func(v version) bool { return v.String() == name })
	return os.RemoveAll(w.path(pinGone))
}

// maps opens the maps of a version by their pin names. They are closed at the end of the turn.
func (w *work) maps(v version) (map[string]*ebpf.Map, error) {
	out := map[string]*ebpf.Map{}
	entries, err := os.ReadDir(w.path(v.String()))
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		name, ok := strings.CutPrefix(entry.Name(), preMap)
		if !ok {
			continue
		}
		m, err := ebpf.LoadPinnedMap(w.path(v.String(), entry.Name()), nil)
		if err != nil {
			return nil, fmt.Errorf("open map %s of %s: %w", name, v, err)
		}
		w.close = append(w.close, m.Close)
		out[name] = m
	}
	return out, nil
}

func (w *work) program(v version) (*ebpf.Program, error) {
	p, err := ebpf.LoadPinnedProgram(w.path(v.String(), pinProg), nil)
	if err != nil {
		return nil, fmt.Errorf("open program of %s: %w", v, err)
	}
	w.close = append(w.close, p.Close)
	return p, nil
}

func (s *Slot) openMap(name string) (*ebpf.Map, error) {
	if err := mounted(filepath.Dir(s.dir)); err != nil {
		return nil, err
	}
	m, err := ebpf.LoadPinnedMap(filepath.Join(s.dir, pinMaps, pinName(name)), nil)
	if err != nil {
		return nil, err
	}
	if err := s.guard(m); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (s *Slot) guard(m *ebpf.Map) error {
	id, err := mapID(m)
	if err != nil {
		return err
	}
	w := &work{Slot: s, lock: -1}
	if w.at, err = w.open(); err != nil {
		return err
	}
	defer w.end()
	if w.at == nil {
		return fmt.Errorf("%w: nothing is in force", errSplit)
	}
	inForce, err := w.at.current()
	if err != nil {
		return err
	}
	// The program by its pin, not by its id: that would need CAP_SYS_ADMIN.
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if _, ok := parseVersion(entry.Name()); !ok {
			continue
		}
		p, err := ebpf.LoadPinnedProgram(w.path(entry.Name(), pinProg), nil)
		if err != nil {
			continue
		}
		w.close = append(w.close, p.Close)
		info, err := p.Info()
		if err != nil {
			return err
		}
		if pid, _ := info.ID(); pid != inForce {
			continue
		}
		ids, ok := info.MapIDs()
		if !ok {
			return fmt.Errorf("%w: this kernel does not say which maps a program uses", ErrUnsupported)
		}
		if slices.Contains(ids, id) {
			return nil
		}
		// What only the programs use that it jumps to is the version's, too.
		v, _ := parseVersion(entry.Name())
		maps, err := w.maps(v)
		if err != nil {
			return err
		}
		for _, m := range maps {
			if have, err := mapID(m); err == nil && have == id {
				return nil
			}
		}
		return fmt.Errorf("%w: program %d in force uses maps %v, not map %d", errSplit, inForce, ids, id)
	}
	return fmt.Errorf("%w: program %d is in force, and no version of this slot", errSplit, inForce)
}
