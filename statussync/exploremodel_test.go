// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync

// The model of explore_test.go: a server, a lagging cache, two processes that run the real planner and the real memory,
// a user, a vandal, and the laws.

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// verdict is what a process wants to say: about an incarnation (1, 2) and a generation (1 to 3), with a truth (0, 1)
// that no generation tells.
type verdict struct{ inc, gen, bit int8 }

// cell is a condition: what it says and the generation it is labelled with.
type cell struct {
	says verdict // inc 0: absent; inc 9: a vandal's
	og   int8
}

// object is one version of the object.
type object struct {
	rv       int8
	inc      int8 // 0: does not exist
	gen      int8
	observed int8
	cells    [2]cell // Ready of the first writer, Net of the second
	foreign  int8
}

// stage of a process between its requests.
type stage int8

const (
	idle stage = iota
	applying
	reading
)

// process is one writer at work.
type process struct {
	seen   int8 // newest version its cache has shown
	stage  stage
	want   verdict
	base   object // version the pending apply is decided on
	try    int8
	asked  int8 // requests of this pass
	passes int8
	looks  bool // the pending read is no retry
	note   [2]note
}

// note stands for a memo: what makes one.
type note struct {
	known  bool
	said   verdict
	stored object
	takes  int8
	until  bool // backed off
}

// budget bounds the environment.
type budget struct{ bumps, deletes, vandals, foreigns, faults int8 }

// world is a state. hist holds the newest version and the two before it.
type world struct {
	hist   [3]object
	procs  [2]process
	left   budget
	newest [3]int8 // newest generation ever stored, by incarnation: a ghost, for the laws
}

// The laws.
const (
	lawFree     = "a converged object costs nothing"
	lawKept     = "a verdict is not dropped"
	lawStale    = "stale means that a newer verdict was live"
	lawGone     = "gone means gone"
	lawBounded  = "a pass is bounded"
	lawForward  = "observedGeneration never goes back"
	lawLabel    = "nothing is relabelled"
	lawNewcomer = "a newcomer is not written by an old verdict"
	lawForeign  = "others' conditions stay"
	lawSettles  = "the last verdict gets its say"
)

var laws = []string{lawFree, lawKept, lawStale, lawGone, lawBounded, lawForward, lawLabel, lawNewcomer, lawForeign, lawSettles}

// config says who owns what.
type config struct {
	name   string
	owned  [2]owned // of the processes
	cell   [2]int   // the cell a process writes
	policy policy
}

// policy is the planner and the protocol around it, or a mutant.
type policy struct {
	decide    func(o *owned, v *view, w *want, m *memo, fresh bool, now time.Time, s *settings) decision
	relabel   bool // labels with the live generation
	unfenced  bool // sends no version
	wholeList bool // sends the others' conditions as well, as it read them
	byName    bool // remembers by name instead of uid
}

var (
	noon  = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	later = noon.Add(time.Hour)
	rules = settings{interval: 0}
	uids  = [3]types.UID{"", "uid-1", "uid-2"}
)

