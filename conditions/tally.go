// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"container/heap"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Tally is [Summarize] kept up to date: members come, change and go one at a time, each in O(log n), and the summary is
// ready at any time without a look at the members. For equal members it equals Summarize byte for byte, whatever the
// order in which they came. A Tally is safe for concurrent use. Make it with [NewTally]; the zero Tally sums up nothing
// that has a name.
type Tally struct {
	mu      sync.Mutex
	as      Type
	source  string
	members map[string]*member
	groups  map[statement]*group
	ranked  [3]groupHeap      // by health: bad, Unknown, good
	reasons [3]map[string]int // how many groups give a reason
	count   [3]int
}

// NewTally returns an empty tally that sums up condition source of its members as condition as.Name; see [Summarize]
// for what as means.
func NewTally(as Type, source string) *Tally { return &Tally{as: as, source: source} }

// Put records the conditions of the member key, replacing what was recorded under it. conds is only read.
func (t *Tally) Put(key string, conds []metav1.Condition) {
	st := stateOf(&t.as, t.source, conds)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.members == nil {
		t.members, t.groups = map[string]*member{}, map[statement]*group{}
	}
	m := t.members[key]
	if m != nil {
		if m.group.statement == st {
			return
		}
		t.leave(m)
	} else {
		m = &member{key: key}
		t.members[key] = m
	}
	g := t.groups[st]
	if g == nil {
		g = &group{statement: st}
		t.groups[st] = g
		heap.Push(&t.ranked[st.health+1], g)
		t.giving(st, 1)
	}
	m.group = g
	heap.Push(&g.members, m)
	heap.Fix(&t.ranked[st.health+1], g.at)
	t.count[st.health+1]++
}

// Drop forgets the member key, if it is there.
func (t *Tally) Drop(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.members[key]; m != nil {
		t.leave(m)
		delete(t.members, key)
	}
}

// Len returns the number of members.
func (t *Tally) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.members)
}

func (t *Tally) leave(m *member) {
	g := m.group
	heap.Remove(&g.members, m.at)
	ranked := &t.ranked[g.health+1]
	if len(g.members) == 0 {
		heap.Remove(ranked, g.at)
		delete(t.groups, g.statement)
		t.giving(g.statement, -1)
	} else {
		heap.Fix(ranked, g.at)
	}
	t.count[g.health+1]--
}

// giving counts the groups by reason, so that Condition need not look at all of them to find whether they agree.
func (t *Tally) giving(st statement, n int) {
	reasons := &t.reasons[st.health+1]
	if *reasons == nil {
		*reasons = map[string]int{}
	}
	if (*reasons)[st.reason] += n; (*reasons)[st.reason] == 0 {
		delete(*reasons, st.reason)
	}
}

// Condition returns the summary. It costs the same for any number of members.
func (t *Tally) Condition() metav1.Condition {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := summary{as: &t.as, count: t.count}
	for h := range t.ranked {
		s.groups[h] = len(t.ranked[h])
		s.mixed[h] = len(t.reasons[h]) > 1
		for i, g := range smallest(t.ranked[h], topMessages) {
			names := smallest(g.members, topNames)
			s.top[h][i] = digest{statement: g.statement, count: len(g.members)}
			for k, m := range names {
				s.top[h][i].names[k] = m.key
			}
		}
	}
	return s.condition()
}

// member is one object in the heap of its group.
type member struct {
	key   string
	group *group
	at    int
}

// group is all members that say the same.
type group struct {
	statement
	members memberHeap
	at      int
}

type memberHeap []*member

func (h memberHeap) Len() int           { return len(h) }
func (h memberHeap) Less(i, j int) bool { return h[i].key < h[j].key }
func (h memberHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].at, h[j].at = i, j }
func (h *memberHeap) Push(x any)        { m := x.(*member); m.at = len(*h); *h = append(*h, m) }
func (h *memberHeap) Pop() any          { return pop(h) }

type groupHeap []*group

func (h groupHeap) Len() int { return len(h) }
func (h groupHeap) Less(i, j int) bool {
	return before(len(h[i].members), &h[i].statement, len(h[j].members), &h[j].statement)
}
func (h groupHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i]; h[i].at, h[j].at = i, j }
func (h *groupHeap) Push(x any)   { g := x.(*group); g.at = len(*h); *h = append(*h, g) }
func (h *groupHeap) Pop() any     { return pop(h) }

// pop takes the last element off and lets go of it.
func pop[H ~[]*E, E any](h *H) *E {
	n := len(*h) - 1
	last := (*h)[n]
	(*h)[n] = nil
	*h = (*h)[:n]
	return last
}

// smallest returns the k first elements of a heap in order without changing it. The k-th is at depth k at most, so
// 2^k-1 elements are all there is to look at.
func smallest[H interface {
	~[]E
	Less(i, j int) bool
}, E any](h H, k int) []E {
	n := min(len(h), 1<<k-1)
	var taken [1<<maxTop - 1]bool
	out := make([]E, 0, k)
	for len(out) < min(k, n) {
		best := -1
		for i := range n {
			if !taken[i] && (best < 0 || h.Less(i, best)) {
				best = i
			}
		}
		taken[best] = true
		out = append(out, h[best])
	}
	return out
}

// maxTop bounds what smallest can be asked for.
const maxTop = max(topMessages, topNames)
