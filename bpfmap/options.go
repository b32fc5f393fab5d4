// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
)

// Option configures [Open], [Wrap] and their siblings. Later options win; a bad value is an error of the constructor, and
// so is an option that it would not honour.
type Option interface{ apply(*config) }

type option struct {
	name string
	set  func(*config)
}

func (o option) apply(c *config) {
	c.named = append(c.named, o.name)
	o.set(c)
}

type config struct {
	sys      System
	pin      string
	pinned   bool // the map came from there
	owned    any  // func(K) bool
	ignore   []string
	remove   bool
	lost     *PerCPU[uint32, uint64]
	budget   Budget
	audit    time.Duration
	program  *ebpf.Program
	migrate  any // fill[K, V]
	readOnly bool
	clock    func() time.Time
	observe  func(Event)
	named    []string
	errs     []error
}

// What the constructors take. An option that one of them would not honour is refused by name: a delete budget or an
// ignored field that is silently dropped does harm.
var (
	wrapTakes    = []string{"WithSystem", "WithOwned", "WithIgnore", "WithMaxDelete", "WithAudit", "WithProgram", "WithClock", "WithObserver"}
	openTakes    = append([]string{"WithPin", "WithReadOnly", "WithMigration"}, wrapTakes...)
	migrateTakes = []string{"WithSystem", "WithPin", "WithMigration"}
	nestedTakes  = []string{"WithSystem", "WithPin", "WithReadOnly", "WithMaxDelete", "WithProgram", "WithObserver"}
	ringTakes    = []string{"WithSystem", "WithPin", "WithLost"}
	sweepTakes   = []string{"WithSystem", "WithDelete"}
	undoTakes    = []string{"WithSystem"}
)

func configure(opts []Option, takes []string) (*config, error) {
	c := &config{sys: Kernel(), clock: time.Now}
	for _, o := range opts {
		if o != nil {
			o.apply(c)
		}
	}
	for _, name := range c.named {
		if !slices.Contains(takes, name) {
			c.errs = append(c.errs, fmt.Errorf("%s is no option here: it takes %s", name, strings.Join(takes, ", ")))
		}
	}
	if c.pin == "" && (c.readOnly || c.migrate != nil) {
		c.errs = append(c.errs, errors.New("WithReadOnly and WithMigration need WithPin"))
	}
	return c, errors.Join(c.errs...)
}

// WithSystem uses another kernel than that of this machine: bpfmaptest has one in memory.
func WithSystem(s System) Option {
	return option{"WithSystem", func(c *config) {
		if s == nil {
			c.errs = append(c.errs, errors.New("WithSystem: the system is nil"))
			return
		}
		c.sys = s
	}}
}

// WithPin opens the map that is pinned at path, a file in a bpf file system, and makes and pins it when there is none.
// A pinned map that differs from what is asked for is an error, see [WithMigration]. The default is no pin: the map goes
// with the last descriptor.
//
// What lies beside it: path-layout (a sidecar with the layout, for starts that may not read BTF) and, around a
// migration, path-next and path-prev.
func WithPin(path string) Option {
	return option{"WithPin", func(c *config) {
		if err := checkPin(path); err != nil {
			c.errs = append(c.errs, fmt.Errorf("WithPin: %w", err))
			return
		}
		c.pin = path
	}}
}

// WithReadOnly opens a pinned map for reading: every write is [ErrReadOnly], and a missing pin is an error.
func WithReadOnly() Option { return option{"WithReadOnly", func(c *config) { c.readOnly = true }} }

// WithOwned says which keys a plan may delete: those for which owned answers true. Others are left alone, and wanting
// one is an error of the plan. The default: every key is ours. It must depend on the key alone.
func WithOwned[K any](owned func(K) bool) Option {
	return option{"WithOwned", func(c *config) {
		if owned == nil {
			c.errs = append(c.errs, errors.New("WithOwned: the function is nil"))
			return
		}
		c.owned = owned
	}}
}

// WithIgnore names fields of the value, by their Go path, that a program in the kernel writes: counters, timestamps,
// tokens. A plan does not compare them, and a change keeps the kernel's bytes, read right before the write: a program
// that writes between the two loses that one write. Put and PutAll write the value as it is.
func WithIgnore(fields ...string) Option {
	return option{"WithIgnore", func(c *config) { c.ignore = append([]string(nil), fields...) }}
}

// Budget caps what one plan may delete.
type Budget struct {
	Free    int // deletions that are never counted against Percent
	Max     int // deletions in one plan; 0: no cap
	Percent int // of our keys in the map, beyond Free; 0: no cap
}

// WithMaxDelete caps the deletions of one plan. Over the cap nothing is deleted, what is to be added and changed is
// still written, and the error matches [ErrBudget]. The default is no cap: a stale entry of a policy map lets traffic
// through, so it goes in the first pass.
func WithMaxDelete(b Budget) Option {
	return option{"WithMaxDelete", func(c *config) {
		if b.Free < 0 || b.Max < 0 || b.Percent < 0 || b.Percent > 100 {
			c.errs = append(c.errs, fmt.Errorf("WithMaxDelete: %+v: Free and Max must be 0 or more, Percent 0 to 100", b))
			return
		}
		c.budget = b
	}}
}

// WithAudit lets Sync trust its own writes between audits: it compares with what it wrote and sends the difference,
// without reading the map. The whole map is read every now and then, spread between 0.8 and 1.2 times every so that
// many maps do not read at once, and in the next pass after anything failed. Then Result.Audited is true. The default is
// 0: every pass reads the map.
//
// Between audits, what others change goes unnoticed.
func WithAudit(every time.Duration) Option {
	return option{"WithAudit", func(c *config) {
		if every < 0 {
			c.errs = append(c.errs, fmt.Errorf("WithAudit: %v is negative", every))
			return
		}
		c.audit = every
	}}
}

// WithProgram names the program that is attached and works on this map. Before a plan is applied the program is asked
// for its maps, and when this one is not among them nothing is written: [ErrSplitBrain]. It costs two calls per Apply
// and needs no capability beyond those of the map.
func WithProgram(p *ebpf.Program) Option {
	return option{"WithProgram", func(c *config) {
		if p == nil {
			c.errs = append(c.errs, errors.New("WithProgram: the program is nil"))
			return
		}
		c.program = p
	}}
}

// WithClock sets the clock for audits and back-off. The default is [time.Now].
func WithClock(now func() time.Time) Option {
	return option{"WithClock", func(c *config) {
		if now == nil {
			c.errs = append(c.errs, errors.New("WithClock: the clock is nil"))
			return
		}
		c.clock = now
	}}
}

// WithObserver sets a function that is told what happens. It is called in the goroutine of the operation and must not
// block; nil, the default, means nobody.
func WithObserver(observe func(Event)) Option {
	return option{"WithObserver", func(c *config) { c.observe = observe }}
}
