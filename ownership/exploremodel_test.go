// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership_test

// The model of explore_test.go: a server with two owners and two children, its garbage collector, a cache that lags
// object by object, and a process that runs the real planner for both owners at once, request by request.

import (
	"fmt"
	"hash/maphash"
	"strconv"
	"testing"

	"github.com/ashlar-go/ashlar/ownership"
	"k8s.io/apimachinery/pkg/types"
)

// id is an incarnation of an owner: a is made twice, b once; stranger is everybody else.
type id = int8

const (
	nobody id = iota
	firstA
	secondA
	firstB
	stranger id = 9
)

// slotOf is the name an incarnation goes by.
func slotOf(o id) int8 {
	if o == firstB {
		return 1
	}
	return 0
}

// deletion is the policy an owner is deleted with.
type deletion int8

const (
	background deletion = iota
	foreground
	orphan
)

// kid is one version of a child.
type kid struct {
	inc   int8 // 0: does not exist
	rv    int8
	ref   id // controller reference
	label id // label claim
	note  int8
	term  bool
	body  int8 // 1 as declared, 2 changed by somebody
	hash  id   // whose document was applied last
	stray id   // a ghost, for the laws: left behind by this owner
}

const native, labelled = 0, 1 // the children

func (k kid) claimedBy(o id) bool {
	return k.inc != 0 && (k.ref == o || k.label == o) && !k.foreignTo(o)
}

func (k kid) foreignTo(o id) bool {
	return k.ref != nobody && k.ref != o || k.label != nobody && k.label != o
}

// master is one version of an owner.
type master struct {
	id        id // nobody: does not exist
	gen       int8
	term, fin bool
	gc        deletion // finalizer of the garbage collector
	how       deletion // a ghost
}

// memo is what the process remembers of a child.
type memo struct {
	inc, rv int8
	owner   id
	gone    bool
}

type stage int8

const (
	idle stage = iota
	storing
	asking // the owner, before the first adoption
	writing
	reading     // a child, after a conflict
	askingAgain // the owner, before the last try
	looking     // at a natively claimed sibling
	confirming  // that no labelled child is left
	releasing
)

// decision is an ownership.Decision reduced to what the model needs.
type decision struct {
	verb    ownership.Verb
	kid     int8
	inc, rv int8
	want    bool
	seen    int8 // resourceVersion of the evidence, 0: none
	doc     bool // evidence to come with the write
	fenced  bool // names a resourceVersion
	failed  bool
}

func (d decision) applied() bool {
	if d.failed {
		return false
	}
	switch d.verb {
	case ownership.Keep:
		return d.seen != 0
	case ownership.Create, ownership.Update, ownership.Adopt:
		return true
	}
	return false
}

// pass is one reconcile of one owner at work.
type pass struct {
	stage    stage
	view     master // the owner as the pass sees it
	decided  [2]decision
	n, at    int8
	try      int8
	requests int8
	passes   int8
	doomed   bool // a ghost: the owner was gone or going on the server when the pass began
	shown    bool // a ghost: the cache showed the natively claimed child that is there
}

// budget bounds the environment.
type budget struct{ deletes, creates, specs, strangers, handovers, faults int8 }

// world is a state.
type world struct {
	kids, shown [2]kid
	owners      [2]master
	seen        [2]master
	incs        [2]int8
	mem         [2]memo
	passes      [2]pass
	left        budget
}

// The laws.
const (
	lawForeign  = "nothing foreign changes"
	lawGhost    = "only a create creates"
	lawOrphan   = "an orphan stays alive and an orphan"
	lawTwice    = "what is terminating is not deleted again"
	lawCareful  = "nothing is pruned after a failed apply"
	lawDoomed   = "a dying owner takes nothing along"
	lawLeak     = "an owner leaves no labelled child behind"
	lawBounded  = "a pass is bounded"
	lawFree     = "a converged world costs nothing"
	lawSettles  = "every fair path converges"
	lawPrepared = "no labelled child without the finalizer"
)

var laws = []string{lawForeign, lawGhost, lawOrphan, lawTwice, lawCareful, lawDoomed, lawLeak, lawBounded, lawFree, lawSettles, lawPrepared}

