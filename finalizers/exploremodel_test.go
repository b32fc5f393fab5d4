// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers

// The model of explore_test.go: a server with one object in two incarnations, a cache that lags, two processes that run
// the real planner request by request, a user, another controller, the garbage collector's finalizers, and the laws.

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// names are the entries a list of finalizers is made of.
var names = [...]string{"", "example.com/cleanup", "example.com/former", "example.com/other", "foregroundDeletion", "orphan"}

const (
	ours int8 = iota + 1
	former
	theirs
	foregroundGC
	orphanGC
)

// states are what a step may have said.
var states = [...]State{StatePending, StateWaiting, StateDone, StateStuck}

const (
	pending int8 = iota
	waits
	done
	stuck
)

// The steps, in the order in which they are called: backup, volumes after backup, remote.
const (
	backup = iota
	volumes
	remote
)

// said is where every step is, or what it has said in this pass.
type said [3]int8

// note is what we have stored: the annotation of this package.
type note struct {
	steps  said
	policy int8 // 0, foregroundGC or orphanGC
}

// thing is one version of the object.
type thing struct {
	inc   int8 // 0: does not exist
	list  [5]int8
	term  bool
	other bool // somebody else's annotation
	note  note
}

func (o thing) has(entry int8) bool { return slices.Contains(o.list[:], entry) }

func (o thing) mine() bool { return o.has(ours) || o.has(former) }

// others are the entries that are not ours, in order.
func (o thing) others() (out [5]int8) {
	n := 0
	for _, e := range o.list {
		if e > former {
			out[n] = e
			n++
		}
	}
	return out
}

// facts is what a process remembers of an incarnation.
type facts struct {
	inc                    int8
	stored, released, read bool
	unsure                 bool
	progress               note
}

type stage int8

const (
	idle     stage = iota
	storing        // the finalizer
	midway         // the progress, before the next wave
	ending         // the progress, or the removal
	looking        // at the live object, because the cache may be behind
	againOne       // at the live object, after a refused patch of that stage
	againTwo
	againThree
)

// process is one pass at work, and what the process knows.
type process struct {
	stage    stage
	view     thing
	fresh    bool
	called   said // of this pass
	now      said // of the pass and before
	policy   int8
	body     int32 // the patch under way
	reply    thing // to it
	refused  int32 // the one that was refused last
	tries    int8
	requests int8
	passes   int8
	known    facts
	reborn   bool // a ghost: it replaces one that knew more
}

// budget bounds the environment.
type budget struct{ deletes, creates, others, waits, stucks, faults, restarts int8 }

// world is a state.
type world struct {
	live   thing
	cached [2]thing // what each process's cache shows
	procs  [2]process
	left   budget
	over   [2]said // a ghost: what the steps have said about each incarnation
	begun  [2]said
	seen   int8 // a ghost: the policy that a step was told and that was stored
}

// The laws.
const (
	lawOthers   = "others' entries stay, in order"
	lawStored   = "apply comes after the finalizer"
	lawHeld     = "no step runs without the finalizer"
	lawDone     = "the finalizer goes when every step is over"
	lawOrder    = "a step waits for what comes before it"
	lawAgain    = "what is over is over"
	lawNewcomer = "another incarnation is not touched"
	lawOnce     = "our name is stored once"
	lawRest     = "no progress outlives the finalizer"
	lawFree     = "what is converged costs nothing"
	lawBounded  = "a pass is bounded"
	lawPolicy   = "the policy is not forgotten"
	lawSettles  = "every fair path ends"
)

var laws = []string{lawOthers, lawStored, lawHeld, lawDone, lawOrder, lawAgain, lawNewcomer, lawOnce, lawRest, lawFree, lawBounded, lawPolicy, lawSettles}

// policy is the planner and the protocol around it, or a mutant of either.
type policy struct {
	ops      func(stage stage, ops []op, view client.Object) []op // what is sent instead
	verb     func(Verb) Verb
	trusting bool // believes the cache
	hasty    bool // stores nothing between waves
	early    bool // applies before it stores
	forgets  bool // that it has stored the finalizer
	fresh    bool // starts over with every pass
	sloppy   bool // takes a refusal for success
	stubborn bool // tries for ever
	eager    bool // is over when nothing can be done now
	deaf     bool // does not read the stored policy
	former   bool // does not know the former name
	certain  bool // takes a write without an answer for one that failed
}

