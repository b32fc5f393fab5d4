// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownershiptest

import (
	"encoding/json"
	"fmt"

	"github.com/ashlar-go/ashlar/ownership"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// holder is who has a child.
type holder int

const (
	absent holder = iota
	loose         // nobody
	taken         // another controller
	heldByA
	heldByB
)

func holderOf(owner int) holder { return heldByA + holder(owner) }

// String is a word.
func (h holder) String() string {
	return [...]string{"absent", "nobody", "another controller", "owner a", "owner b"}[h]
}

// walkModel is what the world should be, by the contract of the packages and by nothing else.
type walkModel struct {
	adopt  bool
	owners [2]struct{ declares [walkKids]int } // content, 0: not declared
	kids   [walkKids]struct {
		holder  holder
		content int
		note    int  // 1 more than the owner it names
		theirs  bool // somebody else's field manager set the content
		uid     string
		fresh   bool // another incarnation than the one with that uid
	}
}

// reconcile is a pass of each owner.
func (m *walkModel) reconcile() {
	for i := range m.owners {
		me := holderOf(i)
		blocked := false
		for k, want := range m.owners[i].declares {
			if want == 0 {
				continue
			}
			kid := &m.kids[k]
			disagrees := kid.theirs && kid.content != want
			switch {
			case kid.holder == absent:
				kid.fresh = true
			case kid.holder == me:
			case kid.holder == loose && m.adopt && !disagrees:
			default:
				blocked = true
				continue
			}
			kid.holder, kid.content, kid.note, kid.theirs = me, want, i+1, false
		}
		for k, want := range m.owners[i].declares {
			if want == 0 && m.kids[k].holder == me && !blocked {
				m.kids[k].holder = absent
			}
		}
	}
}

// step does one thing to the world and to the model, and says what.
func (w *walker) step() string {
	i, o := w.random.IntN(walkKids), w.random.IntN(2)
	kid := &w.model.kids[i]
	roll := w.random.IntN(100)
	mine := kid.holder == holderOf(o)
	switch {
	case roll < 30:
		v := 1 + w.random.IntN(3)
		w.model.owners[o].declares[i] = v
		return fmt.Sprintf("owner %d declares %d with %d", o, i, v)
	case roll < 48:
		w.model.owners[o].declares[i] = 0
		return fmt.Sprintf("owner %d declares %d no more", o, i)
	case roll < 56 && kid.holder != absent:
		w.deleteKid(i)
		kid.holder = absent
		return fmt.Sprintf("somebody deletes %d", i)
	case roll < 64 && kid.holder == absent:
		return w.create(i, roll < 60)
	case roll < 72 && kid.holder != absent:
		v := 4 + w.random.IntN(3)
		w.patch(i, fmt.Sprintf(`{"op":"replace","path":"/metadata/annotations/example.com~1content","value":"%d"}`, v))
		kid.content, kid.theirs = v, true
		return fmt.Sprintf("somebody writes %d into %d", v, i)
	case roll < 78 && kid.holder >= heldByA:
		w.strip(i)
		kid.holder = loose
		return fmt.Sprintf("somebody strips %d of its claim", i)
	case roll < 82 && kid.holder >= heldByA:
		w.strip(i)
		ref, err := json.Marshal(w.strangerRef())
		w.must(err)
		w.patch(i, `{"op":"add","path":"/metadata/ownerReferences","value":[`+string(ref)+`]}`)
		kid.holder = taken
		return fmt.Sprintf("another controller takes %d", i)
	case roll < 86 && kid.holder == taken:
		w.patch(i, `{"op":"remove","path":"/metadata/ownerReferences"}`)
		kid.holder = loose
		return fmt.Sprintf("another controller lets %d go", i)
	case roll < 91 && mine:
		w.handOver(i, o)
		return fmt.Sprintf("owner %d hands %d over", o, i)
	case roll < 93:
		w.model.adopt = !w.model.adopt
		return fmt.Sprintf("adoption: %v", w.model.adopt)
	case roll < 97:
		w.restart()
		return "another process"
	}
	return w.owner(o)
}

// strangerRef names a controller that exists, or the garbage collector would take the child.
func (w *walker) strangerRef() metav1.OwnerReference {
	yes := true
	return metav1.OwnerReference{APIVersion: "v1", Kind: walkOwnerKind.Kind, Name: w.stranger.GetName(), UID: w.stranger.GetUID(), Controller: &yes}
}

// create is somebody who makes a child of a name that is free, with or without a controller.
func (w *walker) create(i int, controlled bool) string {
	v := 4 + w.random.IntN(3)
	u := w.withContent(i, v)
	kid := &w.model.kids[i]
	kid.holder = loose
	if controlled {
		u.SetOwnerReferences([]metav1.OwnerReference{w.strangerRef()})
		kid.holder = taken
	}
	kid.content, kid.note, kid.theirs, kid.fresh = v, 0, true, true
	w.must(w.Client.Create(w.ctx, u, client.FieldOwner("somebody")))
	return fmt.Sprintf("somebody creates %d with %d, held by %s", i, v, kid.holder)
}

func (w *walker) deleteKid(i int) {
	u := w.live(i)
	uid, rv := u.GetUID(), u.GetResourceVersion()
	w.must(w.Client.Delete(w.ctx, u, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &uid, ResourceVersion: &rv}))
}

