// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownershiptest

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/ownership"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Subject is what Check checks.
type Subject struct {
	// Set under test.
	Set *ownership.Set
	// Scheme knows the Go types Desired returns. It may be nil when they are unstructured or carry their kind.
	Scheme *runtime.Scheme
	// Owner is an example of the owner. It needs a name and a uid; the set's finalizer is added.
	Owner client.Object
	// Desired computes the children of an owner.
	Desired func(client.Object) []client.Object
	// Policy of the passes.
	Policy ownership.Policy
}

// Check holds s to the laws named in the package comment, each as a sub-test when t is a *testing.T. It sends nothing.
func Check(t testing.TB, s Subject) {
	t.Helper()
	parent, ok := t.(*testing.T)
	for _, law := range laws() {
		if !ok {
			law.run(t, s)
			continue
		}
		parent.Run(law.name, func(t *testing.T) { law.run(t, s) })
	}
}

type law struct {
	name string
	run  func(testing.TB, Subject)
}

func laws() []law {
	return []law{
		{"desired objects are legal", legal}, {"desired objects are reproducible", reproducible},
		{"planning changes nothing", unchanged}, {"one pass converges", converges}, {"order does not matter", unordered},
		{"strangers are left alone", strangers}, {"a terminating owner creates what cleanup needs", terminating},
		{"drift is corrected", drift}, {"a teardown leaves nothing", teardown},
	}
}

func (s Subject) owner() client.Object {
	o := s.Owner.DeepCopyObject().(client.Object)
	if f := s.Set.Finalizer(); f != "" && !slices.Contains(o.GetFinalizers(), f) {
		o.SetFinalizers(append(slices.Clone(o.GetFinalizers()), f))
	}
	return o
}

func (s Subject) desired(o client.Object) []ownership.Object {
	var out []ownership.Object
	for _, d := range s.Desired(o) {
		out = append(out, d)
	}
	return out
}

func (s Subject) kindOf(o ownership.Object) (schema.GroupVersionKind, error) {
	if s.Scheme == nil {
		return schema.GroupVersionKind{}, fmt.Errorf("%T has no kind and Subject.Scheme is nil", o)
	}
	kinds, _, err := s.Scheme.ObjectKinds(o)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	return kinds[0], nil
}

func (s Subject) plan(t testing.TB, owner client.Object, desired []ownership.Object, w *World) ownership.Plan {
	t.Helper()
	p, err := s.Set.Plan(owner, desired, w.Live(), s.Policy, ownership.KindOf(s.kindOf))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// settled is a world after one pass.
func (s Subject) settled(t testing.TB) *World {
	t.Helper()
	w := &World{}
	if err := w.Carry(s.plan(t, s.owner(), s.desired(s.owner()), w)); err != nil {
		t.Fatal(err)
	}
	return w
}

func legal(t testing.TB, s Subject) {
	p := s.plan(t, s.owner(), s.desired(s.owner()), &World{})
	for _, d := range p.Decisions {
		if d.Verb != ownership.Create {
			t.Errorf("in an empty world: %s", d)
		}
	}
}

func reproducible(t testing.TB, s Subject) {
	first := s.plan(t, s.owner(), s.desired(s.owner()), &World{})
	second := s.plan(t, s.owner(), s.desired(s.owner()), &World{})
	if len(first.Decisions) != len(second.Decisions) {
		t.Fatalf("%d objects, then %d", len(first.Decisions), len(second.Decisions))
	}
	for i, d := range first.Decisions {
		if e := second.Decisions[i]; d.Ref != e.Ref || d.Evidence.Hash != e.Evidence.Hash {
			t.Errorf("%s is not computed alike twice: every pass would write it", d.Ref)
		}
	}
}

func unchanged(t testing.TB, s Subject) {
	owner := s.owner()
	desired := s.desired(owner)
	w := s.settled(t)
	before := dump(t, append([]ownership.Object{owner}, desired...))
	s.plan(t, owner, desired, &World{})
	s.plan(t, owner, desired, w)
	if after := dump(t, append([]ownership.Object{owner}, desired...)); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
}

func converges(t testing.TB, s Subject) {
	w := s.settled(t)
	if p := s.plan(t, s.owner(), s.desired(s.owner()), w); !p.Empty() {
		t.Errorf("a second pass would write:\n%s", p)
	}
}

func unordered(t testing.TB, s Subject) {
	w := s.settled(t)
	desired := s.desired(s.owner())
	slices.Reverse(desired)
	if p := s.plan(t, s.owner(), desired, w); !p.Empty() {
		t.Errorf("declared in reverse a pass would write:\n%s", p)
	}
}

func strangers(t testing.TB, s Subject) {
	w := &World{}
	for _, u := range s.settled(t).Live() {
		stranger := &unstructured.Unstructured{Object: map[string]any{}}
		stranger.SetGroupVersionKind(u.GetObjectKind().GroupVersionKind())
		stranger.SetNamespace(u.GetNamespace())
		stranger.SetName(u.GetName())
		yes := true
		stranger.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "example.org/v1", Kind: "Stranger", Name: "x", UID: "stranger", Controller: &yes}})
		w.Put(stranger)
	}
	if p := s.plan(t, s.owner(), s.desired(s.owner()), w); !p.Empty() {
		t.Errorf("somebody else's objects would be written:\n%s", p)
	}
}