type question struct {
	stage stage
	view  thing
	next  note
}

type sent struct {
	body int32
	live thing
}

type answer struct {
	next thing
	ok   bool
}

// explorer visits states.
type explorer struct {
	t *testing.T
	policy
	planner *planner
	bodies  []string
	index   map[string]int32
	asked   map[question]int32
	patched map[sent]answer
	verbs   map[thing]Verb
	seen    map[[2]uint64]struct{}
	good    map[[2]uint64]struct{}
	todo    []world
	hit     map[string]string
	seeds   [2]maphash.Seed
	quiet   bool
	two     bool // processes at once
}

func newExplorer(t *testing.T, p policy) *explorer {
	t.Helper()
	order := []step{{name: "backup"}, {name: "volumes", after: []int{backup}}, {name: "remote"}}
	e := &explorer{t: t, policy: p, planner: &planner{name: names[ours], former: []string{names[former]}, steps: order},
		bodies: []string{""}, index: map[string]int32{}, asked: map[question]int32{}, patched: map[sent]answer{},
		verbs: map[thing]Verb{}, seen: map[[2]uint64]struct{}{}, good: map[[2]uint64]struct{}{}, hit: map[string]string{},
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	if p.former {
		e.planner.former = nil
	}
	return e
}

func (e *explorer) breaks(law, format string, args ...any) {
	if _, ok := e.hit[law]; !ok && !e.quiet {
		e.hit[law] = fmt.Sprintf(format, args...)
	}
}

func (e *explorer) key(w world) [2]uint64 {
	return [2]uint64{maphash.Comparable(e.seeds[0], w), maphash.Comparable(e.seeds[1], w)}
}

func (e *explorer) push(w world) {
	k := e.key(w)
	if _, ok := e.seen[k]; ok {
		return
	}
	e.seen[k] = struct{}{}
	e.todo = append(e.todo, w)
}

var noon = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

// entry is a note in the planner's terms.
func (e *explorer) entry(n note) entry {
	return e.planner.entryOf(Progress{Policy: policyOf(n.policy), Steps: e.progress(n.steps)})
}

func (e *explorer) progress(s said) []StepProgress {
	out := make([]StepProgress, len(s))
	for i, v := range s {
		out[i] = StepProgress{Step: e.planner.steps[i].name, State: states[v]}
		if v == waits || v == stuck {
			out[i].Since = noon
		}
	}
	return out
}

func policyOf(p int8) metav1.DeletionPropagation {
	switch p {
	case foregroundGC:
		return metav1.DeletePropagationForeground
	case orphanGC:
		return metav1.DeletePropagationOrphan
	}
	return ""
}

func outcomes(s said) []Outcome {
	out := make([]Outcome, len(s))
	for i, v := range s {
		switch v {
		case waits:
			out[i] = Wait(0)
		case done:
			out[i] = Done()
		case stuck:
			out[i] = Stuck(errors.New("help"))
		}
	}
	return out
}

// object makes the object the planner looks at.
func (e *explorer) object(o thing) client.Object {
	u := &metav1.PartialObjectMetadata{}
	u.Name, u.Namespace, u.UID = "a", "ns", types.UID("uid-"+strconv.Itoa(int(o.inc)))
	for _, entry := range o.list {
		if entry != 0 {
			u.Finalizers = append(u.Finalizers, names[entry])
		}
	}
	if o.term {
		u.DeletionTimestamp = &metav1.Time{Time: noon}
	}
	value := document{UID: u.UID}.with(e.planner.name, e.entry(o.note)).String()
	if value != "" || o.other {
		u.Annotations = map[string]string{}
	}
	if value != "" {
		u.Annotations[Annotation] = value
	}
	if o.other {
		u.Annotations["example.com/other"] = "x"
	}
	return u
}

// thing reads back what a patch made of the object.
func (e *explorer) thing(u *metav1.PartialObjectMetadata, was thing) thing {
	o := thing{inc: was.inc, term: was.term, other: u.Annotations["example.com/other"] != ""}
	for i, entry := range u.Finalizers {
		o.list[i] = int8(slices.Index(names[:], entry))
	}
	_, stored, err := e.planner.entry(u)
	if err != nil {
		e.t.Fatalf("%v in %+v", err, u.Annotations)
	}
	for i, s := range e.planner.resume(stored) {
		o.note.steps[i] = int8(slices.Index(states[:], s.State))
	}
	switch stored.Policy {
	case metav1.DeletePropagationForeground:
		o.note.policy = foregroundGC
	case metav1.DeletePropagationOrphan:
		o.note.policy = orphanGC
	}
	return o
}

// verbOf asks the real planner, once per question.
func (e *explorer) verbOf(o thing) Verb {
	v, ok := e.verbs[o]
	if !ok {
		v = e.planner.verb(e.object(o))
		if e.verb != nil {
			v = e.verb(v)
		}
		e.verbs[o] = v
	}
	return v
}

// opsOf is the patch of a stage, 0 when there is nothing to write.
func (e *explorer) opsOf(s stage, view thing, next note) int32 {
	q := question{s, view, next}
	if id, ok := e.asked[q]; ok {
		return id
	}
	obj := e.object(view)
	var ops []op
	if s == storing {
		ops = e.planner.storeOps(obj)
	} else if view.mine() { // cleanOps relies on it
		ops = e.planner.cleanOps(obj, e.entry(next))
	}
	if e.ops != nil && ops != nil {
		ops = e.ops(s, ops, obj)
	}
	id := int32(0)
	if ops != nil {
		body := string(encode(ops))
		if id = e.index[body]; id == 0 {
			id = int32(len(e.bodies))
			e.bodies, e.index[body] = append(e.bodies, body), id
		}
	}
	e.asked[q] = id
	return id
}

// patch is the server's answer to a patch of a living object.
func (e *explorer) patch(body int32, live thing) answer {
	q := sent{body, live}
	if a, ok := e.patched[q]; ok {
		return a
	}
	u := e.object(live).(*metav1.PartialObjectMetadata)
	a := answer{}
	if patchJSON(u, e.bodies[body]) == nil && len(u.Finalizers) <= len(live.list) { // the model has no room for more
		a = answer{e.thing(u, live), true}
		if live.term { // nothing new on a terminating object
			for _, entry := range a.next.list {
				a.ok = a.ok && (entry == 0 || live.has(entry))
			}
		}
	}
	e.patched[q] = a
	return a
}

// patchJSON applies the operations this package uses as an API server does: a test for null holds for what is absent,
// and everything else that does not exist is an error.
func patchJSON(u *metav1.PartialObjectMetadata, body string) error {
	var ops []op
	if err := json.Unmarshal([]byte(body), &ops); err != nil {
		return err
	}
	refused := errors.New("refused")
	for _, o := range ops {
		var text string
		_ = json.Unmarshal(o.Value, &text)
		isNull := string(o.Value) == "null" || o.Value == nil && o.Op == opTest
		field, token, nested := strings.Cut(strings.TrimPrefix(o.Path, "/metadata/"), "/")
		switch {
		case field == "uid":
			if text != string(u.UID) {
				return refused
			}
		case field == "finalizers" && !nested && o.Op == opTest:
			if !isNull || len(u.Finalizers) > 0 {
				return refused
			}
		case field == "finalizers" && !nested:
			u.Finalizers = nil
			if err := json.Unmarshal(o.Value, &u.Finalizers); err != nil {
				return err
			}
		case field == "finalizers" && token == "-":
			if len(u.Finalizers) == 0 {
				return refused
			}
			u.Finalizers = append(u.Finalizers, text)
		case field == "finalizers":
			i, err := strconv.Atoi(token)
			if err != nil || i >= len(u.Finalizers) || o.Op == opTest && u.Finalizers[i] != text {
				return refused
			}
			switch o.Op {
			case opRemove:
				u.Finalizers = slices.Delete(u.Finalizers, i, i+1)
			case opReplace:
				u.Finalizers[i] = text
			}
		case field == "annotations" && !nested && o.Op == opTest:
			if !isNull || len(u.Annotations) > 0 {
				return refused
			}
		case field == "annotations" && !nested:
			u.Annotations = nil
			if err := json.Unmarshal(o.Value, &u.Annotations); err != nil {
				return err
			}
		case field == "annotations":
			key := strings.ReplaceAll(token, "~1", "/")
			have, ok := u.Annotations[key]
			switch o.Op {
			case opTest:
				if isNull == ok || !isNull && have != text {
					return refused
				}
			case opRemove:
				if delete(u.Annotations, key); !ok {
					return refused
				}
			default:
				if u.Annotations == nil {
					return refused
				}
				u.Annotations[key] = text
			}
		default:
			return refused
		}
	}
	return nil
}