func newConfig(t *testing.T, name string, p policy, owns ...Owns) *config {
	t.Helper()
	c := &config{name: name, policy: p}
	for i, o := range owns {
		w, err := newOwned(o, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.owned[i] = w
		if o.Conditions[0] == "Net" {
			c.cell[i] = 1
		}
	}
	return c
}

func configs(t *testing.T, p policy) []*config {
	t.Helper()
	a, b := Owns{Conditions: []string{"Ready"}, Primary: true}, Owns{Conditions: []string{"Net"}}
	return []*config{
		newConfig(t, "an old and a new leader", p, a, a),
		newConfig(t, "two writers", p, a, b),
	}
}

var reasons = func() map[verdict]string {
	m := map[verdict]string{{inc: 9}: "Vandal"}
	for inc := range int8(3) {
		for gen := range int8(4) {
			for bit := range int8(2) {
				m[verdict{inc, gen, bit}] = fmt.Sprintf("I%dG%dB%d", inc, gen, bit)
			}
		}
	}
	return m
}()

func (c *config) view(i int, o object) *view {
	v := &view{uid: uids[o.inc], resourceVersion: fmt.Sprint(100 + int(o.rv)), generation: int64(o.gen), named: true}
	if c.owned[i].primary {
		v.observed = int64(o.observed)
	}
	for k, typ := range [...]string{"Ready", "Net"} {
		if says := o.cells[k].says; says.inc != 0 {
			v.conditions = append(v.conditions, metav1.Condition{Type: typ, Status: "True", Reason: reasons[says],
				ObservedGeneration: int64(o.cells[k].og), LastTransitionTime: metav1.NewTime(noon)})
		}
	}
	return v
}

func (c *config) want(i int, w verdict) *want {
	typ := c.owned[i].types[0]
	return &want{uid: uids[w.inc], generation: int64(w.gen), payload: reflect.ValueOf(struct{}{}),
		conditions: []metav1.Condition{{Type: typ, Status: "True", Reason: reasons[w]}}}
}

// memo rebuilds what the real memory would hold.
func (c *config) memo(i int, n note, now time.Time) memo {
	if !n.known {
		return memo{}
	}
	d := decision{verb: keep}
	m := memo{}.after(&c.owned[i], &d, c.view(i, n.stored), c.want(i, n.said), now)
	if n.takes > 0 {
		m.takes, m.takenAt = int(n.takes), noon
		if n.until {
			m.standUntil = noon.Add(standMin)
		}
	}
	return m
}

func (c *config) slot(inc int8) int {
	if c.policy.byName {
		return 0
	}
	return int(inc) - 1
}

// says reports whether a version says what process i wants.
func (c *config) says(i int, o object, w verdict) bool {
	return o.cells[c.cell[i]] == cell{w, w.gen} && (!c.owned[i].primary || o.observed == w.gen)
}

type explorer struct {
	*config
	seen map[world]struct{}
	todo []world
	hit  map[string]string // law → first example
}

func (e *explorer) breaks(law, format string, args ...any) {
	if _, ok := e.hit[law]; !ok {
		e.hit[law] = fmt.Sprintf(format, args...)
	}
}

func (e *explorer) push(w world) {
	if _, ok := e.seen[w]; ok {
		return
	}
	e.seen[w] = struct{}{}
	e.todo = append(e.todo, w)
}

// stored makes o the newest version.
func (w *world) stored(o object) {
	o.rv = w.hist[0].rv + 1
	w.hist[2], w.hist[1], w.hist[0] = w.hist[1], w.hist[0], o
}

// explore visits at most limit states and stops early when one of the laws is broken.
func (c *config) explore(b budget, passes [2]int8, limit int, stop ...string) *explorer {
	e := &explorer{config: c, seen: map[world]struct{}{}, hit: map[string]string{}}
	start := object{rv: 1, inc: 1, gen: 1}
	w := world{left: b}
	w.hist = [3]object{start, start, start}
	e.push(w)
	for len(e.todo) > 0 && len(e.seen) < limit && !slices.ContainsFunc(stop, func(law string) bool { return e.hit[law] != "" }) {
		w := e.todo[len(e.todo)-1]
		e.todo = e.todo[:len(e.todo)-1]
		e.environment(w)
		for i := range w.procs {
			e.step(w, i, passes[i])
			e.settles(w, i)
		}
	}
	return e
}

func (e *explorer) environment(w world) {
	now := w.hist[0]
	if now.inc != 0 {
		if w.left.bumps > 0 && now.gen < 3 {
			n := w
			n.left.bumps--
			o := now
			o.gen++
			n.stored(o)
			e.push(n)
		}
		if w.left.deletes > 0 {
			n := w
			n.left.deletes--
			n.stored(object{inc: 0, gen: now.inc}) // gen remembers which one it was
			e.push(n)
		}
		if w.left.foreigns > 0 {
			n := w
			n.left.foreigns--
			o := now
			o.foreign++
			n.stored(o)
			e.push(n)
		}
		if w.left.vandals > 0 {
			for _, vandalise := range []func(*object){
				func(o *object) { o.cells[0].says = verdict{inc: 9} },
				func(o *object) { o.observed = 9 },
				func(o *object) { o.cells[0] = cell{} },
			} {
				n := w
				n.left.vandals--
				o := now
				vandalise(&o)
				if o == now || o.cells[0].says.inc == 9 && now.cells[0].says.inc == 0 {
					continue
				}
				n.stored(o)
				e.push(n)
			}
		}
	} else if now.gen == 1 {
		n := w
		n.stored(object{inc: 2, gen: 1})
		e.push(n)
	}
}

// step lets process i do whatever it can do next.
func (e *explorer) step(w world, i int, passes int8) {
	p := w.procs[i]
	switch p.stage {
	case idle:
		if p.passes >= passes {
			return
		}
		for _, cached := range w.hist { // the cache is up to two versions behind, and never goes back
			if cached.rv < p.seen || cached.inc == 0 {
				continue
			}
			for bit := range int8(2) {
				n := w
				q := &n.procs[i]
				q.seen, q.passes, q.try, q.asked = cached.rv, q.passes+1, 1, 0
				q.want = verdict{cached.inc, cached.gen, bit}
				e.decide(n, i, cached, false)
			}
		}
		return
	case applying:
		e.applied(w, i, false)
	case reading:
		e.read(w, i)
	}
	if w.left.faults == 0 {
		return
	}
	lost := w // the request never arrives, or the process ends before it is sent
	lost.left.faults--
	lost.procs[i].stage = idle
	e.push(lost)
	crash := lost
	crash.procs[i].note = [2]note{}
	e.push(crash)
	if p.stage == applying { // the request arrives and nobody hears of it
		n := w
		n.left.faults--
		e.applied(n, i, true)
	}
}

func (e *explorer) applied(w world, i int, deaf bool) {
	p := &w.procs[i]
	now := w.hist[0]
	switch {
	case now.inc == 0:
		p.stage = idle
		e.push(w)
		return
	case now.rv != p.base.rv && !e.policy.unfenced:
		if deaf {
			p.stage = idle
			e.push(w)
			return
		}
		if p.try == tries {
			p.stage = idle // Deferred
		} else {
			p.try++
			p.stage, p.looks = reading, false
			p.asked++
		}
		e.bounded(p)
		e.push(w)
		return
	}
	o := now
	label := p.want.gen
	if e.policy.relabel {
		label = now.gen
	}
	k := e.cell[i]
	o.cells[k] = cell{p.want, label}
	if e.owned[i].primary {
		o.observed = label
	}
	if e.policy.wholeList {
		o.cells[1-k] = p.base.cells[1-k]
	}
	e.lawful(i, now, o)
	w.newest[o.inc] = max(w.newest[o.inc], label)
	w.stored(o)
	if deaf {
		p.stage = idle
		e.push(w)
		return
	}
	e.remember(&w, i, p.base)
	p.stage = idle
	e.push(w)
}

// remember writes the note as the real executor does: with the decision made on base.
func (e *explorer) remember(w *world, i int, base object) {
	p := &w.procs[i]
	n := &p.note[e.slot(p.want.inc)]
	m := e.memo(i, *n, noon)
	d := e.policy.decide(&e.owned[i], e.view(i, base), e.want(i, p.want), &m, true, noon, &rules)
	next := note{known: true, said: p.want, stored: w.hist[0], takes: n.takes, until: n.until}
	if d.taken {
		next.takes, next.until = min(int8(d.takes), 3), d.contested()
	}
	*n = next
}

func (e *explorer) read(w world, i int) {
	now := w.hist[0]
	if now.inc == 0 {
		w.procs[i].stage = idle
		e.push(w)
		return
	}
	e.decide(w, i, now, true)
}

func (e *explorer) decide(w world, i int, o object, fresh bool) {
	p := &w.procs[i]
	m := e.memo(i, p.note[e.slot(p.want.inc)], noon)
	d := e.policy.decide(&e.owned[i], e.view(i, o), e.want(i, p.want), &m, fresh, noon, &rules)
	live := w.hist[0]
	switch d.verb {
	case write:
		p.stage, p.base = applying, o
		p.asked++
		if e.says(i, o, p.want) && d.repaired == "" {
			e.breaks(lawFree, "%+v writes %+v over the same", p, p.want)
		}
	case look:
		p.stage, p.looks = reading, true
		p.asked++
	case keep:
		if !e.says(i, live, p.want) && live == o {
			e.breaks(lawKept, "%+v kept %+v on %+v: %s", p, p.want, o, d.why)
		}
		p.stage = idle
		if fresh {
			next := p.note[e.slot(p.want.inc)]
			next.known, next.said, next.stored = true, p.want, o
			p.note[e.slot(p.want.inc)] = next
		}
	case stale:
		if w.newest[p.want.inc] <= p.want.gen {
			e.breaks(lawStale, "%+v on %+v: %s", p.want, o, d.why)
		}
		p.stage = idle
	case gone:
		if live.inc == p.want.inc {
			e.breaks(lawGone, "%+v on %+v", p.want, o)
		}
		p.stage = idle
	case hold:
		p.stage = idle
	}
	e.bounded(p)
	e.push(w)
}

func (e *explorer) bounded(p *process) {
	if p.asked > 2*tries {
		e.breaks(lawBounded, "%d requests", p.asked)
	}
}

// lawful looks at one write on the server.
func (e *explorer) lawful(i int, before, after object) {
	k := e.cell[i]
	if before.observed <= before.gen && after.observed < before.observed {
		e.breaks(lawForward, "%+v -> %+v", before, after)
	}
	if old := before.cells[k]; old.says.inc != 0 && old.og <= before.gen && after.cells[k].og < old.og {
		e.breaks(lawForward, "%+v -> %+v", before, after)
	}
	if says := after.cells[k]; says.og != says.says.gen {
		e.breaks(lawLabel, "%+v", says)
	}
	if after.cells[k].says.inc != after.inc {
		e.breaks(lawNewcomer, "%+v", after)
	}
	if other := 1 - k; before.cells[other] != after.cells[other] || before.foreign != after.foreign {
		e.breaks(lawForeign, "%+v -> %+v", before, after)
	}
}

// settles checks that from any state, once nothing else happens and the cache has caught up, process i gets its say.
func (e *explorer) settles(w world, i int) {
	live := w.hist[0]
	if live.inc == 0 {
		return
	}
	p := w.procs[i]
	want := verdict{live.inc, live.gen, 1}
	now := later // whatever was backed off is due
	for range 3 {
		m := e.memo(i, p.note[e.slot(live.inc)], noon)
		d := e.policy.decide(&e.owned[i], e.view(i, live), e.want(i, want), &m, false, now, &rules)
		if d.verb == look {
			d = e.policy.decide(&e.owned[i], e.view(i, live), e.want(i, want), &m, true, now, &rules)
		}
		if d.verb != write {
			break
		}
		live.rv++
		live.cells[e.cell[i]] = cell{want, want.gen}
		if e.owned[i].primary {
			live.observed = want.gen
		}
		p.note[e.slot(live.inc)] = note{known: true, said: want, stored: live}
	}
	if !e.says(i, live, want) {
		e.breaks(lawSettles, "process %d, %+v on %+v with %+v", i, want, live, p.note)
	}
}
