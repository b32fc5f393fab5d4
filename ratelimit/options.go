// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Option configures a constructor of this package. Later options win; a bad value, and an option that the constructor
// has no use for, is an error of the constructor that names it.
type Option interface{ apply(*config) }

type option struct {
	name string
	set  func(*config) error
}

func (o option) apply(c *config) {
	c.used[o.name] = true
	if err := o.set(c); err != nil {
		c.errs = append(c.errs, fmt.Errorf("%s: %w", o.name, err))
	}
}

type config struct {
	used map[string]bool
	errs []error

	clock   func() time.Time
	observe func(Event)
	hash    any // func(K) uint64
	maxKeys int

	policies    [classes]Policy // of a Backoff
	ttl         time.Duration
	maxAfter    time.Duration
	giveUpCount int
	giveUpAge   time.Duration
	earlyRuns   int
	earlyEvery  time.Duration

	weights map[any]float64 // of Fair

	minRate  float64 // of Remotes
	failures int
	open     Policy
}

// newConfig applies opts, of which only those named are allowed.
func newConfig(defaults config, opts []Option, allowed ...string) (config, error) {
	c := defaults
	c.used = map[string]bool{}
	for _, o := range opts {
		if o == nil {
			c.errs = append(c.errs, errors.New("option: nil"))
			continue
		}
		o.apply(&c)
	}
	for _, name := range slices.Sorted(maps.Keys(c.used)) {
		if !slices.Contains(allowed, name) {
			c.errs = append(c.errs, fmt.Errorf("%s: means nothing here", name))
		}
	}
	return c, errors.Join(c.errs...)
}

// WithClock sets the clock. The default is the monotonic clock of the process, which testing/synctest controls. A clock
// that goes back is treated as one that stands still.
func WithClock(now func() time.Time) Option {
	return option{"WithClock", func(c *config) error {
		if now == nil {
			return errors.New("the clock is nil")
		}
		c.clock = now
		return nil
	}}
}

// WithObserver sets a function that is told what happens. It is called in the goroutine of the call it is about, outside
// all locks, and must not block. Each [Event] costs an allocation; nil, the default, means nobody and costs nothing.
func WithObserver(observe func(Event)) Option {
	return option{"WithObserver", func(c *config) error {
		c.observe = observe
		return nil
	}}
}

// WithHash replaces the hash of keys, which is seeded at random by default, so that jitter is the same in every run.
// Every bit of the result should depend on the key. It is meant for simulations and for tests of jitter.
func WithHash[K comparable](hash func(K) uint64) Option {
	return option{"WithHash", func(c *config) error {
		if hash == nil {
			return errors.New("the hash is nil")
		}
		c.hash = hash
		return nil
	}}
}

// WithMaxKeys bounds what is remembered; the default is 2^20 keys. One key too many takes the place of another that is
// near its expiry, which is then a fresh key again: never one that waits longest. A gate that holds as many keys sends one
// more away all the same, and has forgotten it when it comes back.
func WithMaxKeys(n int) Option {
	return option{"WithMaxKeys", func(c *config) error {
		if n < 1 {
			return fmt.Errorf("%d is not above zero", n)
		}
		c.maxKeys = n
		return nil
	}}
}

// WithClass sets the curve of a class other than Transient, whose curve is the policy given to [New], and Terminal,
// which has none.
func WithClass(class Class, p Policy) Option {
	return option{"WithClass", func(c *config) error {
		if class != Throttled && class != Conflict && class != Waiting {
			return fmt.Errorf("class %v takes no policy here", class)
		}
		if err := p.validate(); err != nil {
			return fmt.Errorf("class %v: %w", class, err)
		}
		c.policies[class] = p
		return nil
	}}
}

// WithTTL sets how long after its deadline a key that nobody asks for is remembered. The default is twice the longest
// cap of all classes, ten minutes at least.
func WithTTL(d time.Duration) Option {
	return option{"WithTTL", func(c *config) error {
		if d <= 0 {
			return fmt.Errorf("%v is not above zero", d)
		}
		c.ttl = d
		return nil
	}}
}