// policy is the planner and the protocol around it, or a mutant of either.
type policy struct {
	plan     func(s *ownership.Set, in planned) (ownership.Plan, error)
	after    func(d *decision, in *view)
	blind    bool // creates what exists
	ghost    bool // an update creates what is gone
	unfenced bool // applies name no resourceVersion
	reckless bool // deletes name nothing
	careless bool // prunes after a failed apply
	trusting bool // believes the cache about an orphaned sibling
	hasty    bool // confirms nothing before the finalizer goes
	sure     bool // asks no owner before it adopts
	hopeful  bool // remembers a delete that failed
	naive    bool // takes what was written once for written
	eager    bool // labels before the finalizer is stored
	stubborn bool // a conflict is tried again for ever
}

// planned is what is given to the planner.
type planned struct {
	owner         ownership.Object
	desired, live []ownership.Object
	adopt         bool
	teardown      bool
	opts          []ownership.PlanOption
}

func faithful(s *ownership.Set, in planned) (ownership.Plan, error) {
	if in.teardown {
		return s.Teardown(in.owner, in.live, nil, in.opts...)
	}
	return s.Plan(in.owner, in.desired, in.live, ownership.Policy{Adopt: in.adopt, AllowEmpty: true}, in.opts...)
}

// scene says what the owners declare.
type scene struct {
	name     string
	adopt    bool
	declares [2][3]int8 // by owner and generation: bits of children
	empty    bool       // nothing exists yet
}

type view struct {
	owner    master
	kids     [2]kid
	mem      [2]memo
	desired  int8
	teardown bool
}

type outcome struct {
	decided [2]decision
	n       int8
	refused bool
}

// explorer visits states.
type explorer struct {
	t *testing.T
	scene
	policy
	set    *ownership.Set
	hashes map[[2]int8]string
	plans  map[view]outcome
	seen   map[[2]uint64]struct{}
	good   map[[2]uint64]struct{}
	todo   []world
	hit    map[string]string // law → first example
	seeds  [2]maphash.Seed
	quiet  bool // no law is judged
}