func terminating(t testing.TB, s Subject) {
	needed := map[schema.GroupKind]bool{}
	for _, k := range s.Set.Kinds() {
		needed[k.GroupKind()] = k.NeededByCleanup
	}
	owner := s.owner()
	now := metav1.Unix(0, 0)
	owner.SetDeletionTimestamp(&now)
	for _, d := range s.plan(t, owner, s.desired(owner), &World{}).Decisions {
		if d.Verb.Writes() && !needed[d.Ref.GroupKind()] {
			t.Errorf("on a terminating owner: %s", d)
		}
	}
}

func drift(t testing.TB, s Subject) {
	for _, live := range s.settled(t).Live() {
		u := live.(*unstructured.Unstructured)
		for _, top := range slices.Sorted(keys(u.Object)) {
			if top == "apiVersion" || top == "kind" || top == "metadata" || top == "status" {
				continue
			}
			for n := 0; ; n++ {
				w := s.settled(t)
				spoiled := u.DeepCopy()
				left := n
				path, ok := spoil(spoiled.Object[top], top, &left)
				if !ok {
					break
				}
				w.Put(spoiled)
				var got ownership.Verb
				for _, d := range s.plan(t, s.owner(), s.desired(s.owner()), w).Decisions {
					if d.Ref == refOf(u) {
						got = d.Verb
					}
				}
				if got != ownership.Update {
					t.Errorf("%s: changed %s, decided %s", refOf(u), path, got)
				}
			}
		}
	}
}

func teardown(t testing.TB, s Subject) {
	w := s.settled(t)
	owner := s.owner()
	now := metav1.Unix(0, 0)
	owner.SetDeletionTimestamp(&now)
	for pass := 0; pass < 3; pass++ {
		p, err := s.Set.Teardown(owner, w.Live(), nil, ownership.KindOf(s.kindOf))
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Carry(p); err != nil {
			t.Fatal(err)
		}
		for _, u := range w.Live() { // whoever holds the finalizers of children lets go
			if c := u.(*unstructured.Unstructured); c.GetDeletionTimestamp() != nil {
				delete(w.objs, refOf(c))
			}
		}
	}
	for _, u := range w.Live() {
		t.Errorf("%s %s/%s is left", u.GetObjectKind().GroupVersionKind().Kind, u.GetNamespace(), u.GetName())
	}
}

func dump(t testing.TB, objs []ownership.Object) string {
	t.Helper()
	b, err := json.MarshalIndent(objs, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
