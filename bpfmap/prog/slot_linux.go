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
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// work is one turn of a slot, under its lock.
type work struct {
	*Slot
	lock  int // descriptor of the folder
	seen  seen
	at    *point // nil when nothing is attached
	close []func() error
}

func (w *work) path(parts ...string) string {
	return filepath.Join(append([]string{w.dir}, parts...)...)
}

// does tells the observer what is about to be done.
func (s *Slot) does(step Step, detail string) {
	s.cfg.observe(Event{Slot: s.name, Step: step, Detail: detail})
}

// begin locks the folder and reads it. Without a folder the lock is -1 and there is nothing to read.
func (s *Slot) begin(create bool) (*work, error) {
	w := &work{Slot: s, lock: -1}
	if err := w.hold(create); err != nil || w.lock < 0 {
		return w, err
	}
	if err := w.look(); err != nil {
		return w, errors.Join(err, w.end())
	}
	return w, nil
}

// hold locks the folder.
func (w *work) hold(create bool) error {
	s := w.Slot
	root := filepath.Dir(s.dir)
	if err := mounted(root); err != nil {
		return err
	}
	fd, err := unix.Open(s.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) && create {
		if err = os.Mkdir(s.dir, 0o700); err == nil || errors.Is(err, os.ErrExist) {
			fd, err = unix.Open(s.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		}
	}
	if errors.Is(err, unix.ENOENT) {
		return nil // nothing is there
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", s.dir, err)
	}
	// The lock dies with the process, so no crash leaves one behind.
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder := "another process"
		if j := parseJournal(readlink(w.path(pinState))); j.Holder != "" {
			holder = j.Holder
		}
		unix.Close(fd)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return &ConflictError{Slot: s.name, Holder: holder}
		}
		return fmt.Errorf("lock %s: %w", s.dir, err)
	}
	w.lock = fd
	// Whoever held the lock may have removed the folder, and somebody else may have made a new one.
	var held, named unix.Stat_t
	if err := unix.Fstat(fd, &held); err != nil || unix.Lstat(s.dir, &named) != nil || held.Ino != named.Ino {
		return errors.Join(&ConflictError{Slot: s.name, Holder: "a process that has removed it"}, w.end())
	}
	return nil
}

// end gives everything back; what is pinned stays.
func (w *work) end() error {
	var errs []error
	for _, f := range slices.Backward(w.close) {
		errs = append(errs, f())
	}
	if w.at != nil {
		errs = append(errs, w.at.close())
	}
	if w.lock >= 0 {
		errs = append(errs, unix.Close(w.lock))
	}
	return errors.Join(errs...)
}

// look reads the pins.
func (w *work) look() error {
	w.seen = seen{journal: parseJournal(readlink(w.path(pinState)))}
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		v, ok := parseVersion(entry.Name())
		if !ok {
			continue
		}
		v.program = readlink(w.path(entry.Name(), pinWhich))
		p, err := ebpf.LoadPinnedProgram(w.path(entry.Name(), pinProg), nil)
		if err == nil {
			v.id, err = programID(p)
			err = errors.Join(err, p.Close())
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("open program of %s: %w", v, err)
		}
		w.seen.versions = append(w.seen.versions, v)
	}
	slices.SortFunc(w.seen.versions, func(a, b version) int {
		switch {
		case a.gen < b.gen:
			return -1
		case a.gen > b.gen:
			return 1
		}
		return strings.Compare(a.digest, b.digest)
	})
	if w.at, err = w.open(); err != nil {
		return err
	}
	_, err = w.hook.number()
	w.seen.target = err == nil
	if err != nil && !errors.Is(err, ErrGone) {
		return err
	}
	if w.at == nil {
		return nil
	}
	if w.seen.inForce, err = w.at.current(); err != nil {
		return err
	}
	w.seen.detached, w.seen.moved, err = w.at.lost()
	return err
}

// open opens what is pinned at the hook.
func (w *work) open() (*point, error) {
	l, err := link.LoadPinnedLink(w.path(pinLink), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open link: %w", err)
	}
	at := &point{hook: w.hook, link: l}
	jump, err := ebpf.LoadPinnedMap(w.path(pinJump), nil)
	switch {
	case err == nil:
		at.jump = jump
	case !errors.Is(err, os.ErrNotExist):
		return nil, errors.Join(fmt.Errorf("open trampoline: %w", err), l.Close())
	}
	return at, nil
}

// record writes the journal in one step.
func (w *work) record(j journal, what string) error {
	j.Holder = holder()
	w.does(StepRecord, what)
	if err := os.Remove(w.path(pinFresh)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Symlink(j.encode(), w.path(pinFresh)); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	if err := os.Rename(w.path(pinFresh), w.path(pinState)); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	w.seen.journal = j
	return nil
}

// holder is this process, for those that find the slot locked.
func holder() string {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // the process id alone means nothing after a reboot
	return fmt.Sprintf("process %d (%s) of boot %.8s", os.Getpid(), filepath.Base(os.Args[0]), boot)
}
