// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"time"
)

// Remotes keeps calls away from systems that are busy or down, each by itself: a rate that gives way when the remote
// throttles and recovers when it answers, a breaker that stops all calls but one probe after failures in a row, and the
// pause a remote asked for with Retry-After. What it costs to find out that a remote is not to be called is a map
// look-up, not a worker that waits for a timeout.
//
// Ask [Remotes.Admit] before a call and tell [Remotes.Report] its outcome; a probe of which nobody tells within 30 s is
// followed by another one. [PerRemote] makes a [Gate] of it, for which reconcilelimit does both, and which tells the probe
// from calls that began before the breaker opened. All methods may be called at the same time.
//
// A remote that is as good as new is not remembered. One that is costs about 250 bytes; see [WithMaxKeys].
type Remotes[R comparable] struct {
	mu       sync.Mutex
	watch    stopwatch
	seed     maphash.Seed
	observer func(Event)
	rate     float64
	minRate  float64
	burst    int
	failures int
	open     curve
	maxAfter time.Duration
	most     int
	remotes  map[R]*remote
	keys     waiting // places in the lines of all remotes
}

type remote struct {
	line     line
	rate     float64
	slowed   int64  // when the rate was halved last
	changed  int64  // when it was changed last
	failures int    // in a row
	trips    int    // times the breaker has opened since the remote answered; zero: closed
	until    int64  // nothing is admitted before
	probe    int64  // until when the answer of a probe is waited for; zero: none is under way
	prober   uint64 // the hash of the key that is the probe; zero: not known
}

// probed reports whether the one with the hash h, zero for unknown, may be the probe that is under way.
func (m *remote) probed(h uint64) bool {
	return m.trips > 0 && m.probe != 0 && (h == 0 || m.prober == 0 || h == m.prober)
}

const (
	// adjust is how often a rate is changed at most: one round of calls tells nothing new about the same congestion.
	adjust = int64(time.Second)
	// recovery is how many steps it takes from nothing to the full rate.
	recovery = 20
	// probing is how long a probe may take before another one is sent.
	probing = int64(30 * time.Second)
)

// NewRemotes returns Remotes that admit up to rate runs a second for each remote, and up to burst at once after a pause.
//
// When a remote throttles, its rate is halved, once a second at most; every second in which it answers gives a 20th of
// the full rate back. WithMinRate, WithBreaker, WithMaxAfter, WithMaxKeys (of remotes; default 65536), WithClock and
// WithObserver apply.
func NewRemotes[R comparable](rate float64, burst int, opts ...Option) (*Remotes[R], error) {
	c, err := newConfig(config{
		maxKeys: 1 << 16, minRate: rate / 64, failures: 5, open: Exp(time.Second, time.Minute), maxAfter: defaultMaxAfter,
	}, opts, "WithMinRate", "WithBreaker", "WithMaxAfter", "WithMaxKeys", "WithClock", "WithObserver")
	err = errors.Join(checkRate(rate), checkBurst(burst), err)
	if err == nil && c.minRate > rate {
		err = fmt.Errorf("WithMinRate: rate: %v is above the rate %v", c.minRate, rate)
	}
	if err != nil {
		return nil, fmt.Errorf("new remotes: %w", err)
	}
	return &Remotes[R]{
		watch: newStopwatch(c.clock), seed: maphash.MakeSeed(), observer: c.observe,
		rate: rate, minRate: c.minRate, burst: burst, failures: c.failures, open: c.open.curve(), maxAfter: c.maxAfter,
		most: c.maxKeys, remotes: map[R]*remote{}, keys: waiting{most: defaultMaxKeys},
	}, nil
}

// Admit answers whether a call to the remote may be made now, and if not, when it is worth asking again.
func (r *Remotes[R]) Admit(to R) (wait time.Duration, ok bool) { return r.admit(to, 0) }

// admit is Admit for a key with the hash h, which keeps its place in the line; zero for none.
func (r *Remotes[R]) admit(to R, h uint64) (time.Duration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.watch.now()
	m := r.remotes[to]
	switch {
	case m == nil:
		m = r.meet(to, now)
	case m.until > now:
		return r.later(m.until-now, h, now), false
	case m.trips > 0:
		if m.probe > now {
			return r.later(min(m.probe-now, int64(time.Second)), h, now), false
		}
		m.probe, m.prober = now+probing, h
		return 0, true
	}
	if h != 0 {
		return m.line.admit(now, &r.keys, h)
	}
	// Who cannot be recognised cannot keep a place, and would go to the end of the line for ever.
	if m.line.take(now) {
		return 0, true
	}
	m.line.late = max(m.line.late+m.line.every, m.line.next-m.line.slack)
	return time.Duration(m.line.late - now), false
}

// later spreads those who are sent away together by up to a tenth.
func (r *Remotes[R]) later(wait int64, h uint64, now int64) time.Duration {
	return time.Duration(wait) + time.Duration(scale(mix(h, uint64(now)), uint64(wait/10)+1))
}

// meet makes room for a remote, and remembers it. If there are too many, one goes whose pause ends sooner than those of a
// few others: remotes that come by do not make it forget one that is down.
func (r *Remotes[R]) meet(to R, now int64) *remote {
	var victim R
	var least *remote
	looked := 0
	for other, m := range r.remotes { // begins anywhere
		switch {
		case m.asNew(r.rate, now):
			delete(r.remotes, other)
		case least == nil || m.until < least.until:
			victim, least = other, m
		}
		if looked++; looked == 2*sample {
			break
		}
	}
	if len(r.remotes) >= r.most {
		delete(r.remotes, victim)
	}
	m := &remote{rate: r.rate, line: newLine(r.rate, r.burst)}
	r.remotes[to] = m
	return m
}

