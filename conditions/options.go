// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"errors"
	"fmt"
	"time"
)

// Option changes how [Evaluate] works. Later options win.
type Option interface{ apply(*options) error }

type options struct {
	memory   *Memory
	clock    func() time.Time
	parallel int
}

type option func(*options) error

func (f option) apply(o *options) error { return f(o) }

// WithMemory holds changes back as the types' Hold demands. Default, and nil: nothing is held.
func WithMemory(m *Memory) Option {
	return option(func(o *options) error { o.memory = m; return nil })
}

// WithClock sets the clock. Default: time.Now.
func WithClock(now func() time.Time) Option {
	return option(func(o *options) error {
		if now == nil {
			return errors.New("evaluate conditions: the clock must not be nil")
		}
		o.clock = now
		return nil
	})
}

// WithParallel runs up to n handlers at a time, each as soon as everything its type needs is decided. The result is the
// same as without it. Default: 1, in the caller's goroutine; n must be at least 1. Handlers then share the object and
// must not change it.
func WithParallel(n int) Option {
	return option(func(o *options) error {
		if n < 1 {
			return fmt.Errorf("evaluate conditions: %d handlers at a time, want at least 1", n)
		}
		o.parallel = n
		return nil
	})
}

func optionsOf(opts []Option) (options, error) {
	if len(opts) == 0 {
		return options{clock: time.Now, parallel: 1}, nil
	}
	o := &options{clock: time.Now, parallel: 1}
	for _, opt := range opts {
		if opt == nil {
			continue
		}
		if err := opt.apply(o); err != nil {
			return options{}, err
		}
	}
	return *o, nil
}
