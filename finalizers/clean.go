// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cleanup is one pass over a terminating object.
type cleanup[T client.Object] struct {
	*Finalizer[T]

	call   *call[T]
	now    time.Time // one time for the whole pass
	res    Result[T]
	stored entry     // what the object says
	called []Outcome // of this pass, by step
	policy metav1.DeletionPropagation
	told   []bool // steps whose loss the observer knows of
}

// clean runs the steps of a terminating object and stores what came out.
//
// Write-ahead: that a step is over is stored before a step that waits for it is called. Otherwise a crash in between
// would call the first one again after the second has taken away what it works on.
func (f *Finalizer[T]) clean(ctx context.Context, k *call[T], obj T) (Result[T], error) {
	c := &cleanup[T]{
		Finalizer: f, call: k, now: f.clock(), res: Result[T]{Object: obj, Phase: Cleaning},
		called: make([]Outcome, len(f.steps)), told: make([]bool, len(f.steps)),
	}
	c.load()
	for {
		wave := f.ready(c.states(), c.called)
		if len(wave) == 0 {
			break
		}
		if slices.ContainsFunc(c.called, Outcome.said) {
			if over, err := c.store(ctx); over || err != nil {
				return c.res, err
			}
			wave = f.ready(c.states(), c.called) // the object may have shown more than we knew
		}
		if err := c.run(ctx, wave); err != nil {
			return c.res, err
		}
	}
	if over, err := c.store(ctx); over || err != nil {
		return c.res, err
	}
	c.res.RequeueAfter = f.again(c.states(), c.called, c.now)
	return c.res, c.retries()
}

func (c *cleanup[T]) states() []StepProgress { return c.res.Progress.Steps }

// load takes over what the object says, and applies what this pass has found out so far.
func (c *cleanup[T]) load() {
	_, stored, unreadable := c.entry(c.res.Object)
	if unreadable != nil {
		c.tell(Event{Kind: EventUnreadable, Object: refOf(c.res.Object), Err: unreadable,
			Message: "the stored progress cannot be used; the cleanup starts over"})
	}
	was := c.states()
	c.stored = stored
	c.res.Progress = Progress{Finalizer: c.name, Steps: c.resume(stored)}
	for i, o := range c.called {
		if o.said() {
			c.states()[i].Attempts = was[i].Attempts
			c.states()[i] = c.steps[i].settle(c.states()[i], o, c.now)
		}
	}
	c.learn()
}

// learn decides which policy the deletion runs under: what the garbage collector's finalizers show, else what a step
// has found out, else what was seen earlier.
func (c *cleanup[T]) learn() {
	c.policy = c.stored.Policy
	for _, o := range c.called {
		if o.policy != "" {
			c.policy = o.policy
		}
	}
	if seen := propagation(c.res.Object.GetFinalizers()); seen != "" {
		c.policy = seen
	}
	c.res.Progress.Policy = c.policy
}

// run calls every step of a wave before any outcome counts.
func (c *cleanup[T]) run(ctx context.Context, wave []int) error {
	for _, i := range wave {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("cleanup step %q: not called: %w", c.steps[i].name, err)
		}
		state := &c.states()[i]
		state.Attempts = c.memory.called(c.res.Object.GetUID(), state.Step)
		c.called[i] = c.do(ctx, i, Deletion[T]{Object: c.res.Object, Policy: c.policy, Since: firstCall(*state, c.now)})
	}
	for _, i := range wave {
		c.states()[i] = c.steps[i].settle(c.states()[i], c.called[i], c.now)
	}
	c.learn()
	return nil
}

// do calls one step. A panic is that step's failure: the other steps and other objects must not suffer from it.
func (c *cleanup[T]) do(ctx context.Context, i int, d Deletion[T]) (o Outcome) {
	defer func() {
		if r := recover(); r != nil {
			o = Retry(&PanicError{Value: r, Stack: debug.Stack()})
		}
	}()
	return c.callbacks[i](ctx, d).normal()
}

// store writes what has changed: the progress, or the removal of the finalizer when every step is over. It reports
// true when there is nothing left to clean up.
func (c *cleanup[T]) store(ctx context.Context) (over bool, err error) {
	c.call.reset()
	for {
		over, what := c.res.Progress.Over(), opProgress
		if over {
			what = opRelease
		}
		ops := c.cleanOps(c.res.Object, c.entryOf(c.res.Progress))
		if ops == nil {
			return false, nil
		}
		c.tellSkipped()
		fresh, wrote, err := c.call.patch(ctx, what, c.res.Object, ops)
		if errors.Is(err, ErrGone) {
			c.memory.released(c.res.Object.GetUID())
			c.res.Phase = Gone
			return true, nil
		}
		if err != nil {
			if unheard(err) {
				c.memory.unsure(c.res.Object.GetUID())
			}
			return false, errors.Join(c.retries(), err)
		}
		c.res.Object = fresh
		if !wrote {
			if c.verb(fresh) != Clean { // another process was faster
				c.memory.released(fresh.GetUID())
				c.res.Phase = Released
				return true, nil
			}
			c.load()
			continue
		}
		c.tellSteps()
		c.stored = c.entryOf(c.res.Progress)
		if !over {
			c.memory.progress(fresh.GetUID(), c.stored)
			return false, nil
		}
		if c.verb(fresh) == Clean {
			continue // the list held our name once more than the one we had read
		}
		c.memory.released(fresh.GetUID())
		c.tell(Event{Kind: EventReleased, Object: refOf(fresh), Message: "the cleanup is over and the finalizer is removed"})
		c.res.Phase = Released
		return true, nil
	}
}

// retries joins the errors of the steps that ask for another try.
func (c *cleanup[T]) retries() error {
	var errs []error
	for _, s := range c.states() {
		if s.State == StateRetrying {
			errs = append(errs, &StepError{Step: s.Step, State: s.State, Err: s.Err})
		}
	}
	return errors.Join(errs...)
}
