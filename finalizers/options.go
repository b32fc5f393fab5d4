// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Option configures [New]. Later options win; a bad value is an error of New.
type Option interface{ apply(*config) }

type option func(*config)

func (o option) apply(c *config) { o(c) }

type config struct {
	former  []string
	clock   func() time.Time
	observe func(Event)
	errs    []error
}

// WithFormerNames declares names under which earlier versions of the controller stored this finalizer. On a live object
// they are replaced by the current name, in one request; on a terminating object they count as ours, because nothing
// can be added there, and are removed with it when the cleanup is over.
func WithFormerNames(names ...string) Option {
	return option(func(c *config) { c.former = slices.Clone(names) })
}

// WithClock sets the clock that deadlines are measured with. The default is [time.Now].
func WithClock(now func() time.Time) Option {
	return option(func(c *config) {
		if now == nil {
			c.errs = append(c.errs, errors.New("WithClock: the clock is nil"))
			return
		}
		c.clock = now
	})
}

// WithObserver sets a function that is told what happens. It is called in the goroutine of Sync and must not block;
// nil, the default, means nobody.
func WithObserver(observe func(Event)) Option {
	return option(func(c *config) { c.observe = observe })
}

// checkName holds what the API server demands of a finalizer of a custom resource, plus what it only warns about: a
// domain prefix, without which built-in kinds refuse it.
func checkName(name string) error {
	if bad := validation.IsQualifiedName(name); len(bad) > 0 {
		return fmt.Errorf("finalizer %q: %s", name, strings.Join(bad, "; "))
	}
	if !strings.Contains(name, "/") {
		return fmt.Errorf("finalizer %q: needs a domain prefix, as in example.com/cleanup", name)
	}
	if strings.HasPrefix(name, holdPrefix) {
		return fmt.Errorf("finalizer %q: the prefix %s belongs to Hold", name, holdPrefix)
	}
	return nil
}
