// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Verdict is what a [Handler] says about its type. The zero Verdict says nothing: with an error the type is Unknown with
// reason HandlerFailed, without one it is as if the handler did not exist.
type Verdict struct {
	// Status, Reason and Message are treated as [Pass.Put] treats them.
	Status          metav1.ConditionStatus
	Reason, Message string

	// Stalled marks a bad verdict that retrying cannot change; see [Pass.Stall].
	Stalled bool
}

// Handler judges one condition type of an object. Verdict and error are independent: an error does not void the
// verdict, it is only reported as well. A handler that panics counts as one that returned an error and nothing else.
type Handler[T any] func(ctx context.Context, obj T) (Verdict, error)

// Evaluate is a whole pass: it runs the handlers of h, keyed by type, in topological order and decides. A type that is
// blocked is not judged: its handler is not called.
//
// The error joins, in topological order, a [HandlerError] for every handler that failed, and a [TypeError] for every
// key of h that takes no verdict; the Result is complete all the same. When ctx ends the pass is abandoned: the Result
// holds the live conditions unchanged and the error wraps ctx.Err(). Evaluate returns only after every handler it
// started has returned; a handler that ignores ctx delays it.
func Evaluate[T any](ctx context.Context, s *Set, obj T, live []metav1.Condition, generation int64,
	h map[string]Handler[T], opts ...Option) (Result, error) {
	o, err := optionsOf(opts)
	if err != nil {
		return Result{Conditions: live}, err
	}
	p := Pass{set: s, live: live, generation: generation, memory: o.memory}
	if !p.open() {
		return p.Done(time.Time{})
	}
	for typ := range h {
		if i := s.find(typ, 0); i < 0 {
			p.refuseCode("evaluate", typ, i)
		}
	}
	start := o.clock()
	var failed []error
	if o.parallel > 1 {
		failed = concurrently(ctx, &p, obj, h, o.parallel, start)
	} else {
		failed = inOrder(ctx, &p, obj, h, start)
	}
	if err := ctx.Err(); err != nil {
		p.close()
		return Result{Conditions: live}, errors.Join(fmt.Errorf("evaluate conditions: %w", err), errors.Join(failed...))
	}
	r := p.finish(o.clock())
	if err := p.failure(); err != nil {
		failed = append(failed, err)
	}
	return r, errors.Join(failed...)
}

func inOrder[T any](ctx context.Context, p *Pass, obj T, h map[string]Handler[T], now time.Time) (failed []error) {
	for _, i := range p.set.order {
		typ := p.set.types[i].Name
		if f := h[typ]; f != nil && p.blocker(i) < 0 {
			if ctx.Err() != nil {
				return failed
			}
			v, err := call(ctx, f, obj, typ)
			if err != nil {
				failed = append(failed, err)
			}
			p.take(i, v, err)
		}
		p.step(i, now)
	}
	return failed
}

// concurrently is inOrder with up to n handlers under way. Everything but the handlers runs in the caller's goroutine.
func concurrently[T any](ctx context.Context, p *Pass, obj T, h map[string]Handler[T], n int, now time.Time) []error {
	type answer struct {
		i   int
		v   Verdict
		err error
	}
	const waiting, running, decided = 0, 1, 2
	s := p.set
	state := make([]byte, len(s.types))
	answers := make(chan answer, len(s.types)) // room for all: no handler is ever kept waiting
	failed := make([]error, len(s.types))
	underWay := 0

	// launch decides and starts whatever has become possible. One sweep in topological order is enough: what a
	// decision unlocks comes later in it.
	launch := func() {
		for _, i := range s.order {
			if state[i] != waiting || !all(s.needs[i], func(j int) bool { return state[j] == decided }) {
				continue
			}
			typ := s.types[i].Name
			f := h[typ]
			if f == nil || p.blocker(i) >= 0 {
				p.step(i, now)
				state[i] = decided
				continue
			}
			if underWay == n || ctx.Err() != nil {
				continue
			}
			state[i] = running
			underWay++
			go func() {
				a := answer{i: i, err: &HandlerError{Type: typ, Err: errors.New("the handler ended its goroutine")}}
				defer func() { answers <- a }() // also when the handler calls runtime.Goexit
				a.v, a.err = call(ctx, f, obj, typ)
			}()
		}
	}
	for launch(); underWay > 0; launch() {
		a := <-answers
		underWay--
		failed[a.i] = a.err
		p.take(a.i, a.v, a.err)
		p.step(a.i, now)
		state[a.i] = decided
	}
	sorted := failed[:0:0]
	for _, i := range s.order {
		if failed[i] != nil {
			sorted = append(sorted, failed[i])
		}
	}
	return sorted
}

func all(is []int, ok func(int) bool) bool {
	for _, i := range is {
		if !ok(i) {
			return false
		}
	}
	return true
}

// call runs one handler and turns a panic into an error.
func call[T any](ctx context.Context, f Handler[T], obj T, typ string) (v Verdict, err error) {
	defer func() {
		if r := recover(); r != nil {
			v, err = Verdict{}, &HandlerError{Type: typ, Err: fmt.Errorf("panic: %v", r), Stack: debug.Stack()}
		}
	}()
	v, err = f(ctx, obj)
	if err != nil {
		err = &HandlerError{Type: typ, Err: err}
	}
	return v, err
}

// take records what a handler said.
func (p *Pass) take(i int, v Verdict, err error) {
	e := &p.scratch.entries[i]
	if v == (Verdict{}) {
		if err == nil {
			return
		}
		var failure *HandlerError
		if errors.As(err, &failure) {
			err = failure.Err // the type is said by the condition
		}
		v = Verdict{Status: metav1.ConditionUnknown, Reason: ReasonHandlerFailed, Message: err.Error()}
	}
	e.given, e.status, e.reason, e.message, e.stalled = true, truthOf(v.Status), v.Reason, v.Message, v.Stalled
}
