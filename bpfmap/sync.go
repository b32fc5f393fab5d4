// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"
)

// Sync makes the map hold desired and nothing else that is ours: [Map.Plan] and [Map.Apply] in one. It reads the map in
// batches and writes only the difference; a map that is as wanted gets no write. After the first passes it allocates a
// few dozen times, however large the map.
//
// Result says what was found. An error comes with the result of what was done: elements that failed ([Report]),
// [ErrBudget], [ErrSplitBrain], [ErrUnstable] when the map could not be read, and [ErrNotConverging] when pass after pass
// finds gone or changed what the pass before had written. That last one is normal for an LRU near its capacity, which
// evicts early: there, and not where it has room, entries that were lost are then written back only now and then, see
// Result.RequeueAfter.
func (m *Map[K, V]) Sync(ctx context.Context, desired iter.Seq2[K, V]) (Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	res, err := m.sync(ctx, desired)
	err = m.fail("sync", err)
	if m.cfg.observe != nil && (err != nil || res.Written+res.Deleted > 0) {
		m.cfg.observe(Event{Map: m.name, Result: res, Err: err})
	}
	return res, err
}

func (m *Map[K, V]) sync(ctx context.Context, desired iter.Seq2[K, V]) (Result, error) {
	now := m.cfg.clock()
	read := m.cfg.audit == 0 || m.plans.last == 0 || m.plans.stale || !now.Before(m.plans.audits.next)
	p, err := m.plan(ctx, desired, read)
	if err != nil {
		return Result{Max: int(m.info.MaxEntries)}, err
	}
	if read {
		m.plans.stale = false
		m.plans.audits.read(now, m.cfg.audit)
	}
	res := Result{
		Unchanged: p.Unchanged, Foreign: p.Foreign, Drift: p.Drift, Gap: p.Gap, Used: p.Used, Max: p.Max, Audited: read,
	}
	evicts := m.evicts(p.undone.used + p.undone.n)
	hold, unsettled := m.plans.streak.pass(&p.undone, evicts, now)
	if hold {
		dropLost(&p, m.ks, m.vs)
	}
	res.Report, res.Added, res.Changed, err = m.carryOut(ctx, p)
	if !p.array {
		res.Used += res.Added - res.Deleted - res.Missing
	}
	if res.Max > 0 {
		res.Pressure = min(1, float64(res.Used)/float64(res.Max))
	}
	if unsettled != nil && evicts {
		res.RequeueAfter = m.plans.streak.next.Sub(now)
	}
	if m.cfg.audit > 0 {
		if due := m.plans.audits.next.Sub(now); res.RequeueAfter == 0 || due < res.RequeueAfter {
			res.RequeueAfter = max(due, time.Nanosecond)
		}
	}
	if unsettled != nil {
		m.plans.stale = true // a pass that does not look would write back at once what is held back
	}
	return res, errors.Join(err, unsettled)
}

// schedule says when the map is read next.
type schedule struct{ next time.Time }

func (s *schedule) read(now time.Time, every time.Duration) {
	if every > 0 {
		s.next = now.Add(time.Duration(float64(every) * (0.8 + 0.4*rand.Float64())))
	}
}

// undone is what a plan found gone or changed although it was written before.
type undone struct {
	n, used, most int
	read          bool
}

// streak counts passes in a row that found something undone.
type streak struct {
	passes int
	wait   time.Duration
	next   time.Time // when an LRU's lost entries are written again
}

const (
	streakLimit    = 3 // passes in a row that say a map does not converge
	streakLimitLRU = 2 // an LRU that evicts once will do so again
	streakWait     = time.Second
	streakWaitMost = 5 * time.Minute
)

// pass counts one. Hold says to leave lost entries alone: in a full LRU each of them would push another wanted entry
// out, so they are written back after 1 s, 2 s, 4 s and so on, at most 5 min.
func (s *streak) pass(u *undone, evicts bool, now time.Time) (hold bool, err error) {
	limit, why := streakLimit, "somebody else writes them"
	if evicts {
		limit, why = streakLimitLRU, fmt.Sprintf("an LRU evicts before it is full, and %d of %d are used: make it larger", u.used, u.most)
	}
	if !u.read {
		return false, nil
	}
	if u.n == 0 {
		*s = streak{}
		return false, nil
	}
	if s.passes++; s.passes < limit {
		return false, nil
	}
	if hold = evicts && now.Before(s.next); evicts && !hold {
		s.wait = min(max(streakWait, 2*s.wait), streakWaitMost)
		s.next = now.Add(s.wait)
	}
	return hold, fmt.Errorf("%w: %d passes in a row found entries gone or changed that were written before, now %d: %s",
		ErrNotConverging, s.passes, u.n, why)
}

// dropLost takes the additions that were lost out of a plan.
func dropLost[K, V any](p *Plan[K, V], ks, vs int) {
	var keep []Step[K, V]
	var b raw
	for i, s := range p.Add {
		if s.Why != Lost {
			keep = append(keep, s)
			b.put(p.add.keys[i*ks:(i+1)*ks], p.add.values[i*vs:(i+1)*vs])
		}
	}
	p.Add, p.add = keep, b
}
