// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Finalizer is a finalizer name together with the steps that must be over before it is removed. Make one with [New]
// and keep it for the life of the process; it is safe for concurrent use by different objects.
type Finalizer[T client.Object] struct {
	planner
	callbacks []func(context.Context, Deletion[T]) Outcome // by the index of planner.steps
	clock     func() time.Time
	observe   func(Event)
	memory    *memory
}

// New validates a declaration. It fails when the name, or a former name, is not a qualified name with a domain prefix;
// when a step has no Do, an illegal or repeated name, a negative Deadline, an Overrun of Skip without a Deadline, or
// an After that names an unknown step; and when steps wait for each other, in which case the error prints the cycle.
// Every finding is in the error, not only the first.
//
// Without steps the finalizer is removed as soon as the object is being deleted.
func New[T client.Object](name string, steps []Step[T], opts ...Option) (*Finalizer[T], error) {
	cfg := config{clock: time.Now}
	for _, o := range opts {
		if o != nil {
			o.apply(&cfg)
		}
	}
	errs := append(cfg.errs, checkName(name))
	for i, former := range cfg.former {
		errs = append(errs, checkName(former))
		if former == name || slices.Contains(cfg.former[:i], former) {
			errs = append(errs, fmt.Errorf("former name %q is declared twice", former))
		}
	}

	declared := make([]step, len(steps))
	after := make([][]string, len(steps))
	for i, s := range steps {
		declared[i] = step{name: s.Name, deadline: s.Deadline, overrun: s.Overrun, terminating: s.InTerminatingNamespace}
		after[i] = s.After
		if s.Do == nil {
			errs = append(errs, fmt.Errorf("step %q: Do is nil", s.Name))
		}
	}
	order, err := resolve(declared, after)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("new finalizer %s: %w", name, err)
	}

	f := &Finalizer[T]{
		planner: planner{name: name, former: cfg.former, steps: sorted(declared, order)},
		clock:   cfg.clock,
		observe: cfg.observe,
		memory:  newMemory(maxRemembered),
	}
	for _, i := range order {
		f.callbacks = append(f.callbacks, steps[i].Do)
	}
	return f, nil
}

// Name is the finalizer as it is stored on objects.
func (f *Finalizer[T]) Name() string { return f.name }
