// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/ashlar-go/ashlar/conversion"
)

// Converter converts one object, in JSON, to another version of its group and says what that version cannot hold. A
// *conversion.Converter is one.
type Converter interface {
	Trial(ctx context.Context, raw []byte, to string) (conversion.Result, error)
}

// Option is an option of New.
type Option interface{ applyMigrator(*Migrator) }

type optionFunc func(*Migrator)

func (f optionFunc) applyMigrator(m *Migrator) { f(m) }

// WithConverter gives Rehearse what it rehearses: the converter of the webhook. Default: none, and Rehearse is an error.
func WithConverter(c Converter) Option { return optionFunc(func(m *Migrator) { m.converter = c }) }

// WithPageSize is how many objects one list request asks for. Default 500.
func WithPageSize(n int64) Option { return optionFunc(func(m *Migrator) { m.page = n }) }

// WithParallel bounds the writes in flight. Default 4: the server calls a webhook up to ten times for each of them. The
// rate is that of the client's rest.Config.
func WithParallel(n int) Option { return optionFunc(func(m *Migrator) { m.parallel = n }) }

// WithStatusTouch writes through the status subresource, where no admission webhook or validation rule of the spec
// refuses an object that was written before the rule existed. Only managedFields of dead versions still need a write of
// the object itself.
func WithStatusTouch() Option { return optionFunc(func(m *Migrator) { m.status = true }) }

// WithoutDelegation writes the objects itself even where the server serves storagemigration.k8s.io/v1.
func WithoutDelegation() Option { return optionFunc(func(m *Migrator) { m.alone = true }) }

// WithObserver is told after every page, or when the server says something new of a delegated migration. It is called by one goroutine.
// Default: nobody.
func WithObserver(f func(Progress)) Option { return optionFunc(func(m *Migrator) { m.observe = f }) }

// Progress is how far a run or a rehearsal is.
type Progress struct {
	CRD    string // its name
	Done   int    // objects looked at
	Total  int    // objects there are, as the server estimates it; 0 when it does not say
	Failed int    // objects that could not be written
	Resume string // what to give to Run to go on from here
	Text   string // what the server says of a delegated migration
}

// String is a line for people.
func (p Progress) String() string {
	if p.Text != "" {
		return fmt.Sprintf("%s: %s", p.CRD, p.Text)
	}
	s := fmt.Sprintf("%s: %d", p.CRD, p.Done)
	if p.Total > 0 {
		s += fmt.Sprintf(" of %d", p.Total)
	}
	s += " objects"
	if p.Failed > 0 {
		s += fmt.Sprintf(", %d failed", p.Failed)
	}
	return s
}

// LogValue makes a Progress a group of attributes.
func (p Progress) LogValue() slog.Value {
	return slog.GroupValue(slog.String("crd", p.CRD), slog.Int("done", p.Done), slog.Int("total", p.Total),
		slog.Int("failed", p.Failed), slog.String("resume", p.Resume), slog.String("text", p.Text))
}
