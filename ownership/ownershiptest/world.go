// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownershiptest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ashlar-go/ashlar/ownership"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// World is a cluster reduced to stored objects. Its zero value is empty and ready. It is not safe for concurrent use.
type World struct {
	objs map[ownership.Ref]*unstructured.Unstructured
	rv   int
	uids int
}

// Put stores a copy of an object under its kind and name, with a uid if it has none and a new resourceVersion.
func (w *World) Put(u *unstructured.Unstructured) {
	u = u.DeepCopy()
	if u.GetUID() == "" {
		w.uids++
		u.SetUID(types.UID("world-" + strconv.Itoa(w.uids)))
	}
	w.rv++
	u.SetResourceVersion(strconv.Itoa(w.rv))
	if w.objs == nil {
		w.objs = map[ownership.Ref]*unstructured.Unstructured{}
	}
	w.objs[refOf(u)] = u
}

// Live returns copies of everything stored, sorted by kind, namespace and name.
func (w *World) Live() []ownership.Object {
	out := make([]ownership.Object, 0, len(w.objs))
	for _, r := range w.refs() {
		out = append(out, w.objs[r].DeepCopy())
	}
	return out
}

// Get returns a copy of one object, or nil.
func (w *World) Get(r ownership.Ref) *unstructured.Unstructured {
	if u := w.objs[r]; u != nil {
		return u.DeepCopy()
	}
	return nil
}

// Carry carries a plan out the way a server would let it: a Create of an existing object, or a write decided on
// another incarnation, is an error. An object with finalizers is marked as terminating by a Prune, not removed.
func (w *World) Carry(p ownership.Plan) error {
	for _, d := range p.Decisions {
		live := w.objs[d.Ref]
		switch d.Verb {
		case ownership.Create:
			if live != nil {
				return fmt.Errorf("carry out %s: it exists", d)
			}
			w.store(d, "")
		case ownership.Update, ownership.Adopt:
			if live == nil || live.GetUID() != d.UID {
				return fmt.Errorf("carry out %s: another incarnation", d)
			}
			w.store(d, d.UID)
		case ownership.Prune:
			if live == nil || live.GetUID() != d.UID {
				return fmt.Errorf("carry out %s: another incarnation", d)
			}
			if len(live.GetFinalizers()) == 0 {
				delete(w.objs, d.Ref)
				continue
			}
			now := metav1.Unix(0, 0)
			live.SetDeletionTimestamp(&now)
			w.Put(live)
		case ownership.Release:
			if live == nil || live.GetUID() != d.UID {
				return fmt.Errorf("carry out %s: another incarnation", d)
			}
			release(live, p.Owner)
			w.Put(live)
		case ownership.Keep, ownership.Conflict, ownership.Wait:
		}
	}
	return nil
}

// store writes an applied document. Fields of other writers are not merged: whoever needs that needs a server.
func (w *World) store(d ownership.Decision, uid types.UID) {
	u, ok := d.Object.(*unstructured.Unstructured)
	if !ok {
		return
	}
	u = u.DeepCopy()
	u.SetUID(uid)
	w.Put(u)
}

func release(u *unstructured.Unstructured, owner ownership.Object) {
	labels := u.GetLabels()
	for k, v := range labels {
		if v == string(owner.GetUID()) {
			delete(labels, k)
		}
	}
	u.SetLabels(labels)
	u.SetOwnerReferences(slices.DeleteFunc(u.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == owner.GetUID() }))
}

func (w *World) refs() []ownership.Ref {
	out := make([]ownership.Ref, 0, len(w.objs))
	for r := range w.objs {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b ownership.Ref) int {
		return strings.Compare(a.GroupVersionKind.String()+" "+a.String(), b.GroupVersionKind.String()+" "+b.String())
	})
	return out
}

func refOf(u *unstructured.Unstructured) ownership.Ref {
	return ownership.Ref{GroupVersionKind: u.GroupVersionKind(), Namespace: u.GetNamespace(), Name: u.GetName()}
}
