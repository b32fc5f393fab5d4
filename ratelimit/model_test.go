// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/ratelimit"
)

// clock is a time that a test sets.
type clock struct{ t time.Time }

func newClock() *clock { return &clock{time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time           { return c.t }
func (c *clock) advance(by time.Duration) { c.t = c.t.Add(by) }

// model is a Backoff written for reading: a map, whole durations, no jitter.
type model struct {
	policies   map[ratelimit.Class]ratelimit.Policy
	ttl        time.Duration
	maxAfter   time.Duration
	giveUp     int
	giveUpAge  time.Duration
	earlyRuns  int
	earlyEvery time.Duration
	keys       map[int]*entry
}

type entry struct {
	count, streak int
	class         ratelimit.Class
	deadline      time.Time
	early         bool
	generation    int64
	told          bool
	first         time.Time
	spent         []time.Time // early runs
}

func (m *model) get(key int, now time.Time) *entry {
	e := m.keys[key]
	if e != nil && now.Sub(e.deadline) > m.ttl {
		delete(m.keys, key)
		return nil
	}
	return e
}

func (m *model) make(key int, now time.Time) *entry {
	e := m.get(key, now)
	if e == nil {
		e = &entry{}
		m.keys[key] = e
	}
	return e
}

func (m *model) raise(e *entry, class ratelimit.Class, now time.Time, floor time.Duration) time.Duration {
	if class == e.class {
		e.streak++
	} else {
		e.streak, e.class = 1, class
	}
	n := e.streak
	if class == ratelimit.Transient {
		e.count++
		n = e.count
	}
	_, wait := m.policies[class].Bounds(n)
	wait = max(wait, floor)
	e.deadline = now.Add(wait)
	return wait
}

func (m *model) when(key int, now time.Time) time.Duration {
	e := m.make(key, now)
	if wait := e.deadline.Sub(now); wait > 0 {
		return wait
	}
	return m.raise(e, ratelimit.Transient, now, 0)
}

func (m *model) observe(key int, class ratelimit.Class, after time.Duration, now time.Time) ratelimit.Decision {
	after = min(after, m.maxAfter)
	if class == ratelimit.Terminal {
		delete(m.keys, key)
		return ratelimit.Decision{Class: class}
	}
	if e := m.get(key, now); e != nil && (e.early || e.deadline.After(now)) {
		e.early = false
		if at := now.Add(after); after > 0 && at.After(e.deadline) {
			e.deadline = at
		}
		return ratelimit.Decision{Class: class, Count: e.count, Delay: max(0, e.deadline.Sub(now)), Early: true}
	}
	e := m.make(key, now)
	if class == ratelimit.Transient {
		spent := e.count+1 >= m.giveUp
		if e.first.IsZero() {
			e.first = now
		} else if now.Sub(e.first) >= m.giveUpAge {
			spent = true
		}
		if spent {
			delete(m.keys, key)
			return ratelimit.Decision{Class: class, Count: e.count + 1, GaveUp: true}
		}
	}
	wait := m.raise(e, class, now, after)
	return ratelimit.Decision{Class: class, Count: e.count, Delay: wait}
}

func (m *model) admit(key int, now time.Time) (time.Duration, bool) {
	e := m.get(key, now)
	if e == nil {
		return 0, true
	}
	wait := e.deadline.Sub(now)
	if wait <= 0 {
		e.early = false
		return 0, true
	}
	// A bucket of earlyRuns that gains one each earlyEvery: full again when all that was taken has been put back.
	full := time.Time{}
	for _, at := range e.spent {
		if full.Before(at) {
			full = at
		}
		full = full.Add(m.earlyEvery)
	}
	if full.Before(now) {
		full = now
	}
	if next := full.Add(m.earlyEvery).Sub(now) - time.Duration(m.earlyRuns)*m.earlyEvery; next > 0 {
		return min(wait, next), false
	}
	e.spent = append(e.spent, now)
	e.early = true
	return 0, true
}

func (m *model) reset(key int, generation int64, now time.Time) bool {
	e := m.get(key, now)
	if e == nil {
		return false
	}
	if e.told && e.generation != generation {
		delete(m.keys, key)
		return true
	}
	e.told, e.generation = true, generation
	return false
}

// Times in the walk are multiples of unit, so that no rounding of the store shows: 2^28 ns is 2 units of the coarsest
// of its clocks.
const unit = 1 << 28

// TestModel walks the store and the model through the same random steps and compares every answer, and after each round
// every key.
func TestModel(t *testing.T) {
	t.Parallel()
	each, all := 29_000, 1_000_000
	if testing.Short() {
		each, all = 1_000, 0 // nothing here runs at the same time, so the race detector has nothing to find
	}
	steps, seen := 0, map[string]int{}
	for seed := range uint64(40) {
		steps += walk(t, seed, each, seen)
		if t.Failed() {
			return
		}
	}
	if steps < all {
		t.Errorf("%d steps, a million were meant", steps)
	}
	for _, what := range []string{"early failure", "given up", "held", "reset", "terminal", "expired", "floor"} {
		if seen[what] < all/10_000 {
			t.Errorf("the walk has seen %q %d times: it shows nothing about it", what, seen[what])
		}
	}
	t.Logf("%d steps, %v", steps, seen)
}

func walk(t *testing.T, seed uint64, steps int, seen map[string]int) int {
	flat := func(p ratelimit.Policy) ratelimit.Policy { p.Jitter = ratelimit.NoJitter(); return p }
	m := &model{
		policies: map[ratelimit.Class]ratelimit.Policy{
			ratelimit.Transient: flat(ratelimit.Exp(unit, 40*unit)),
			ratelimit.Throttled: flat(ratelimit.Policy{Base: 3 * unit, Cap: 27 * unit, Factor: 3}),
			ratelimit.Conflict:  flat(ratelimit.Policy{Base: unit, Cap: 4 * unit, Factor: 2, Fast: 3}),
			ratelimit.Waiting:   flat(ratelimit.Flat(5 * unit)),
		},
		ttl: 16 * unit, maxAfter: 1000 * unit, giveUp: 7, giveUpAge: 120 * unit,
		earlyRuns: 3, earlyEvery: 8*unit - 2<<27, // what the store makes of this is whole units
		keys: map[int]*entry{},
	}
	c := newClock()
	b, err := ratelimit.New[int](m.policies[ratelimit.Transient],
		ratelimit.WithClass(ratelimit.Throttled, m.policies[ratelimit.Throttled]),
		ratelimit.WithClass(ratelimit.Conflict, m.policies[ratelimit.Conflict]),
		ratelimit.WithClass(ratelimit.Waiting, m.policies[ratelimit.Waiting]),
		ratelimit.WithTTL(m.ttl), ratelimit.WithMaxAfter(m.maxAfter+1<<16), ratelimit.WithEarlyRuns(m.earlyRuns, m.earlyEvery),
		ratelimit.WithGiveUpAfter(m.giveUp, m.giveUpAge-2<<27), ratelimit.WithClock(c.now))
	if err != nil {
		t.Fatal(err)
	}
	m.earlyEvery = 8 * unit
	r := rand.New(rand.NewPCG(seed, 7))
	keys := 5 << (seed % 6)
	classes := []ratelimit.Class{
		ratelimit.Throttled, ratelimit.Conflict, ratelimit.Waiting, ratelimit.Throttled, ratelimit.Conflict, ratelimit.Waiting,
		ratelimit.Throttled, ratelimit.Conflict, ratelimit.Waiting, ratelimit.Terminal,
	}
	plain := seed%5 == 4 // this walk uses the plain face
	idle := 0
	for i := range steps {
		now, key := c.now(), r.IntN(keys)
		var got, want any
		step := r.IntN(20)
		what := ""
		switch {
		case step < 3:
			by := time.Duration(r.IntN(9)) * unit
			if r.IntN(200) == 0 {
				by = time.Duration(r.IntN(50)) * unit
			}
			c.advance(by)
			continue
		case step < 11 && plain:
			what, got, want = "When", b.When(key), m.when(key, now)
		case step < 11:
			class := ratelimit.Transient
			if r.IntN(3) == 0 {
				class = classes[r.IntN(len(classes))]
			}
			after := time.Duration(0)
			if r.IntN(40) == 0 {
				after = time.Duration(r.IntN(30)) * unit
			}
			if before := m.keys[key]; before != nil && m.get(key, now) == nil {
				seen["expired"]++
			}
			w := m.observe(key, class, after, now)
			g := b.Observe(key, fmt.Errorf("run: %w", &ratelimit.Error{Class: class, After: after, Err: errors.New("boom")}))
			if after > 0 && class != ratelimit.Terminal && !w.GaveUp {
				// A floor is spread upwards; take what the store chose, if it is allowed.
				seen["floor"]++
				if g.Delay < w.Delay || g.Delay > w.Delay+after/5+2<<16 {
					t.Fatalf("step %d of walk %d: floor %v gives %v, the model says %v", i, seed, after, g.Delay, w.Delay)
				}
				b.Forget(key)
				delete(m.keys, key)
				continue
			}
			switch {
			case w.Early:
				seen["early failure"]++
			case w.GaveUp:
				seen["given up"]++
			case w.Class == ratelimit.Terminal:
				seen["terminal"]++
			}
			what, got, want = fmt.Sprint("Observe ", class), g, w
		case step < 13:
			var gs, ws []any
			for range 1 + r.IntN(5) {
				gw, gok := b.Admit(key)
				ww, wok := m.admit(key, now)
				if !wok {
					seen["held"]++
				}
				gs, ws = append(gs, gw, gok), append(ws, ww, wok)
			}
			what, got, want = "Admit", fmt.Sprint(gs...), fmt.Sprint(ws...)
		case step < 15:
			generation := int64(r.IntN(2))
			if r.IntN(20) > 0 {
				generation = 1
			}
			w := m.reset(key, generation, now)
			if w {
				seen["reset"]++
			}
			what, got, want = "Reset", b.Reset(key, generation), w
		case step < 16:
			if r.IntN(8) > 0 {
				idle++
				continue
			}
			b.Forget(key)
			delete(m.keys, key)
			continue
		case step < 18:
			n := 0
			if e := m.get(key, now); e != nil {
				n = e.count
			}
			what, got, want = "NumRequeues", b.NumRequeues(key), n
		case step < 19:
			var left time.Duration
			if e := m.get(key, now); e != nil {
				left = max(0, e.deadline.Sub(now))
			}
			what, got, want = "Remaining", b.Remaining(key), left
		default:
			if r.IntN(50) > 0 {
				idle++
				continue
			}
			n := 0
			for k := range keys {
				if m.get(k, now) != nil {
					n++
				}
			}
			what, got, want = "Len", b.Len(), n
		}
		if got != want {
			t.Fatalf("step %d of walk %d: %s(%d) at %v = %v, the model says %v", i, seed, what, key, now.Sub(newClock().t), got, want)
		}
	}
	for key := range keys {
		e := m.get(key, c.now())
		if e == nil {
			e = &entry{deadline: c.now()}
		}
		if n, left := b.NumRequeues(key), b.Remaining(key); n != e.count || left != max(0, e.deadline.Sub(c.now())) {
			t.Errorf("walk %d ends with %d, %v for key %d; the model has %d, %v", seed, n, left, key, e.count, e.deadline.Sub(c.now()))
		}
	}
	return steps - idle
}
