// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf"
)

// upgrade loads the release next to what is in force and swaps.
func (w *work) upgrade(ctx context.Context, p *prepared, r Release, res *Result) error {
	old, hasOld := w.seen.last()
	gen := uint64(1)
	if n := len(w.seen.versions); n > 0 {
		gen = w.seen.versions[n-1].gen + 1
	}
	moves, keep, err := w.takeover(old, hasOld, p, r)
	if err != nil {
		return err
	}
	if err := w.record(w.seen.journal, "at work"); err != nil { // for those that find the lock taken
		return err
	}
	w.does(StepLoad, p.digest)
	loaded, err := p.load(keep)
	if err != nil {
		return err
	}
	w.close = append(w.close, loaded.Close)
	res.Verdict, res.Reached = loaded.Verdict, PhaseLoaded
	if len(r.Probes) > 0 {
		w.does(StepProbe, p.digest)
		if err := p.probe(r.Probes); err != nil {
			return err
		}
	}
	res.Reached = PhaseProbed
	started := time.Now()
	next := version{gen: gen, digest: p.digest, program: p.want.Program}
	if next.id, err = programID(loaded.Program); err != nil {
		return err
	}
	undo := func(err error) error {
		err = errors.Join(err, os.RemoveAll(w.path(pinNext)), os.RemoveAll(w.path(next.String())))
		w.seen.versions = slices.DeleteFunc(w.seen.versions, func(v version) bool { return v.gen == gen })
		return err
	}
	if err := w.store(loaded, next, moves); err != nil {
		return undo(err)
	}
	if len(moves) > 0 {
		w.does(StepCopy, p.digest)
		if err := copyAll(ctx, moves, r.Maps); err != nil {
			return undo(err)
		}
	}
	if err := ctx.Err(); err != nil {
		return undo(err)
	}
	if hasOld {
		if err := w.retireBefore(old); err != nil {
			return undo(err)
		}
	}
	w.does(StepPin, next.String())
	if err := os.Rename(w.path(pinNext), w.path(next.String())); err != nil {
		return undo(err)
	}
	w.seen.versions = append(w.seen.versions, next)

	// From here on a crash is finished or undone by what the kernel says is in force.
	before := w.seen.journal
	j := journal{From: old.gen, To: next.gen, Current: old.gen, Since: before.Since, Failed: before.Failed, Reason: before.Reason}
	if err := w.record(j, "swap to "+next.String()); err != nil {
		return undo(err)
	}
	if err := w.replace(old, hasOld, loaded.Program); err != nil {
		return errors.Join(undo(err), w.record(before, "no swap"))
	}
	if now, err := w.at.current(); err != nil || now != next.id { // a library once appended where it should have replaced
		return errors.Join(err, &ConflictError{Slot: w.name, Program: now})
	}
	w.seen.inForce, w.seen.detached, w.seen.moved = next.id, false, false
	res.Changed, res.Reached = true, PhaseActive
	if err := w.settle(old, hasOld, next, moves, r); err != nil {
		return err
	}
	res.Switch = time.Since(started)
	return nil
}

// retireBefore ends the window of the version before the one in force: from now on that is the one to roll back to. Only
// when everything else has gone well, because until then a rollback to the one before may still be wanted.
func (w *work) retireBefore(old version) error {
	for _, v := range slices.Clone(w.seen.versions) {
		if v.gen == old.gen {
			continue
		}
		if err := w.retire(v.String()); err != nil {
			return err
		}
	}
	return w.drop(old, preBack, preBackBas)
}

// settle does what is left after a swap forward. It can be done twice.
func (w *work) settle(old version, hasOld bool, next version, moves []move, r Release) error {
	full := error(nil)
	if len(moves) > 0 {
		w.does(StepMerge, next.String())
		if err := quiesce(); err != nil {
			return err
		}
		if err := mergeAll(moves, r.Maps); err != nil {
			return err
		}
		full = overflow(moves)
	}
	if err := w.publish(next); err != nil {
		return err
	}
	now := w.cfg.clock()
	j := journal{Current: next.gen, Since: now}
	if hasOld {
		j.Previous, j.Until = old.gen, now.Add(w.cfg.drain)
	}
	if f := w.seen.journal; f.Failed != next.key() {
		j.Failed, j.Reason = f.Failed, f.Reason
	}
	if err := w.record(j, "in force: "+next.String()); err != nil {
		return err
	}
	return errors.Join(full, w.drop(next, preForward, preBase))
}