// WithMaxAfter bounds what an [Error] may ask for with After; the default is one hour. A server's floor may exceed the
// cap of a curve, but not this one.
func WithMaxAfter(d time.Duration) Option {
	return option{"WithMaxAfter", func(c *config) error {
		if d < time.Millisecond {
			return fmt.Errorf("%v is below a millisecond", d)
		}
		c.maxAfter = d
		return nil
	}}
}

// WithGiveUpAfter gives a key up at its n-th transient failure in a row, or at the first one that comes age or more
// after the row has begun; zero means that this limit is not set, one of them must be. By default nothing is given up.
func WithGiveUpAfter(n int, age time.Duration) Option {
	return option{"WithGiveUpAfter", func(c *config) error {
		switch {
		case n < 0:
			return fmt.Errorf("n: %d is negative", n)
		case n > maxCount:
			return fmt.Errorf("n: failures are counted up to %d", maxCount)
		case age < 0:
			return fmt.Errorf("age: %v is negative", age)
		case n == 0 && age == 0:
			return errors.New("n, age: neither is set")
		}
		c.giveUpCount, c.giveUpAge = n, age
		return nil
	}}
}

// WithEarlyRuns sets how many times a key that waits may run all the same, see [Backoff.Admit], and after how long one
// such run is allowed again. The default is 3 and 10 s. With n zero there are no early runs.
func WithEarlyRuns(n int, every time.Duration) Option {
	return option{"WithEarlyRuns", func(c *config) error {
		switch {
		case n < 0 || n > maxCount:
			return fmt.Errorf("n: %d is not between 0 and %d", n, maxCount)
		case every <= 0:
			return fmt.Errorf("every: %v is not above zero", every)
		case every > math.MaxInt64/maxCount/2:
			return fmt.Errorf("every: %v is too long", every)
		}
		c.earlyRuns, c.earlyEvery = n, every
		return nil
	}}
}

// WithWeight gives a tenant of [Fair] weight times the share of a tenant that has no weight of its own, which is 1. It is
// between a millionth and a million.
func WithWeight[T comparable](tenant T, weight float64) Option {
	return option{"WithWeight", func(c *config) error {
		if !(weight >= 1e-6 && weight <= 1e6) { // written so that NaN fails
			return fmt.Errorf("weight: %v of tenant %v is not between %v and %v", weight, tenant, 1e-6, 1e6)
		}
		weights := maps.Clone(c.weights) // an Option may be used twice
		if weights == nil {
			weights = map[any]float64{}
		}
		weights[tenant] = weight
		c.weights = weights
		return nil
	}}
}

// WithMinRate sets how slow [Remotes] may make a remote that throttles, in runs per second. The default is a 64th of
// the rate of the constructor.
func WithMinRate(rate float64) Option {
	return option{"WithMinRate", func(c *config) error {
		if err := checkRate(rate); err != nil {
			return err
		}
		c.minRate = rate
		return nil
	}}
}

// WithBreaker sets after how many transient failures in a row [Remotes] stops calling a remote, and for how long: open
// is the curve of the pauses. The default is 5, and 1 s doubling to 1 min.
func WithBreaker(failures int, open Policy) Option {
	return option{"WithBreaker", func(c *config) error {
		if failures < 1 {
			return fmt.Errorf("failures: %d is not above zero", failures)
		}
		if err := open.validate(); err != nil {
			return fmt.Errorf("open: %w", err)
		}
		c.failures, c.open = failures, open
		return nil
	}}
}

func checkRate(rate float64) error {
	if !(rate > 0) || math.IsInf(rate, 0) { // written so that NaN fails
		return fmt.Errorf("rate: %v is not a finite number above zero", rate)
	}
	return nil
}

func checkBurst(burst int) error {
	if burst < 1 {
		return fmt.Errorf("burst: %d is not above zero", burst)
	}
	return nil
}
