// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/ashlar-go/ashlar/bpfmap"
)

// Slot is one place at a hook that programs follow each other in. Everything about it is in one folder of a bpf file
// system, so any process that may use the folder can go on where another one stopped:
//
//	link             what holds the program at the hook
//	jump             the slot that the stub jumps through, at tracepoints
//	v7-<sha256>/     a version: prog, its name and m-<map>, and what a migration needs
//	maps/<map>       the maps of the version in force, for readers; exchanged by rename
//	state            a symbolic link whose target says what pins cannot
//
// and next, gone, new and link-new while something is under way, or after it was cut off.
//
// Its methods take turns within a process; between processes the folder is locked, and [ErrConflict] names the holder.
type Slot struct {
	name, dir string
	hook      Hook
	cfg       *config
	mu        sync.Mutex
}

// New declares a slot of the given name under root, a folder in a bpf file system, at a hook. It does nothing in the
// kernel.
func New(root, name string, hook Hook, opts ...Option) (*Slot, error) {
	c, err := configure(opts)
	if err == nil {
		err = checkName("slot", name)
	}
	if err == nil {
		err = checkRoot(root)
	}
	if err == nil {
		err = hook.check()
	}
	if err == nil && hook.kind == KindSocketFilter {
		err = fmt.Errorf("%w: a socket filter lives as long as its socket and cannot be pinned: use Attach", ErrHook)
	}
	if err == nil && hook.kind == KindXDP && c.strategy == Overlap {
		err = fmt.Errorf("%w: there is one place for an XDP program, so two cannot overlap", ErrHook)
	}
	if err == nil && c.maps != nil {
		err = errors.New("WithMaps is an option of Load: a slot finds its own maps")
	}
	if err != nil {
		return nil, wrap("declare", name, err)
	}
	return &Slot{name: name, dir: filepath.Join(root, name), hook: hook, cfg: c}, nil
}

func checkRoot(root string) error {
	if !filepath.IsAbs(root) || filepath.Clean(root) != root {
		return fmt.Errorf("%w: root %q must be an absolute, clean path", ErrName, root)
	}
	return nil
}

// Plan says what Sync would do with a release, of which it looks at Object, Program and Again; the zero Release asks what
// [Slot.Recover] would do. It reads the pins, changes nothing and is in nobody's way: while somebody is at work on the
// slot, the answer may be old when it arrives. The object is not verified.
func (s *Slot) Plan(r Release) (Plan, error) {
	p, err := s.plan(r)
	return p, wrap("plan", s.name, err)
}

// Sync puts the release in force if it is not, finishes or undoes what a crash left, attaches again when the target has
// come back, asks the health function and rolls back when it says no, and drops the version before when its drain window
// is over. It is idempotent: call it again after RequeueAfter, and whenever something may have changed.
//
// Errors: those of [Load]; [ErrProbe], after which the program before is in force; [ErrFailedBefore]; [ErrConflict];
// [ErrMap]; [ErrHook] when the slot holds a program at another hook; [ErrBusy]. A target that is not there is no error but
// PhaseWaiting; [ErrGone] is one that goes away in that moment, or a tracepoint that does not exist. Before the swap an
// error changes nothing; ctx is looked at until then. Capabilities: those of Load, CAP_NET_ADMIN for what is attached to interfaces and cgroups, CAP_PERFMON for
// tracepoints, and write access to the folder.
func (s *Slot) Sync(ctx context.Context, r Release) (Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := prepare(r.Object, r.Verify, Want{Program: r.Program, Hook: s.hook}, s.cfg.limits)
	if err != nil {
		return Result{}, wrap("sync", s.name, err)
	}
	res, err := s.sync(ctx, p, r)
	return res, wrap("sync", s.name, err)
}

// Recover is Sync without a release: what a crash left is finished or undone, what is over is dropped, and what is in
// force stays.
func (s *Slot) Recover(ctx context.Context) (Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	res, err := s.sync(ctx, nil, Release{})
	return res, wrap("recover", s.name, err)
}

// Rollback puts the version before in force again, by one swap, and remembers why. [ErrNothing] when there is none any more,
// because a Sync or Recover after the drain window has dropped it. What was counted meanwhile in maps kept by [Counters] is added to the old maps.
func (s *Slot) Rollback(ctx context.Context, reason string) (Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	res, err := s.rollback(ctx, reason)
	return res, wrap("roll back", s.name, err)
}

// Remove detaches the program and removes every pin of the slot.
func (s *Slot) Remove() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return wrap("remove", s.name, s.remove())
}

// Map opens a map of the version in force, by its name in the object. The caller closes it. In the moment between a swap
// and the publication of the maps that came with it the answer is [bpfmap.ErrSplitBrain].
func (s *Slot) Map(name string) (*ebpf.Map, error) {
	if err := checkName("map", pinName(name)); err != nil {
		return nil, wrap("open map", s.name, err)
	}
	m, err := s.openMap(name)
	return m, wrap("open map", s.name, err)
}

// Pin is where a map of the version in force is published, by its name in the object. A map that bpfmap.Open opened by
// this pin refuses to write once a swap has exchanged it: [bpfmap.ErrSplitBrain].
func (s *Slot) Pin(name string) string { return filepath.Join(s.dir, "maps", pinName(name)) }

// Guard refuses a map that is none of the version in force: [bpfmap.ErrSplitBrain]. Whoever writes to a map that was
// opened some time ago, or by its pin, asks first: after a swap it may be the map of the version before. It opens the pins
// of the slot, some twenty system calls, waits for nobody and needs no capability beyond access to them.
func (s *Slot) Guard(m *ebpf.Map) error {
	if m == nil {
		return wrap("guard", s.name, fmt.Errorf("%w: the map is nil", bpfmap.ErrSplitBrain))
	}
	return wrap("guard", s.name, s.guard(m))
}
