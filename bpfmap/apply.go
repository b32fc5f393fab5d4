// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/cilium/ebpf"
)

// Apply carries a plan out: additions, changes, deletions while everything fits at once, else changes, deletions,
// additions. It writes what was decided, without reading the map again; only bytes that [WithIgnore] names are read
// right before they are written back. An element that fails keeps no other from being handled, and the report says what
// became of each. When the plan was refused ([WithMaxDelete]) the deletions are skipped and the error matches
// [ErrBudget].
//
// Before the first write the pin and the program ([WithPin], [WithProgram]) are asked for the map they use:
// [ErrSplitBrain] when that is another one, and nothing is written. An empty plan makes no call at all.
func (m *Map[K, V]) Apply(ctx context.Context, p Plan[K, V]) (Report, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, _, _, err := m.carryOut(ctx, p)
	return r, m.fail("apply", err)
}

func (m *Map[K, V]) carryOut(ctx context.Context, p Plan[K, V]) (r Report, added, changed int, err error) {
	defer func() {
		if err != nil { // the index need not know what is left to do
			m.plans.stale = true
		}
	}()
	if p.Empty() {
		return r, 0, 0, nil
	}
	if p.id != m.info.ID {
		return r, 0, 0, fmt.Errorf("the plan is for map %s (id %d), this is id %d", p.name, p.id, m.info.ID)
	}
	if err := m.cfg.undivided(m.table); err != nil {
		return r, 0, 0, err
	}
	add := func() {
		n := len(r.Failures)
		full := func(err error) bool { return noRoom(err) && !indexed(m.info.Type) } // there it is about one index
		added = m.stage(ctx, p.Add, p.add, &r, full)
		m.settled(p.add, r.Failures[n:], wroteValue)
	}
	del := func() {
		if p.Refused != nil {
			return
		}
		n := len(r.Failures)
		if p.array {
			zero := raw{p.del.keys, make([]byte, len(p.del.values))}
			r.Deleted += m.stage(ctx, p.Delete, zero, &r, nil)
			m.settled(zero, r.Failures[n:], wroteZero)
			return
		}
		deleted, missing := m.erase(ctx, p.del.keys, len(p.Delete), func(i int, err error) bool {
			r.Failures = append(r.Failures, Failure{i, p.Delete[i].Key, m.explain(err)})
			return true
		})
		r.Deleted, r.Missing = r.Deleted+deleted, r.Missing+missing
		m.settled(p.del, r.Failures[n:], deletedKey)
	}
	if p.Gap == 0 {
		add()
	}
	n := len(r.Failures)
	change := m.fresh(p.change, len(p.Change))
	changed = m.stage(ctx, p.Change, change, &r, nil)
	m.settled(change, r.Failures[n:], wroteValue)
	del()
	if p.Gap > 0 {
		add()
	}
	r.Written = added + changed
	total := len(p.Add) + len(p.Change) + len(p.Delete)
	return r, added, changed, errors.Join(r.failure(total), p.Refused)
}

// stage writes one part of a plan. Once an error is final nothing after it is tried: in a full map no addition fits.
func (m *Map[K, V]) stage(ctx context.Context, steps []Step[K, V], b raw, r *Report, final func(error) bool) (written int) {
	if len(steps) == 0 {
		return 0
	}
	var last error
	at := 0
	written = m.write(ctx, b.keys, b.values, len(steps), func(i int, err error) bool {
		r.Failures = append(r.Failures, Failure{i, steps[i].Key, m.explain(err)})
		at, last = i, err
		return final == nil || !final(err)
	})
	if last != nil && final != nil && final(last) {
		err := m.explain(last)
		for i := at + 1; i < len(steps); i++ {
			r.Failures = append(r.Failures, Failure{i, steps[i].Key, err})
		}
	}
	return written
}

// fresh puts the kernel's present bytes into the values of changes, where a program owns some. An entry that is gone
// keeps those it had when the plan was made.
func (m *Map[K, V]) fresh(b raw, n int) raw {
	if m.kept == nil || n == 0 {
		return b
	}
	s := m.pool.Get().(*scratch)
	defer m.pool.Put(s)
	out := raw{b.keys, append([]byte(nil), b.values...)}
	for i := range n {
		copy(s.key, b.keys[i*m.ks:(i+1)*m.ks])
		if m.b.Lookup(s.key, s.value) == nil { // an error shows in the write
			m.kept.copy(out.values[i*m.vs:(i+1)*m.vs], s.value)
		}
	}
	return out
}

