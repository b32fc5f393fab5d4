// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/ashlar-go/ashlar/bpfmap"
)

// slots names the folders under a root that are slots, by their names.
func slots(root string) ([]string, error) {
	if err := checkRoot(root); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(root)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, entry := range entries {
		if entry.IsDir() && checkName("slot", entry.Name()) == nil {
			names = append(names, entry.Name())
		}
	}
	return names, err
}

// occupant describes a slot. It takes no lock: a listing must not get in the way of work.
func occupant(root, name string) (o Occupant, id link.ID, isSlot bool, err error) {
	w := &work{Slot: &Slot{name: name, dir: filepath.Join(root, name)}, lock: -1}
	o = Occupant{Slot: name}
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return o, 0, false, err
	}
	state := readlink(w.path(pinState))
	j := parseJournal(state)
	o.Holder = j.Holder
	if w.at, err = w.open(); err != nil {
		return o, 0, false, err
	}
	defer func() { err = errors.Join(err, w.end()) }()
	isSlot = state != "" || w.at != nil
	if w.at != nil {
		inForce, cerr := w.at.current()
		info, ierr := w.at.link.Info()
		if err := errors.Join(cerr, ierr); err != nil {
			return o, 0, true, err
		}
		o.Program, id = inForce, info.ID
		o.Hook, o.Problem = describe(info)
	}
	for _, entry := range entries {
		v, ok := parseVersion(entry.Name())
		if !ok {
			continue
		}
		isSlot = true
		if v.gen == j.Previous {
			o.Previous = v.digest
		}
		p, err := ebpf.LoadPinnedProgram(w.path(entry.Name(), pinProg), nil)
		if err != nil {
			continue // it is being put together or taken apart
		}
		info, err := p.Info()
		err = errors.Join(err, p.Close())
		if err != nil {
			return o, id, true, err
		}
		if pid, _ := info.ID(); o.Program != 0 && pid == o.Program {
			o.Digest, o.Name = v.digest, info.Name
			maps, err := w.maps(v)
			if err != nil {
				return o, id, true, err
			}
			o.Maps = keysOf(maps)
		}
	}
	switch {
	case o.Problem != "":
	case w.at == nil && isSlot:
		o.Problem = "nothing is attached"
	case o.Program != 0 && o.Digest == "":
		o.Problem = "another program is in force"
	}
	return o, id, isSlot, nil
}

// describe says where a link is, and what is wrong with it.
func describe(info *link.Info) (hook, problem string) {
	kind := fmt.Sprintf("link of type %d", info.Type)
	index, where := uint64(1), ""
	switch {
	case info.TCX() != nil:
		kind, index, where = "tcx/ingress", uint64(info.TCX().Ifindex), "ifindex"
		if ebpf.AttachType(info.TCX().AttachType) == ebpf.AttachTCXEgress {
			kind = "tcx/egress"
		}
	case info.XDP() != nil:
		kind, index, where = "xdp", uint64(info.XDP().Ifindex), "ifindex"
	case info.Cgroup() != nil:
		kind, index, where = "cgroup "+ebpf.AttachType(info.Cgroup().AttachType).String(), info.Cgroup().CgroupId, "id"
	case info.PerfEvent() != nil && info.PerfEvent().Tracepoint() != nil:
		kind = "tracepoint " + info.PerfEvent().Tracepoint().Tracepoint
	case info.PerfEvent() != nil:
		kind = "perf event"
	case info.RawTracepoint() != nil:
		kind = "raw tracepoint " + info.RawTracepoint().Name
	case info.Tracing() != nil:
		kind = "tracing"
	case info.Netfilter() != nil:
		kind = "netfilter"
	}
	if where != "" {
		kind += fmt.Sprintf(" %s %d", where, index)
	}
	if index == 0 {
		problem = "target is gone"
	}
	return kind, problem
}

func inventory(root string, yield func(Occupant, error) bool) {
	names, err := slots(root)
	if err != nil {
		yield(Occupant{}, wrap("list", root, err))
		return
	}
	ours := map[link.ID]bool{}
	for _, name := range names {
		o, id, isSlot, err := occupant(root, name)
		if !isSlot && err == nil {
			continue
		}
		ours[id] = true
		if !yield(o, wrap("list", name, err)) {
			return
		}
	}
	it := new(link.Iterator)
	defer it.Close()
	for it.Next() {
		if ours[it.ID] {
			continue
		}
		info, err := it.Link.Info()
		if err != nil {
			continue // it was closed meanwhile, or is of a type that this kernel does not describe
		}
		o := Occupant{Program: info.Program}
		o.Hook, o.Problem = describe(info)
		if p, err := ebpf.NewProgramFromID(info.Program); err == nil {
			if pi, err := p.Info(); err == nil {
				o.Name = pi.Name
				if uid, ok := pi.CreatedByUID(); ok {
					o.Holder = fmt.Sprintf("user %d", uid)
				}
				ids, _ := pi.MapIDs()
				for _, id := range ids {
					o.Maps = append(o.Maps, mapName(id))
				}
			}
			_ = p.Close()
		}
		if !yield(o, nil) {
			return
		}
	}
	if err := it.Err(); err != nil {
		if errors.Is(err, unix.EPERM) {
			err = &bpfmap.PermissionError{Missing: []string{"CAP_SYS_ADMIN"}, Err: err,
				Advice: "what others have attached can only be listed with CAP_SYS_ADMIN; the slots under the root are complete"}
		}
		yield(Occupant{}, wrap("list", "links", err))
	}
}

func mapName(id ebpf.MapID) string {
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return fmt.Sprintf("#%d", id)
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil || info.Name == "" {
		return fmt.Sprintf("#%d", id)
	}
	return info.Name
}

func sweep(root string, wanted []string, remove bool, yield func(Occupant, error) bool) {
	names, err := slots(root)
	if err != nil {
		yield(Occupant{}, wrap("sweep", root, err))
		return
	}
	for _, name := range names {
		if slices.Contains(wanted, name) {
			continue
		}
		o, _, isSlot, err := occupant(root, name)
		if !isSlot && err == nil {
			continue
		}
		if err == nil && remove {
			s := &Slot{name: name, dir: filepath.Join(root, name), cfg: &config{observe: func(Event) {}}}
			if err = s.remove(); errors.Is(err, ErrConflict) {
				continue
			}
		}
		if !yield(o, wrap("sweep", name, err)) {
			return
		}
	}
}