func newExplorer(t *testing.T, s scene, p policy) *explorer {
	t.Helper()
	set, err := ownership.New("children", databaseKind, []ownership.Kind{
		{GroupVersionKind: configMapKind}, {GroupVersionKind: secretKind, Carrier: ownership.Label},
	}, ownership.WithFinalizer(finalizer))
	if err != nil {
		t.Fatal(err)
	}
	e := &explorer{t: t, scene: s, policy: p, set: set, hashes: map[[2]int8]string{}, plans: map[view]outcome{},
		seen: map[[2]uint64]struct{}{}, good: map[[2]uint64]struct{}{}, hit: map[string]string{},
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	if e.policy.plan == nil {
		e.policy.plan = faithful
	}
	for _, o := range []id{firstA, secondA, firstB} {
		for k := range int8(2) {
			p, err := set.Plan(e.master(master{id: o, fin: true}), []ownership.Object{declaredKid(k)}, nil, ownership.Policy{})
			if err != nil {
				t.Fatal(err)
			}
			e.hashes[[2]int8{k, o}] = p.Decisions[0].Evidence.Hash
		}
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

// master makes the object of an owner.
func (e *explorer) master(m master) ownership.Object {
	edits := []edit{uid("owner-" + strconv.Itoa(int(m.id)))}
	var list []string
	if m.fin || e.eager {
		list = append(list, finalizer)
	}
	switch m.gc {
	case foreground:
		list = append(list, "foregroundDeletion")
	case orphan:
		list = append(list, "orphan")
	}
	edits = append(edits, finalizers(list...))
	if m.term {
		edits = append(edits, terminating())
	}
	return object(databaseKind, "team-a", ownerNames[slotOf(m.id)], edits...)
}

var ownerNames = [2]string{"a", "b"}

func kidUID(k, inc int8) types.UID {
	return types.UID("kid-" + strconv.Itoa(int(k)) + "-" + strconv.Itoa(int(inc)))
}

func rvOf(rv int8) string { return strconv.Itoa(100 + int(rv)) }

func declaredKid(k int8) ownership.Object {
	if k == native {
		return object(configMapKind, "team-a", "x", set("1", "data", "a"))
	}
	return object(secretKind, "team-a", "y", set("MQ==", "data", "a"))
}

// kid makes the object of a child.
func (e *explorer) kid(i int8, k kid) ownership.Object {
	gvk, name, body := configMapKind, "x", []string{"0", "1", "2"}
	if i == labelled {
		gvk, name, body = secretKind, "y", []string{"MA==", "MQ==", "Mg=="}
	}
	u := object(gvk, "team-a", name, set(body[k.body], "data", "a"), uid(string(kidUID(i, k.inc))), version(rvOf(k.rv)))
	switch k.ref {
	case nobody:
	case stranger:
		ref("apps/v1", "ReplicaSet", "theirs", "stranger", true)(u)
	default:
		ref("example.com/v1", "Database", ownerNames[slotOf(k.ref)], "owner-"+strconv.Itoa(int(k.ref)), true)(u)
	}
	if k.label != nobody {
		label(e.set.LabelKey(), "owner-"+strconv.Itoa(int(k.label)))(u)
	}
	if k.note != 0 {
		_, notes := e.set.Claim(e.master(master{id: [...]id{0, firstA, firstB}[k.note]}))
		for key, v := range notes {
			annotation(key, v)(u)
		}
	}
	if k.hash != nobody {
		annotation(ownership.AppliedAnnotation, e.hashes[[2]int8{i, k.hash}])(u)
	}
	if k.term {
		terminating()(u)
	}
	return u
}

// decide asks the real planner, once per question.
func (e *explorer) decide(v view) outcome {
	for i := range v.kids {
		v.kids[i].stray = nobody // a ghost is not seen
	}
	v.owner.how = 0
	if out, ok := e.plans[v]; ok {
		return out
	}
	in := planned{owner: e.master(v.owner), adopt: e.adopt, teardown: v.teardown}
	for k := range int8(2) {
		if v.desired&(1<<k) != 0 {
			in.desired = append(in.desired, declaredKid(k))
		}
		if v.kids[k].inc != 0 {
			in.live = append(in.live, e.kid(k, v.kids[k]))
		}
	}
	in.opts = []ownership.PlanOption{ownership.Remembering(func(u types.UID) (ownership.Evidence, bool) {
		for k, m := range v.mem {
			if m.inc == 0 || m.gone || u != kidUID(int8(k), m.inc) {
				continue
			}
			if e.naive {
				m.rv = v.kids[k].rv
			}
			return ownership.Evidence{ResourceVersion: rvOf(m.rv), Hash: e.hashes[[2]int8{int8(k), m.owner}]}, true
		}
		return ownership.Evidence{}, false
	})}
	p, err := e.policy.plan(e.set, in)
	out := outcome{refused: err != nil}
	if err != nil {
		e.plans[v] = out
		return out
	}
	for _, d := range p.Decisions {
		r := decision{verb: d.Verb, want: d.Desired, doc: d.Evidence.Hash != ""}
		if d.Ref.Kind == secretKind.Kind {
			r.kid = labelled
		}
		if d.UID != "" {
			r.inc, r.rv = v.kids[r.kid].inc, v.kids[r.kid].rv
		}
		if d.Verb == ownership.Keep && d.Evidence.Hash != "" {
			n, err := strconv.Atoi(d.Evidence.ResourceVersion)
			if err != nil {
				e.t.Fatalf("%s: %v", d, err)
			}
			r.seen = int8(n - 100)
		}
		if d.Verb == ownership.Update || d.Verb == ownership.Adopt {
			md := contentOf(d.Object)["metadata"].(map[string]any)
			_, r.fenced = md["resourceVersion"]
			if md["uid"] == nil {
				e.t.Fatalf("%s names no uid", d)
			}
		}
		if m := v.mem[r.kid]; d.Verb == ownership.Prune && m.gone && m.inc == r.inc {
			r.verb = ownership.Wait // as the executor does
		}
		if e.after != nil {
			e.after(&r, &v)
		}
		out.decided[out.n] = r
		out.n++
	}
	e.plans[v] = out
	return out
}