// asNew: there is nothing to remember about the remote.
func (m *remote) asNew(rate float64, now int64) bool {
	return m.rate == rate && m.failures == 0 && m.trips == 0 && m.until <= now && m.line.next <= now && m.line.end <= now
}

// Refund takes an [Remotes.Admit] back that no call followed.
func (r *Remotes[R]) Refund(to R) { r.refund(to, 0) }

func (r *Remotes[R]) refund(to R, h uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch m := r.remotes[to]; {
	case m == nil:
	case m.probed(h):
		m.probe = 0 // the next one to ask is the probe
	default:
		m.line.refund()
	}
}

// Report tells how a call to the remote ended. Its class is found by [Classify]: Throttled slows the remote down and
// pauses it for After; Transient counts for the breaker, and pauses for After, too; everything else, success included,
// is an answer.
func (r *Remotes[R]) Report(to R, err error) { r.tell(to, 0, err) }

// tell is Report for a key with the hash h; zero for unknown.
func (r *Remotes[R]) tell(to R, h uint64, err error) {
	verdict := Error{}
	if err != nil {
		verdict = classify(err, nil)
	}
	for _, event := range r.report(to, h, verdict) {
		if event.Kind != "" && r.observer != nil {
			event.Key, event.Class, event.Err = to, verdict.Class, err
			r.observer(event)
		}
	}
}

// report returns what has changed: the breaker, and the rate.
func (r *Remotes[R]) report(to R, h uint64, verdict Error) (events [2]Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.watch.now()
	m := r.remotes[to]
	if m == nil {
		if verdict.Class != Transient && verdict.Class != Throttled {
			return events
		}
		m = r.meet(to, now)
	}
	if verdict.After > 0 {
		pause := int64(min(verdict.After, r.maxAfter))
		m.until = max(m.until, now+pause)
	}
	if verdict.Class == Transient {
		events[0] = r.failed(m, h, now)
		return events
	}
	if m.trips > 0 {
		events[0].Kind = EventClosed
	}
	m.failures, m.trips, m.probe = 0, 0, 0
	switch {
	case verdict.Class == Throttled:
		// A step of recovery in the same second is no reason not to listen.
		if now-m.slowed >= adjust || m.slowed == 0 {
			m.setRate(max(r.minRate, m.rate/2), r.burst, now)
			m.slowed = m.changed
			events[1] = Event{Kind: EventSlowed, Delay: time.Duration(max(0, m.until-now))}
		}
	case m.rate < r.rate && now-m.changed >= adjust:
		m.setRate(min(r.rate, m.rate+r.rate/recovery), r.burst, now)
	}
	return events
}

func (m *remote) setRate(rate float64, burst int, now int64) {
	m.rate, m.changed = rate, max(1, now)
	m.line.setRate(now, rate, burst)
}

// failed counts for the breaker.
func (r *Remotes[R]) failed(m *remote, h uint64, now int64) Event {
	m.failures++
	if m.trips > 0 && !m.probed(h) || m.trips == 0 && m.failures < r.failures {
		return Event{} // a call that was under way when the breaker opened, or not enough of them yet
	}
	m.trips = min(m.trips+1, maxSteps)
	m.probe = 0
	pause := r.open.after(m.trips, maphash.Comparable(r.seed, now))
	m.until = max(m.until, now+int64(pause))
	return Event{Kind: EventOpened, Count: m.failures, Delay: time.Duration(m.until - now)}
}

// RemoteState is what [Remotes] thinks of one remote.
type RemoteState struct {
	Rate  float64       // runs a second that are admitted now
	Open  bool          // the breaker is open: nothing but a probe is admitted
	Pause time.Duration // nothing at all is admitted for so long
}

// State returns what is thought of a remote; one that is not remembered is as good as new.
func (r *Remotes[R]) State(of R) RemoteState {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.remotes[of]
	if m == nil {
		return RemoteState{Rate: r.rate}
	}
	return RemoteState{Rate: m.rate, Open: m.trips > 0, Pause: time.Duration(max(0, m.until-r.watch.now()))}
}

// Len is the number of remotes that are remembered.
func (r *Remotes[R]) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.remotes)
}

type perRemote[K, R comparable] struct {
	*Remotes[R]
	of func(K) R
}

// PerRemote returns a [Gate] that asks r about the remote that a key belongs to. Keys that are sent away for the rate of
// their remote keep their order. The gate also has Refund and Report.
//
// of is called for every key, and must not be nil.
func PerRemote[K, R comparable](r *Remotes[R], of func(K) R) Gate[K] { return &perRemote[K, R]{r, of} }

// Admit implements Gate.
func (p *perRemote[K, R]) Admit(key K) (time.Duration, bool) {
	return p.admit(p.of(key), p.id(key))
}

func (p *perRemote[K, R]) id(key K) uint64 { return ident(maphash.Comparable(p.seed, key)) }

// Refund takes an Admit back.
func (p *perRemote[K, R]) Refund(key K) { p.refund(p.of(key), p.id(key)) }

// Report tells how a run ended.
func (p *perRemote[K, R]) Report(key K, err error) { p.tell(p.of(key), p.id(key), err) }
