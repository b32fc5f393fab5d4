// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"log/slog"
	"time"

	"github.com/ashlar-go/ashlar/ownership"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Option is an option of New.
type Option interface{ applyApplier(*Applier) }

type optionFunc func(*Applier)

func (f optionFunc) applyApplier(a *Applier) { f(a) }

// WithParallel bounds the writes in flight per pass. Default 8. Declared objects of one kind are written together,
// kinds one after the other in the order they are declared in desired.
func WithParallel(n int) Option { return optionFunc(func(a *Applier) { a.parallel = n }) }

// WithPropagation sets the policy of deletes. Default Background. It is always sent: without one the server leaves the
// pods of a Job behind.
func WithPropagation(p metav1.DeletionPropagation) Option {
	return optionFunc(func(a *Applier) { a.propagation = p })
}

// WithSettle spaces the events of one owner's children by d. The first one queues the owner at once, so that a loss is seen
// however soon it is made good; those within d after it, such as five pods that become ready one after the other, cost one
// more pass at the end of d. Default 0: every event queues at once.
func WithSettle(d time.Duration) Option { return optionFunc(func(a *Applier) { a.settle = d }) }

// WithClock sets the clock Sweep measures ages with. Default time.Now.
func WithClock(now func() time.Time) Option {
	return optionFunc(func(a *Applier) {
		if now != nil {
			a.now = now
		}
	})
}

// WithObserver is told about every decision that wrote or failed, in no particular order and from several goroutines
// at once. Default: nobody.
func WithObserver(f func(Event)) Option { return optionFunc(func(a *Applier) { a.observe = f }) }

// WithSweepDelete lets Sweep delete what it reports. Default: report only.
func WithSweepDelete() Option { return optionFunc(func(a *Applier) { a.sweepDelete = true }) }

// Event says what became of one decision.
type Event struct {
	Owner    ownership.Ref      // for whom
	Decision ownership.Decision // as carried out
}

// LogValue makes an Event a group of attributes.
func (e Event) LogValue() slog.Value {
	attrs := []slog.Attr{
		slog.String("owner", e.Owner.String()), slog.String("verb", e.Decision.Verb.String()),
		slog.String("object", e.Decision.Ref.String()), slog.String("why", e.Decision.Why),
	}
	if e.Decision.Err != nil {
		attrs = append(attrs, slog.Any("err", e.Decision.Err))
	}
	return slog.GroupValue(attrs...)
}