// effect is what a write did to an entry.
type effect int

const (
	wroteValue effect = iota
	wroteZero         // a slot of an array that is not wanted
	deletedKey
)

// settled notes in the index what the kernel now has.
func (m *Map[K, V]) settled(b raw, failures []Failure, did effect) {
	x := m.plans.ix
	for i, n := 0, len(b.keys)/m.ks; i < n; i++ {
		if len(failures) > 0 && failures[0].Index == i {
			failures = failures[1:]
			continue
		}
		at, ok := x.find(b.keys[i*m.ks:(i+1)*m.ks], noSlot)
		switch {
		case !ok:
		case did == deletedKey:
			x.state[at].flags &^= present | held
		case did == wroteZero:
			clear(x.value(at))
			x.state[at].flags |= present | held
		case m.mask.equal(x.value(at), b.values[i*m.vs:(i+1)*m.vs]):
			x.state[at].flags = x.state[at].flags&^taken | present | held
		default: // an older plan than the last one
			x.state[at].flags = x.state[at].flags&^held | present
		}
	}
}

// shadows says that writes which go past the index are noted in it, under the lock and so in the order in which the
// kernel got them. That matters only between audits.
func (m *Map[K, V]) shadows() bool { return m.cfg.audit > 0 }

// wrote and erased note such a write.
func (m *Map[K, V]) wrote(key, value []byte, err error) {
	x := m.plans.ix
	if err != nil {
		m.plans.stale = true
		return
	}
	at, ok := x.find(key, noSlot)
	switch {
	case ok:
	case m.owned != nil && !m.owned(m.kc.get(key)):
		return // what the index knows and nobody wants is deleted
	default:
		at = x.add(key, value)
	}
	copy(x.value(at), value)
	x.state[at].flags |= present | held
}

func (m *Map[K, V]) erased(key []byte, err error) {
	x := m.plans.ix
	if err != nil {
		m.plans.stale = true
		return
	}
	if at, ok := x.find(key, noSlot); ok && m.array() {
		clear(x.value(at))
	} else if ok {
		x.state[at].flags &^= present | held
	}
}

func (m *Map[K, V]) remember(b *buffers, n, first int, failures []Failure, note func(key, value []byte, err error)) {
	if !m.shadows() {
		return
	}
	for i := range n {
		var err error
		if len(failures) > 0 && failures[0].Index == first+i {
			err, failures = failures[0].Err, failures[1:]
		}
		note(b.keys[i*m.ks:(i+1)*m.ks], b.values[i*m.vs:(i+1)*m.vs], err)
	}
}

// undivided makes sure that the pin and the program mean this map.
func (c *config) undivided(t *table) error {
	if c.pin != "" && c.pinned {
		if err := pinned(c.sys, c.pin, t); err != nil {
			return err
		}
	}
	if c.program == nil {
		return nil
	}
	info, err := c.program.Info()
	if err != nil {
		return fmt.Errorf("check the program's maps: %w", err)
	}
	ids, known := info.MapIDs()
	for _, id := range ids {
		if uint32(id) == t.info.ID {
			return nil
		}
	}
	if !known {
		return fmt.Errorf("%w: this kernel does not say which maps program %s uses", ErrUnsupported, info.Name)
	}
	return fmt.Errorf("%w: the program %s uses %s, this is map id %d", ErrSplitBrain, info.Name, mapIDs(ids), t.info.ID)
}

// pinned makes sure that a pin is this map.
func pinned(sys System, pin string, t *table) error {
	other, err := sys.OpenPin(pin, true)
	switch {
	case errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("%w: the pin %s is gone, this is map id %d", ErrSplitBrain, pin, t.info.ID)
	case err != nil:
		return fmt.Errorf("check the pin %s: %w", pin, err)
	}
	info, err := other.Info()
	if cerr := other.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("check the pin %s: %w", pin, err)
	}
	if info.ID != t.info.ID {
		return fmt.Errorf("%w: the pin %s is map id %d, this is map id %d", ErrSplitBrain, pin, info.ID, t.info.ID)
	}
	return nil
}

func mapIDs(ids []ebpf.MapID) string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = fmt.Sprintf("map id %d", id)
	}
	if len(out) == 0 {
		return "no map"
	}
	return brief(4, out)
}
