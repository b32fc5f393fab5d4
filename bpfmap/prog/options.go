// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
)

// Option configures [Load] and [New]. Later options win; a bad value is an error of what takes them.
type Option interface{ apply(*config) }

type option func(*config)

func (o option) apply(c *config) { o(c) }

type config struct {
	limits   Limits
	maps     map[string]*ebpf.Map
	drain    time.Duration
	strategy Strategy
	clock    func() time.Time
	observe  func(Event)
	errs     []error
}

func configure(opts []Option) (*config, error) {
	c := &config{limits: defaultLimits, drain: 30 * time.Second, clock: time.Now, observe: func(Event) {}}
	for _, opt := range opts {
		if opt != nil {
			opt.apply(c)
		}
	}
	return c, errors.Join(c.errs...)
}

// WithLimits sets what objects may ask for. The default is that of each field of [Limits].
func WithLimits(l Limits) Option { return option(func(c *config) { c.limits = l.withDefaults() }) }

// WithMaps makes the program use these maps instead of those that the object declares under the same names, which must
// be there and compatible: [ErrMap]. They stay the caller's to close. An option of [Load]; a [Slot] finds its own.
func WithMaps(maps map[string]*ebpf.Map) Option { return option(func(c *config) { c.maps = maps }) }

// WithDrain sets how long the program before is kept after a swap, ready to be rolled back to, and its maps with it. The
// default is 30 s; 0 keeps it until the same call ends. It does not run meanwhile.
func WithDrain(d time.Duration) Option {
	return option(func(c *config) {
		if d < 0 {
			c.errs = append(c.errs, fmt.Errorf("WithDrain: %v is negative", d))
		}
		c.drain = d
	})
}

// Strategy is how the program at a hook is replaced.
type Strategy uint8

// The strategies.
const (
	// Exact is the default: one system call, before which every event meets the old program and after which every event
	// meets the new one. XDP, TCX and cgroups exchange the program of the link if it is still the one that was seen;
	// tracepoints, which cannot, get a stub that jumps to the program in a slot that is written.
	Exact Strategy = iota
	// Overlap attaches the new program before the old one is detached, so that events in between meet both. For
	// programs that look only. Not for XDP, where there is one place. From tracepoints the kernel takes the old one some
	// time after the call.
	Overlap
	// Gap detaches the old program before the new one is attached, so that events in between meet none. If that fails
	// the old one is attached again; if the process is killed in between, by the next Sync or Recover.
	Gap
)

// WithStrategy sets how the program is replaced. The default is [Exact].
func WithStrategy(s Strategy) Option {
	return option(func(c *config) {
		if s > Gap {
			c.errs = append(c.errs, fmt.Errorf("WithStrategy: unknown strategy %d", s))
		}
		c.strategy = s
	})
}

// WithClock sets the clock that the drain window is measured with. The default is [time.Now].
func WithClock(now func() time.Time) Option {
	return option(func(c *config) {
		if now == nil {
			c.errs = append(c.errs, errors.New("WithClock: the clock is nil"))
			return
		}
		c.clock = now
	})
}

// WithObserver sets a function that is told what is about to be done. It is called in the goroutine of Sync and must not
// block; nil, the default, means nobody.
func WithObserver(observe func(Event)) Option {
	return option(func(c *config) {
		c.observe = observe
		if observe == nil {
			c.observe = func(Event) {}
		}
	})
}
