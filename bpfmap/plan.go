// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"reflect"
	"strings"
)

// Reason says why a step is in a plan.
type Reason string

// The reasons. The first three stand for everything before a process has seen the map once.
const (
	Missing Reason = "missing" // wanted, not there
	Differs Reason = "differs" // there with another value
	Unknown Reason = "unknown" // there, and never wanted as far as this process knows
	Changed Reason = "changed" // another value is wanted than in the last pass
	Stale   Reason = "stale"   // no longer wanted
	Lost    Reason = "lost"    // was there after the last pass: deleted, or evicted from an LRU
	Drifted Reason = "drifted" // had the wanted value after the last pass
)

// Step is one write. Old is the value the map has (zero for an addition, and between audits unknown and zero), New the
// one that is wanted (zero for a deletion).
type Step[K, V any] struct {
	Key      K      // which entry
	Old, New V      // its value before and after
	Why      Reason // what was found
}

// Plan is the difference between a map and what is wanted, decided and not yet carried out. Its steps are for reading:
// [Map.Apply] writes what was decided.
type Plan[K, V any] struct {
	Add, Change, Delete []Step[K, V] // what is to be written, by kind

	Unchanged int // entries that are as wanted
	Foreign   int // entries that are not ours ([WithOwned])
	Used, Max int // entries in the map, and its room
	Drift     int // steps that are Lost or Drifted, or Unknown after the first pass
	// Gap is how many wanted keys are missing for a moment although room for them is made: 0 when everything fits at
	// once, and additions come before deletions; else deletions come first and Gap is len(Add). A [Nested] map has no
	// gap: fill a fresh inner map and flip.
	Gap int
	// Overflow is how many wanted entries will not fit even then. Applying writes as many as do and reports the rest.
	Overflow int
	// Refused is a *[BudgetError] when the deletions exceed [WithMaxDelete]: applying skips them all and returns it.
	Refused error
	// Audited: the kernel was read for this plan.
	Audited bool

	add, change, del raw
	undone           undone
	name             string
	id               uint32
	array            bool
}

// raw are the steps' bytes, as they are written.
type raw struct{ keys, values []byte }

func (r *raw) put(key, value []byte) {
	r.keys = append(r.keys, key...)
	r.values = append(r.values, value...)
}

// Empty says that nothing differs.
func (p Plan[K, V]) Empty() bool { return len(p.Add)+len(p.Change)+len(p.Delete) == 0 }

// planner is what a map remembers between passes.
type planner struct {
	ix      *index
	bufs    buffers
	last    uint32 // last pass that was decided, 0 before the first
	stale   bool   // something failed: the next pass reads the map
	foreign int    // entries of others at the last read
	sizes   [3]int // of the last plan: the next is probably as large
	audits  schedule
	streak  streak
}

// Plan reads the whole map and decides what has to be written so that it holds desired and nothing else that is ours.
// It writes nothing. Values are compared as bytes, without padding and what [WithIgnore] names. A key that comes twice
// with different values, or that is not ours, is an error. In an array every slot exists: one that is not wanted and not
// zero is in Delete, which zeroes it.
func (m *Map[K, V]) Plan(ctx context.Context, desired iter.Seq2[K, V]) (Plan[K, V], error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := m.plan(ctx, desired, true)
	return p, m.fail("plan", err)
}

func (m *Map[K, V]) plan(ctx context.Context, desired iter.Seq2[K, V], read bool) (Plan[K, V], error) {
	p := Plan[K, V]{Max: int(m.info.MaxEntries), Audited: read, name: m.name, id: m.info.ID, array: m.array()}
	m.plans.ix.compact()
	if err := m.want(desired); err != nil {
		m.plans.stale = true
		return Plan[K, V]{}, err
	}
	for i, part := range []struct {
		steps *[]Step[K, V]
		bytes *raw
	}{{&p.Add, &p.add}, {&p.Change, &p.change}, {&p.Delete, &p.del}} {
		if n := m.plans.sizes[i]; n > 0 {
			n += n / 4
			*part.steps = make([]Step[K, V], 0, n)
			*part.bytes = raw{make([]byte, 0, n*m.ks), make([]byte, 0, n*m.vs)}
		}
	}
	if read {
		if err := m.hold(ctx, &p); err != nil {
			m.plans.stale = true
			return Plan[K, V]{}, err
		}
	}
	if err := m.settle(&p); err != nil {
		return Plan[K, V]{}, err
	}
	m.plans.last = m.plans.ix.pass
	m.plans.sizes = [3]int{len(p.Add), len(p.Change), len(p.Delete)}
	m.judge(&p)
	return p, nil
}

