// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/ashlar-go/ashlar/bpfmap"
)

var errSplit = bpfmap.ErrSplitBrain

// recheck is how often a slot that waits for its target or its health is looked at.
const recheck = 5 * time.Second

// plan takes no lock: whoever is at work must not be told that somebody who only looks is.
func (s *Slot) plan(r Release) (Plan, error) {
	if err := mounted(filepath.Dir(s.dir)); err != nil {
		return Plan{}, err
	}
	w := &work{Slot: s, lock: -1}
	err := w.look()
	if errors.Is(err, os.ErrNotExist) {
		_, err = s.hook.number()
		if w.seen = (seen{target: err == nil}); errors.Is(err, ErrGone) {
			err = nil
		}
	}
	want := ""
	if r.Object != nil {
		want = key(digestOf(r.Object), r.Program)
	}
	return decide(w.seen, want, r.Again, s.cfg.clock()), errors.Join(err, w.end())
}

// sync is one pass: look, decide, do.
func (s *Slot) sync(ctx context.Context, p *prepared, r Release) (res Result, err error) {
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	s.does(StepLock, s.dir)
	w, err := s.begin(p != nil)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, w.end()) }()
	if w.lock < 0 {
		return Result{Phase: PhaseEmpty}, nil
	}
	if err := w.clockSetBack(); err != nil {
		return Result{}, err
	}
	want := ""
	if p != nil {
		want, res.Reached = key(p.digest, p.want.Program), PhaseVerified
	}
	plan := decide(w.seen, want, r.Again, s.cfg.clock())
	res.Plan = plan
	if plan.Verb == Finish {
		if err := w.finish(r, false); err != nil {
			return res, err
		}
		if err := w.clean(plan); err != nil {
			return res, err
		}
		if err := errors.Join(w.at.close(), w.look()); err != nil {
			return res, err
		}
		res.Changed = true
		if plan = decide(w.seen, want, r.Again, s.cfg.clock()); plan.Verb == Finish {
			return res, errors.New("a swap that was finished is still unfinished")
		}
	} else if plan.Verb != Refuse {
		if err := w.clean(plan); err != nil {
			return res, err
		}
	}
	res.Plan = plan
	switch plan.Verb {
	case Refuse:
		res = w.result(res)
		if _, ours := w.seen.current(); w.seen.inForce != 0 && !ours {
			return res, &ConflictError{Slot: s.name, Program: w.seen.inForce}
		}
		return res, fmt.Errorf("%w: %s", ErrFailedBefore, w.seen.journal.Reason)
	case Await:
		res = w.result(res)
		res.Phase, res.RequeueAfter = PhaseWaiting, recheck
		return res, w.vacate()
	case Reattach:
		err = w.reattach()
		res.Changed = true
	case Install, Upgrade:
		err = w.upgrade(ctx, p, r, &res)
	}
	if err != nil {
		return w.result(res), errors.Join(err, w.vacate())
	}
	if p != nil {
		res.Reached = PhaseActive
	}
	return w.healthy(ctx, r, w.result(res))
}

// vacate removes a folder that holds nothing: a first release that was refused leaves no trace.
func (w *work) vacate() error {
	if w.at != nil || len(w.seen.versions) > 0 || w.seen.journal.Failed != "" {
		return nil
	}
	return os.RemoveAll(w.dir)
}

// clockSetBack begins the drain window anew if the clock says that the swap is still to come.
func (w *work) clockSetBack() error {
	j, now := w.seen.journal, w.cfg.clock()
	if !j.Since.After(now) {
		return nil
	}
	if !j.Until.IsZero() {
		j.Until = now.Add(j.Until.Sub(j.Since))
	}
	j.Since = now
	return w.record(j, "the clock was set back")
}

