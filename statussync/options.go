// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Option changes a default of New. The interface is sealed.
type Option interface{ apply(*settings) error }

type option func(*settings) error

func (o option) apply(s *settings) error { return o(s) }

// settings are the figures of a Group. Those without an option are settled by the contract of this package.
type settings struct {
	now      func() time.Time
	observe  func(Event)
	schema   func(context.Context, schema.GroupVersion) ([]byte, error)
	interval time.Duration // between two message-only writes of one object
	remember int           // uids, per writer
}

const (
	tries     = 3                     // applies of one Sync
	jitter    = 10 * time.Millisecond // upper bound of the first pause, doubling
	deferMin  = time.Second           // Deferred after contention: between deferMin and deferMax
	deferMax  = 5 * time.Second
	takenSpan = 10 * time.Minute // two takings within it are a contest
	standMin  = 10 * time.Second // first back-off of a contested object, doubling
	standMax  = 5 * time.Minute  // its bound
	maxMemory = 100_000          // uids remembered per writer
	spacing   = 30 * time.Second // between two message-only writes of one object
)

// WithClock replaces time.Now. It decides lastTransitionTime where the caller gave none, the spacing of message-only
// writes and the back-off of contested objects. The pauses between tries are at most 30 ms in total and use timers.
func WithClock(now func() time.Time) Option {
	return option(func(s *settings) error {
		if now == nil {
			return errors.New("clock is nil")
		}
		s.now = now
		return nil
	})
}

// WithObserver has f called once for every Sync and TakeOver, after it is decided and done, on the caller's goroutine.
// NoOp is told too, so this is the place for a gauge of when an object was last judged; in the status that would be a
// write for every pass. The default observes nothing.
func WithObserver(f func(Event)) Option {
	return option(func(s *settings) error {
		if f == nil {
			return errors.New("observer is nil")
		}
		s.observe = f
		return nil
	})
}

// WithMessageInterval changes how far apart two writes of one object are that change nothing but messages. The default
// is 30 s; 0 holds nothing back.
func WithMessageInterval(d time.Duration) Option {
	return option(func(s *settings) error {
		if d < 0 {
			return fmt.Errorf("message interval %s is negative", d)
		}
		s.interval = d
		return nil
	})
}

// WithOpenAPI lets Check read the schema the API server publishes, which needs no right to read
// CustomResourceDefinitions. f returns the OpenAPI v3 document, as JSON, of one group and version. With a REST client it
// is one line (the core group lives under /openapi/v3/api/v1):
//
//	rc.Get().AbsPath("/openapi/v3/apis/" + gv.String()).Do(ctx).Raw()
//
// Without it Check looks at nothing that only the schema tells.
func WithOpenAPI(f func(ctx context.Context, gv schema.GroupVersion) ([]byte, error)) Option {
	return option(func(s *settings) error {
		if f == nil {
			return errors.New("OpenAPI reader is nil")
		}
		s.schema = f
		return nil
	})
}