// want marks what is wanted in the index.
func (m *Map[K, V]) want(desired iter.Seq2[K, V]) (err error) {
	x := m.plans.ix
	x.pass++
	s := m.pool.Get().(*scratch)
	defer m.pool.Put(s)
	guess := uint32(0)
	for k, v := range desired {
		if err = m.kc.put(s.key, k); err == nil {
			err = m.vc.put(s.value, v)
		}
		if err != nil {
			return fmt.Errorf("%v: %w", k, err)
		}
		at, known := x.find(s.key, guess)
		guess = at + 1
		if !known {
			if m.owned != nil && !m.owned(k) {
				return fmt.Errorf("%v is wanted, but WithOwned says that it is not ours", k)
			}
			at = x.add(s.key, s.value)
			x.state[at].wanted = x.pass
			guess = at + 1
			continue
		}
		st := &x.state[at]
		same := m.mask.equal(x.value(at), s.value)
		switch {
		case st.wanted == x.pass && !same:
			return fmt.Errorf("%v is wanted twice, with different values", k)
		case st.wanted == x.pass:
			continue
		case same:
			st.flags &^= fresh
		default:
			st.flags = st.flags&^(held|taken) | fresh
		}
		if !same || m.mask != nil { // bytes that are not compared are still those a new entry starts with
			copy(x.value(at), s.value)
		}
		st.wanted = x.pass
	}
	return nil
}

// hold reads the map and compares.
func (m *Map[K, V]) hold(ctx context.Context, p *Plan[K, V]) error {
	x, first := m.plans.ix, m.plans.last == 0
	x.reading()
	defer x.read()
	return m.walk(ctx, &m.plans.bufs, false, func(keys, values []byte, n int) error {
		p.Used += n
		for i := range n {
			if i%32 == 0 {
				x.ahead(32)
			}
			key, value := keys[i*m.ks:(i+1)*m.ks], values[i*m.vs:(i+1)*m.vs]
			at, known := x.row(key)
			if known {
				st := &x.state[at]
				st.seen = x.pass
				if st.wanted == x.pass {
					if m.mask.equal(x.value(at), value) {
						st.flags = st.flags&^taken | held | present
						p.Unchanged++
						continue
					}
					if st.flags&held != 0 {
						st.flags |= taken
					}
					why := Differs
					switch {
					case st.flags&taken != 0:
						why = Drifted
					case st.flags&fresh != 0:
						why = Changed
					}
					st.flags = st.flags&^held | present
					p.change.put(key, x.value(at))
					written := p.change.values[len(p.change.values)-m.vs:]
					m.kept.copy(written, value)
					p.Change = append(p.Change, Step[K, V]{m.kc.get(key), m.vc.get(value), m.vc.get(written), why})
					continue
				}
			} else if m.owned != nil && !m.owned(m.kc.get(key)) {
				p.Foreign++
				continue
			}
			if p.array && m.filled.empty(value) {
				continue
			}
			why := Unknown
			if known {
				why = Stale
				x.state[at].flags |= present
			}
			p.Delete = append(p.Delete, Step[K, V]{Key: m.kc.get(key), Old: m.vc.get(value), Why: why})
			p.del.put(key, value)
			if why == Unknown && !first {
				p.Drift++
			}
		}
		return nil
	})
}

// settle goes through the index once: what was not found has to be added, or, without a read, whatever we have not
// written.
func (m *Map[K, V]) settle(p *Plan[K, V]) error {
	x := m.plans.ix
	if !p.Audited {
		p.Foreign, p.Used = m.plans.foreign, m.plans.foreign
	}
	for i := range x.state {
		at, st := uint32(i), &x.state[i]
		wanted := st.wanted == x.pass
		if p.Audited {
			if st.seen == x.pass {
				continue
			}
			if st.flags&held != 0 {
				st.flags |= taken
			}
			st.flags &^= present | held
			if !wanted {
				continue
			}
			if p.array {
				return fmt.Errorf("%w: %v is wanted, the array has %d slots", ErrRange, m.kc.get(x.key(at)), p.Max)
			}
			why := Missing
			if st.flags&taken != 0 {
				why = Lost
			}
			m.addition(p, at, why)
			continue
		}
		here := st.flags&present != 0
		if here {
			p.Used++
		}
		switch {
		case wanted && st.flags&held != 0:
			p.Unchanged++
		case wanted && here:
			p.Change = append(p.Change, Step[K, V]{Key: m.kc.get(x.key(at)), New: m.vc.get(x.value(at)), Why: Changed})
			p.change.put(x.key(at), x.value(at))
		case wanted:
			m.addition(p, at, Missing)
		case here && !(p.array && m.filled.empty(x.value(at))):
			p.Delete = append(p.Delete, Step[K, V]{Key: m.kc.get(x.key(at)), Old: m.vc.get(x.value(at)), Why: Stale})
			p.del.put(x.key(at), x.value(at))
		}
	}
	if p.Audited {
		m.plans.foreign = p.Foreign
	}
	n := 0
	for _, list := range [][]Step[K, V]{p.Add, p.Change} {
		for i := range list {
			if list[i].Why == Lost || list[i].Why == Drifted {
				n++
			}
		}
	}
	p.Drift += n
	p.undone = undone{n, p.Used, p.Max, p.Audited}
	return nil
}