// finish goes on after a swap that was cut off. On the way back to the version before, what Merged has not merged is still
// in its map, so the function is not needed.
func (w *work) finish(r Release, back bool) error {
	j := w.seen.journal
	from, hasFrom := w.seen.version(j.From)
	to, _ := w.seen.version(j.To)
	w.does(StepFinish, to.String())
	if hasFrom && to.gen < from.gen {
		return w.settleBack(from, to, j.Reason)
	}
	var moves []move
	if hasFrom {
		var err error
		if moves, err = w.resume(from, to); err != nil {
			return err
		}
		if back {
			moves = slices.DeleteFunc(moves, func(m move) bool { return m.add == nil })
		}
	}
	return w.settle(from, hasFrom, to, moves, r)
}

// replace puts a program in force by the strategy of the slot.
func (w *work) replace(old version, hasOld bool, program *ebpf.Program) error {
	// A trampoline is exact whatever was asked for.
	if w.at != nil && hasOld && (w.cfg.strategy == Exact || w.at.jump != nil) && !w.seen.detached && !w.seen.moved {
		previous, err := w.program(old)
		if err != nil {
			return err
		}
		w.does(StepSwap, w.hook.String())
		err = w.at.swap(previous, program)
		if conflict := (*ConflictError)(nil); errors.As(err, &conflict) {
			conflict.Slot = w.name
		}
		return err
	}
	if w.at != nil && w.cfg.strategy == Gap {
		w.does(StepSwap, "detach "+w.hook.String())
		err := errors.Join(os.Remove(w.path(pinLink)), w.at.detach())
		w.at = nil
		if err == nil {
			err = w.attach(program)
		}
		if err != nil { // the one before is better than none
			previous, perr := w.program(old)
			if perr == nil {
				perr = w.attach(previous)
			}
			return errors.Join(err, perr)
		}
		return nil
	}
	return w.attach(program)
}

// attach makes a link and pins it, over the one that is there.
func (w *work) attach(program *ebpf.Program) error {
	w.does(StepAttach, w.hook.String())
	if w.at != nil && w.at.jump != nil {
		return fmt.Errorf("%w: a trampoline cannot lose its target", ErrUnsupported)
	}
	at, err := w.hook.attach(program, w.cfg.strategy == Exact)
	if err != nil {
		return err
	}
	fail := func(err error) error { return errors.Join(err, at.close()) }
	if at.jump != nil {
		w.does(StepPin, pinJump)
		if err := pin(at.jump, w.path(pinJump)); err != nil {
			return fail(err)
		}
	}
	if w.at == nil {
		w.does(StepPin, pinLink)
		if err := at.link.Pin(w.path(pinLink)); err != nil {
			return fail(err)
		}
		w.at = at
		return nil
	}
	w.does(StepPin, pinRelink)
	if err := at.link.Pin(w.path(pinRelink)); err != nil {
		return fail(err)
	}
	w.does(StepSwap, pinLink)
	if err := os.Rename(w.path(pinRelink), w.path(pinLink)); err != nil {
		return fail(errors.Join(err, os.Remove(w.path(pinRelink))))
	}
	dead := w.at
	w.at = at
	return dead.detach() // the rename alone would leave it attached until the kernel gets round to it
}

// reattach puts the program in force again where its target has come back, or its link is gone.
func (w *work) reattach() error {
	last, _ := w.seen.last()
	p, err := w.program(last)
	if err != nil {
		return err
	}
	if err := w.attach(p); err != nil {
		return err
	}
	w.seen.inForce, w.seen.detached, w.seen.moved = last.id, false, false
	return nil
}