// clean removes what the plan says, and what no plan names: a version that was being put together.
func (w *work) clean(p Plan) error {
	for _, name := range []string{pinNext, pinGone, pinRelink, pinFresh} {
		if _, err := os.Lstat(w.path(name)); err == nil {
			w.does(StepUndo, name)
			if name == pinRelink { // or it would stay attached for as long as the kernel takes to free it
				if l, err := link.LoadPinnedLink(w.path(name), nil); err == nil {
					if err := (&point{hook: w.hook, link: l}).detach(); err != nil {
						return err
					}
				}
			}
			if err := os.RemoveAll(w.path(name)); err != nil {
				return err
			}
		}
	}
	if w.at == nil { // a trampoline or maps without a link
		names := []string{pinJump, pinMaps}
		if _, fallen := w.seen.fallen(); fallen {
			names = names[:1]
		}
		for _, name := range names {
			if _, err := os.Lstat(w.path(name)); err == nil {
				w.does(StepUndo, name)
				if err := os.RemoveAll(w.path(name)); err != nil {
					return err
				}
			}
		}
	}
	for _, name := range p.Remove {
		if err := w.retire(name); err != nil {
			return err
		}
	}
	last, ok := w.seen.last()
	if !ok {
		return nil
	}
	// What a swap that is finished no longer needs, nor a rollback to a version that is gone.
	over := []string{preForward, preBase}
	if _, kept := w.seen.version(w.seen.journal.Previous); !kept {
		over = append(over, preBack, preBackBas)
	}
	return w.drop(last, over...)
}

// result describes the slot as it is now.
func (w *work) result(res Result) Result {
	res.Phase = PhaseEmpty
	if cur, ok := w.seen.current(); ok {
		res.Phase, res.Digest, res.Program = PhaseActive, cur.digest, cur.id
		j := w.seen.journal
		if prev, ok := w.seen.version(j.Previous); ok && j.Current == cur.gen && w.cfg.clock().Before(j.Until) {
			res.Phase, res.Previous = PhaseDraining, prev.digest
			res.RequeueAfter = max(time.Millisecond, j.Until.Sub(w.cfg.clock()))
		}
	}
	return res
}

// healthy asks the health function, rolls back if it must, and drops the version before if its window is no window.
func (w *work) healthy(ctx context.Context, r Release, res Result) (Result, error) {
	cur, ok := w.seen.current()
	if !ok || res.Phase == PhaseWaiting {
		return res, nil
	}
	_, kept := w.seen.version(w.seen.journal.Previous)
	watched := res.Changed || res.Phase == PhaseDraining
	if r.Health != nil && watched {
		w.does(StepHealth, cur.String())
		maps, err := w.maps(cur)
		if err != nil {
			return res, err
		}
		p, err := w.program(cur)
		if err != nil {
			return res, err
		}
		if err := r.Health(ctx, Running{Program: p, Maps: maps, Digest: cur.digest, Since: w.seen.journal.Since}); err != nil {
			err = fmt.Errorf("%w: health: %w", ErrProbe, err)
			if !kept {
				return res, err // the first one: there is nothing that would be better
			}
			back, rerr := w.back(err.Error())
			back.Verdict, back.Plan, back.Reached = res.Verdict, res.Plan, PhaseRolledBack
			return back, errors.Join(err, rerr)
		}
		if res.RequeueAfter > recheck {
			res.RequeueAfter = recheck
		}
	}
	if kept && res.Phase == PhaseActive && w.seen.journal.Current == cur.gen {
		prev, _ := w.seen.version(w.seen.journal.Previous)
		return res, errors.Join(w.retire(prev.String()), w.drop(cur, preBack, preBackBas))
	}
	return res, nil
}

func (s *Slot) remove() error {
	w := &work{Slot: s, lock: -1}
	if err := w.hold(false); err != nil || w.lock < 0 {
		return err
	}
	var err error
	w.at, err = w.open()
	// In this order, so that nobody who finds half of it removed puts the program in force again.
	s.does(StepRetire, pinState)
	err = errors.Join(err, os.RemoveAll(w.path(pinState)))
	s.does(StepRetire, pinLink)
	err = errors.Join(err, os.RemoveAll(w.path(pinLink)))
	if w.at != nil {
		err = errors.Join(err, w.at.detach())
		w.at = nil
	}
	s.does(StepRetire, "everything")
	return errors.Join(err, os.RemoveAll(s.dir), w.end())
}