func (m *Map[K, V]) addition(p *Plan[K, V], at uint32, why Reason) {
	x := m.plans.ix
	p.Add = append(p.Add, Step[K, V]{Key: m.kc.get(x.key(at)), New: m.vc.get(x.value(at)), Why: why})
	p.add.put(x.key(at), x.value(at))
}

// judge sets the order, what will not fit, and whether the budget permits it.
func (m *Map[K, V]) judge(p *Plan[K, V]) {
	p.Refused = m.cfg.budget.refuses(len(p.Delete), p.Used-p.Foreign)
	if room := p.Max - p.Used; !p.array && len(p.Add) > room {
		p.Gap = len(p.Add)
		if p.Refused == nil {
			room += len(p.Delete)
		}
		if !lru(m.info.Type) {
			p.Overflow = max(0, len(p.Add)-room)
		}
	}
}

// refuses says why n of so many keys of ours may not be deleted.
func (b Budget) refuses(n, ours int) error {
	switch {
	case b.Max > 0 && n > b.Max:
		return &BudgetError{n, ours, fmt.Sprintf("more than Budget.Max %d", b.Max)}
	case b.Percent > 0 && (n-b.Free)*100 > b.Percent*ours:
		return &BudgetError{n, ours, fmt.Sprintf("more than Budget.Percent %d beyond Budget.Free %d", b.Percent, b.Free)}
	}
	return nil
}

// empty says that every byte that is compared is zero.
func (m mask) empty(value []byte) bool {
	if m == nil {
		return len(bytes.TrimLeft(value, "\x00")) == 0
	}
	for i := range m {
		if value[i]&m[i] != 0 {
			return false
		}
	}
	return true
}

const shown = 20 // steps of a kind that String prints

// String prints the plan as a diff: one line for each step, fields that differ with both values.
func (p Plan[K, V]) String() string {
	var b strings.Builder
	verb, order := "delete", "add, change, delete"
	if p.array {
		verb, order = "zero", "change, zero"
	} else if p.Gap > 0 {
		order = fmt.Sprintf("change, delete, add: %d keys missing meanwhile", p.Gap)
	}
	fmt.Fprintf(&b, "%s: %d to add, %d to change, %d to %s, %d as wanted", p.name, len(p.Add), len(p.Change), len(p.Delete), verb, p.Unchanged)
	if p.Foreign > 0 {
		fmt.Fprintf(&b, ", %d of others", p.Foreign)
	}
	fmt.Fprintf(&b, " (%d of %d used)\n", p.Used, p.Max)
	if p.Empty() {
		return b.String()
	}
	fmt.Fprintf(&b, "order: %s\n", order)
	if p.Overflow > 0 {
		fmt.Fprintf(&b, "%d will not fit\n", p.Overflow)
	}
	if p.Refused != nil {
		fmt.Fprintf(&b, "%v\n", p.Refused)
	}
	list(&b, p.Add, func(s Step[K, V]) string { return fmt.Sprintf("+ %v: %+v", s.Key, s.New) })
	list(&b, p.Change, func(s Step[K, V]) string { return fmt.Sprintf("~ %v: %s", s.Key, p.fields(s)) })
	list(&b, p.Delete, func(s Step[K, V]) string { return fmt.Sprintf("- %v: %+v", s.Key, s.Old) })
	return b.String()
}

func list[K, V any](b *strings.Builder, steps []Step[K, V], line func(Step[K, V]) string) {
	for i, s := range steps {
		if i == shown {
			fmt.Fprintf(b, "  … %d more\n", len(steps)-shown)
			return
		}
		fmt.Fprintf(b, "%s (%s)\n", line(s), s.Why)
	}
}

// fields prints what differs between two values, field by field when they have any.
func (p Plan[K, V]) fields(s Step[K, V]) string {
	if !p.Audited {
		return fmt.Sprintf("→ %+v", s.New)
	}
	was, now := reflect.ValueOf(s.Old), reflect.ValueOf(s.New)
	if was.Kind() != reflect.Struct {
		return fmt.Sprintf("%+v → %+v", s.Old, s.New)
	}
	var out []string
	for i := range was.NumField() {
		a, b := fmt.Sprintf("%+v", was.Field(i)), fmt.Sprintf("%+v", now.Field(i))
		if f := was.Type().Field(i); f.Name != "_" && a != b {
			out = append(out, fmt.Sprintf("%s %s → %s", f.Name, a, b))
		}
	}
	return strings.Join(out, ", ")
}
