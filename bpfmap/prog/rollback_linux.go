// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"context"
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// rollback is back for somebody who asks.
func (s *Slot) rollback(ctx context.Context, reason string) (res Result, err error) {
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	s.does(StepLock, s.dir)
	w, err := s.begin(false)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, w.end()) }()
	if w.lock < 0 {
		return Result{Phase: PhaseEmpty}, ErrNothing
	}
	switch p := decide(w.seen, "", false, s.cfg.clock()); p.Verb {
	case Refuse:
		return w.result(res), &ConflictError{Slot: s.name, Program: w.seen.inForce}
	case Finish:
		if err := w.finish(Release{}, true); err != nil {
			return w.result(res), err
		}
	}
	return w.back(reason)
}

// back puts the version before in force again: one swap, and the counters with it.
func (w *work) back(reason string) (Result, error) {
	cur, _ := w.seen.last()
	prev, ok := w.seen.version(w.seen.journal.Previous)
	if !ok || w.seen.journal.Current != cur.gen {
		return w.result(Result{}), ErrNothing
	}
	p, err := w.program(prev)
	if err != nil {
		return w.result(Result{}), err
	}
	moves, err := w.reverse(cur, prev)
	if err != nil {
		return w.result(Result{}), err
	}
	for i := range moves { // the old map stands still, and all of it is in the new one
		if err := moves[i].rebase(); err != nil {
			return w.result(Result{}), err
		}
	}
	before := w.seen.journal
	j := before
	j.From, j.To, j.Reason = cur.gen, prev.gen, reason
	if err := w.record(j, "back to "+prev.String()); err != nil {
		return w.result(Result{}), err
	}
	if err := w.replace(cur, true, p); err != nil {
		return w.result(Result{}), errors.Join(err, w.record(before, "no swap"))
	}
	w.seen.inForce, w.seen.detached, w.seen.moved = prev.id, false, false
	if err := w.settleBack(cur, prev, reason); err != nil {
		return w.result(Result{}), err
	}
	res := w.result(Result{Changed: true})
	res.Phase = PhaseRolledBack
	return res, nil
}

// settleBack does what is left after a swap back. It can be done twice.
func (w *work) settleBack(from, to version, reason string) error {
	moves, err := w.reverse(from, to)
	if err != nil {
		return err
	}
	full := error(nil)
	if len(moves) > 0 {
		w.does(StepMerge, to.String())
		if err := quiesce(); err != nil {
			return err
		}
		if err := mergeAll(moves, nil); err != nil {
			return err
		}
		full = overflow(moves)
	}
	if err := w.publish(to); err != nil {
		return err
	}
	j := journal{Current: to.gen, Failed: from.key(), Reason: reason, Since: w.cfg.clock()}
	if err := w.record(j, "rolled back to "+to.String()); err != nil {
		return err
	}
	return errors.Join(full, w.retire(from.String()))
}

// reverse finds the moves that bring counters back from a version to the one before.
func (w *work) reverse(from, to version) (moves []move, err error) {
	entries, err := os.ReadDir(w.path(from.String()))
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		name, ok := strings.CutPrefix(entry.Name(), preBack)
		if !ok {
			continue
		}
		m := move{object: name, pin: name}
		if err := w.openMove(&m, w.path(to.String(), preMap+name), w.path(from.String()), preBack, preBackBas); err != nil {
			return nil, err
		}
		m.src, m.dst = m.dst, m.src
		moves = append(moves, m)
	}
	return moves, nil
}

// rebase makes the base what the destination holds.
func (m *move) rebase() error {
	info, err := m.dst.Info()
	if err != nil {
		return err
	}
	size, err := valueSize(info)
	if err != nil {
		return err
	}
	keys, err := keysIn(m.dst, info)
	if err != nil {
		return err
	}
	value := make([]byte, size)
	for _, key := range keys {
		if err := m.dst.Lookup(key, value); errors.Is(err, unix.ENOENT) {
			continue
		} else if err != nil {
			return err
		}
		if err := m.base.Update(key, value, 0); err != nil {
			return err
		}
	}
	return nil
}
