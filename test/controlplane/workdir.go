// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// What a run directory is called, and the file in it that its owner holds a lock on. The kernel drops the lock when
// the owner ends, however it ends, so a directory whose lock can be taken belongs to nobody: no pid has to be compared
// with one that may since have been given to another process.
const (
	runPrefix = "ashlar-cp-"
	ownerFile = "owner"
)

// Limits of run directories: a path of a Unix socket has room for 104 bytes on macOS (108 on Linux), of which our own
// part takes less than forty; and one that was only just made may not have its file yet.
const (
	maxTempDir = 64
	tooYoung   = time.Minute
)

// workdir is where one control plane lives.
type workdir struct {
	run  string // sockets; always temporary, always removed
	data string // keys, etcd's data, kubeconfigs
	logs string
	keep bool // data is the user's
	seen bool // logs outlive the control plane
	lock *os.File
}

func newWorkdir(o *options) (*workdir, error) {
	base := os.TempDir()
	if len(base) > maxTempDir {
		base = "/tmp"
	}
	sweep(base)
	run, err := os.MkdirTemp(base, runPrefix)
	if err != nil {
		return nil, fmt.Errorf("make run directory: %w", err)
	}
	w := &workdir{run: run, data: run}
	if err := w.prepare(o); err != nil {
		w.remove()
		return nil, err
	}
	return w, nil
}

func (w *workdir) prepare(o *options) (err error) {
	// The file gets its name when it is locked already, so whoever sees it and can lock it sees an orphan.
	tmp := filepath.Join(w.run, ownerFile+".new")
	if w.lock, err = os.OpenFile(tmp, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return fmt.Errorf("make run directory: %w", err)
	}
	if err := syscall.Flock(int(w.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("lock run directory: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(w.run, ownerFile)); err != nil {
		return fmt.Errorf("lock run directory: %w", err)
	}
	if o.dir != "" {
		if err := os.MkdirAll(o.dir, 0o700); err != nil {
			return fmt.Errorf("make control plane directory: %w", err)
		}
		if entries, err := os.ReadDir(o.dir); err != nil {
			return fmt.Errorf("read control plane directory: %w", err)
		} else if len(entries) > 0 {
			return fmt.Errorf("control plane directory %s is not empty", o.dir)
		}
		w.data, w.keep = o.dir, true
	}
	w.logs, w.seen = o.logDir, o.logDir != "" || w.keep
	if w.logs == "" {
		w.logs = filepath.Join(w.data, "logs")
	}
	if err := os.MkdirAll(w.logs, 0o755); err != nil {
		return fmt.Errorf("make log directory: %w", err)
	}
	for _, name := range append(logNames(), auditLog) {
		if err := os.Remove(filepath.Join(w.logs, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove the log of a former run: %w", err)
		}
	}
	return nil
}

const auditLog = "audit.log"

func logNames() (names []string) {
	for _, c := range Components() {
		names = append(names, c.logName())
	}
	return names
}

// write puts a private file into the data directory and returns its path.
func (w *workdir) write(name string, content []byte) (string, error) {
	path := filepath.Join(w.data, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return "", fmt.Errorf("write %s: %w", name, err)
	}
	return path, nil
}

// remove deletes what is temporary. The lock goes last: nobody else may begin to delete at the same time.
func (w *workdir) remove() error {
	err := os.RemoveAll(w.run)
	if w.lock != nil {
		err = errors.Join(err, w.lock.Close())
	}
	if err != nil {
		return fmt.Errorf("remove run directory: %w", err)
	}
	return nil
}

// sweep removes the run directories of control planes whose owner ended without doing so. It is silent: what cannot be
// removed now, such as another user's, is not ours to complain about.
func sweep(base string) {
	dirs, _ := filepath.Glob(filepath.Join(base, runPrefix+"*")) // the pattern is valid
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() {
			continue
		}
		lock, err := os.OpenFile(filepath.Join(dir, ownerFile), os.O_RDWR, 0)
		if err != nil {
			if errors.Is(err, os.ErrNotExist) && time.Since(info.ModTime()) > tooYoung {
				_ = os.RemoveAll(dir) // the owner died before it was ready to say so
			}
			continue
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(dir)
		}
		lock.Close()
	}
}