// patch is somebody else's write.
func (w *walker) patch(i int, ops string) {
	u := w.live(i)
	body := fmt.Sprintf(`[{"op":"test","path":"/metadata/uid","value":%q},%s]`, u.GetUID(), ops)
	w.must(w.Client.Patch(w.ctx, u, client.RawPatch(types.JSONPatchType, []byte(body)), client.FieldOwner("somebody")))
}

func (w *walker) strip(i int) {
	if i%2 == 0 {
		w.patch(i, `{"op":"remove","path":"/metadata/ownerReferences"}`)
		return
	}
	w.patch(i, `{"op":"remove","path":"/metadata/labels"}`)
}

func (w *walker) handOver(i, from int) {
	to := 1 - from
	w.model.owners[to].declares[i] = max(1, w.model.owners[from].declares[i])
	w.model.owners[from].declares[i] = 0
	res, err := w.kids.HandOver(w.ctx, w.owners[from], w.owners[to], refOf(w.kid(i)))
	w.must(err)
	if v := res.Decisions[0].Verb; v != ownership.Update {
		w.t.Errorf("hand over %d: %s", i, res.Decisions[0])
	}
	w.model.kids[i].holder, w.model.kids[i].note = holderOf(to), to+1
}

// owner deletes an owner. What becomes of its children depends on the policy.
func (w *walker) owner(o int) string {
	policy := [...]metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground,
		metav1.DeletePropagationOrphan}[w.random.IntN(3)]
	patient := w.random.IntN(2) == 0
	me := holderOf(o)
	native, lost := false, false
	for i := 0; i < walkKids; i += 2 {
		kid := w.model.kids[i]
		native = native || kid.holder == me
		lost = lost || kid.holder == loose && kid.note == o+1
	}
	if lost {
		return fmt.Sprintf("owner %d is not deleted: a child that was stripped by hand would count as orphaned", o)
	}
	if policy == metav1.DeletePropagationOrphan {
		patient = true // or it is left to chance whether the collector or the cleanup takes a reference
		if !native {
			policy = metav1.DeletePropagationBackground // without a native child only the owner can tell, and not for long
		}
	}
	w.deleteOwner(o, policy, patient)
	for i := range w.model.kids {
		kid := &w.model.kids[i]
		switch {
		case kid.holder != me:
		case policy == metav1.DeletePropagationOrphan:
			if kid.holder = loose; i%2 == 1 {
				kid.note = 0
			}
		default:
			kid.holder = absent
		}
	}
	return fmt.Sprintf("owner %d is deleted with policy %s, patiently: %v", o, policy, patient)
}
