// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimittest

import (
	"container/heap"
	"fmt"
	"math"
	"time"

	"github.com/ashlar-go/ashlar/ratelimit"
)

// Arrival is a key that wants to run, from a time on.
type Arrival[K comparable] struct {
	At  time.Duration // since the start
	Key K             // who
}

// Crowd is what is simulated: keys that arrive at a gate, and come back after exactly the wait they were given.
type Crowd[K comparable] struct {
	Arrivals []Arrival[K] // in any order; a key may arrive again
	// For is how long is simulated. Zero: until everybody was admitted, which never comes to an end if somebody starves.
	For time.Duration
	// Sleep moves the clock of the gate: the Sleep of a [Clock], or nil for time.Sleep in a bubble of testing/synctest.
	Sleep func(time.Duration)
	// Rival makes the n-th rival: a fresh key that asks the gate whenever one of the arrivals comes back, and before it.
	// A rival that is sent away does not come back. Nil: there are none.
	Rival func(n int) K
}

// Admission is one key that was let in.
type Admission[K comparable] struct {
	Key     K             // who
	Arrived time.Duration // when it wanted to
	At      time.Duration // when it was let in
	Asks    int           // how often it had to ask
}

// Wait is how long it took.
func (a Admission[K]) Wait() time.Duration { return a.At - a.Arrived }

// Report is how a simulation went.
type Report[K comparable] struct {
	Admitted []Admission[K] // in order
	Waiting  []Admission[K] // who was not let in; At is the end of the simulation
	Rivals   int            // how many rivals were let in
	Asks     int            // how often the gate was asked, rivals apart
	Faults   []string       // where the gate broke the contract of ratelimit.Gate
}

// Longest is the admission, or the wait that has not ended, that took longest.
func (r Report[K]) Longest() Admission[K] {
	var longest Admission[K]
	for _, all := range [][]Admission[K]{r.Admitted, r.Waiting} {
		for _, a := range all {
			if longest.Asks == 0 || a.Wait() > longest.Wait() {
				longest = a
			}
		}
	}
	return longest
}

// Simulate runs a crowd against a gate.
func Simulate[K comparable](g ratelimit.Gate[K], c Crowd[K]) Report[K] {
	sleep := c.Sleep
	if sleep == nil {
		sleep = time.Sleep
	}
	var r Report[K]
	due := make(agenda[K], 0, len(c.Arrivals))
	for i, a := range c.Arrivals {
		due = append(due, &visit[K]{at: a.At, seq: i, Admission: Admission[K]{Key: a.Key, Arrived: a.At}})
	}
	heap.Init(&due)
	now, seq, rivals := time.Duration(0), len(due), 0
	for len(due) > 0 && (c.For == 0 || due[0].at <= c.For) {
		v := heap.Pop(&due).(*visit[K])
		if v.at > now {
			sleep(v.at - now)
			now = v.at
		}
		if c.Rival != nil && v.Asks > 0 {
			if _, ok := g.Admit(c.Rival(rivals)); ok {
				r.Rivals++
			}
			rivals++
		}
		r.Asks++
		v.Asks++
		wait, ok := g.Admit(v.Key)
		if ok {
			v.At = now
			r.Admitted = append(r.Admitted, v.Admission)
			continue
		}
		if wait <= 0 {
			r.Faults = append(r.Faults, fmt.Sprintf("%v was sent away for %v at %v: it would be back at once", v.Key, wait, now))
			wait = time.Millisecond
		}
		seq++
		v.at, v.seq = now+min(wait, math.MaxInt64-now), seq
		heap.Push(&due, v)
	}
	if c.For > now {
		sleep(c.For - now)
		now = c.For
	}
	for _, v := range due {
		if v.Arrived <= now {
			v.At = now
			r.Waiting = append(r.Waiting, v.Admission)
		}
	}
	return r
}

type visit[K comparable] struct {
	Admission[K]
	at  time.Duration
	seq int // who was sent away first asks first
}

type agenda[K comparable] []*visit[K]

// Len implements heap.Interface.
func (a agenda[K]) Len() int { return len(a) }

// Less implements heap.Interface.
func (a agenda[K]) Less(i, j int) bool {
	if a[i].at != a[j].at {
		return a[i].at < a[j].at
	}
	return a[i].seq < a[j].seq
}

// Swap implements heap.Interface.
func (a agenda[K]) Swap(i, j int) { a[i], a[j] = a[j], a[i] }

// Push implements heap.Interface.
func (a *agenda[K]) Push(v any) { *a = append(*a, v.(*visit[K])) }

// Pop implements heap.Interface.
func (a *agenda[K]) Pop() any {
	last := len(*a) - 1
	v := (*a)[last]
	*a = (*a)[:last]
	return v
}
