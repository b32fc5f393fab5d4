// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Collect does what the garbage collector does, until nothing is left to do, and says in a sentence each what it did:
//
//   - An object all of whose owners are gone is deleted, in the background. An owner of a namespaced kind is looked for
//     in the object's own namespace; one that has the name and another uid is gone. References to owners that are gone
//     are removed when others are left.
//   - A cluster-scoped object with a namespaced owner is never deleted, and an owner whose apiVersion is not served is
//     not known to be gone.
//   - For an owner with the finalizer foregroundDeletion, objects that name it are deleted (in the foreground when they
//     block), and the finalizer goes when no blocking one is left; finalizers of others are not waited for.
//   - For an owner with the finalizer orphan, references to it are removed and then the finalizer.
func (s *StrictServer) Collect() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var did []string
	for {
		did1 := s.collectOnce()
		if len(did1) == 0 {
			return did
		}
		did = append(did, did1...)
	}
}

func (s *StrictServer) collectOnce() []string {
	var did []string
	for _, k := range s.order {
		for _, key := range k.keys() {
			u := k.objects[key]
			if u == nil {
				continue // went with an owner
			}
			name := fmt.Sprintf("%s %s", k.Kind, key)
			if u.GetDeletionTimestamp() != nil {
				did = append(did, s.finish(k, key, name)...)
			}
			if u = k.objects[key]; u != nil {
				did = append(did, s.collectChild(k, key, name)...)
			}
		}
	}
	return did
}

// String is the address.
func (o objectKey) String() string {
	if o.namespace == "" {
		return o.name
	}
	return o.namespace + "/" + o.name
}

// change edits an object the way any writer would.
func (s *StrictServer) change(k *kindStore, key objectKey, edit func(u *unstructured.Unstructured)) {
	q := request{server: s, kind: k, write: Write{Verb: VerbUpdate, Namespace: key.namespace, Name: key.name}, agent: "garbage-collector/"}
	is := k.objects[key].DeepCopy()
	edit(is)
	_, _, _ = q.replace(k.objects[key], is, true) // it removes entries, which no rule forbids
}

// finish does what the two finalizers of the collector wait for.
func (s *StrictServer) finish(k *kindStore, key objectKey, name string) []string {
	u := k.objects[key]
	drop := func(f string) {
		s.change(k, key, func(u *unstructured.Unstructured) {
			u.SetFinalizers(slices.DeleteFunc(u.GetFinalizers(), func(x string) bool { return x == f }))
		})
	}
	var did []string
	switch {
	case slices.Contains(u.GetFinalizers(), metav1.FinalizerOrphanDependents):
		for _, d := range s.dependents(u.GetUID()) {
			s.change(d.kind, d.key, func(u *unstructured.Unstructured) { removeOwners(u, u.GetOwnerReferences(), nil, d.ref.UID) })
			did = append(did, fmt.Sprintf("orphaned %s %s", d.kind.Kind, d.key))
		}
		drop(metav1.FinalizerOrphanDependents)
		return append(did, "removed orphan from "+name)
	case slices.Contains(u.GetFinalizers(), metav1.FinalizerDeleteDependents):
		waits := false
		for _, d := range s.dependents(u.GetUID()) {
			blocking := d.ref.BlockOwnerDeletion != nil && *d.ref.BlockOwnerDeletion
			waits = waits || blocking
			child := d.kind.objects[d.key]
			if child.GetDeletionTimestamp() != nil || s.solidOwners(d.kind, child, u.GetUID()) > 0 {
				continue
			}
			policy := metav1.DeletePropagationBackground
			if blocking && len(s.dependents(child.GetUID())) > 0 {
				policy = metav1.DeletePropagationForeground
			}
			s.deleteAs(d.kind, d.key, policy)
			did = append(did, fmt.Sprintf("deleted %s %s of %s", d.kind.Kind, d.key, name))
			if d.kind.objects[d.key] == nil {
				waits = len(s.blocking(u.GetUID())) > 0
			}
		}
		if !waits || len(s.blocking(u.GetUID())) == 0 {
			drop(metav1.FinalizerDeleteDependents)
			did = append(did, "removed foregroundDeletion from "+name)
		}
	}
	return did
}

// dependent is an object that names an owner by uid.
type dependent struct {
	kind *kindStore
	key  objectKey
	ref  metav1.OwnerReference
}

func (s *StrictServer) dependents(uid types.UID) []dependent {
	var out []dependent
	for _, k := range s.order {
		for _, key := range k.keys() {
			for _, r := range k.objects[key].GetOwnerReferences() {
				if r.UID == uid {
					out = append(out, dependent{k, key, r})
					break
				}
			}
		}
	}
	return out
}

func (s *StrictServer) blocking(uid types.UID) []dependent {
	return slices.DeleteFunc(s.dependents(uid), func(d dependent) bool {
		return d.ref.BlockOwnerDeletion == nil || !*d.ref.BlockOwnerDeletion
	})
}

func (s *StrictServer) deleteAs(k *kindStore, key objectKey, policy metav1.DeletionPropagation) {
	q := request{server: s, kind: k, write: Write{Verb: VerbDelete, Namespace: key.namespace, Name: key.name}}
	_, _, _ = q.delete(k.objects[key], metav1.DeleteOptions{PropagationPolicy: &policy}) // nothing to refuse
}

// ownerState is what the collector finds where a reference points.
type ownerState int

const (
	ownerSolid ownerState = iota
	ownerGone
	ownerUnknown // not served, or unreachable from a cluster-scoped object: nothing is done
)

func (s *StrictServer) ownerState(k *kindStore, child *unstructured.Unstructured, r metav1.OwnerReference) ownerState {
	gv, err := schema.ParseGroupVersion(r.APIVersion)
	if err != nil {
		return ownerUnknown
	}
	for _, o := range s.order {
		if o.GroupVersion() != gv || o.Kind != r.Kind {
			continue
		}
		key := objectKey{name: r.Name}
		if !o.Cluster {
			if k.Cluster {
				return ownerUnknown
			}
			key.namespace = child.GetNamespace()
		}
		if u := o.objects[key]; u == nil || u.GetUID() != r.UID {
			return ownerGone
		}
		return ownerSolid
	}
	return ownerUnknown
}

// solidOwners counts owners that exist, one of them left out.
func (s *StrictServer) solidOwners(k *kindStore, child *unstructured.Unstructured, but types.UID) int {
	n := 0
	for _, r := range child.GetOwnerReferences() {
		if r.UID != but && s.ownerState(k, child, r) == ownerSolid {
			n++
		}
	}
	return n
}

func (s *StrictServer) collectChild(k *kindStore, key objectKey, name string) []string {
	u := k.objects[key]
	var gone []types.UID
	solid := 0
	for _, r := range u.GetOwnerReferences() {
		switch s.ownerState(k, u, r) {
		case ownerUnknown:
			return nil
		case ownerGone:
			gone = append(gone, r.UID)
		default:
			solid++
		}
	}
	switch {
	case len(gone) == 0 || u.GetDeletionTimestamp() != nil:
		return nil
	case solid == 0:
		s.deleteAs(k, key, metav1.DeletePropagationBackground)
		return []string{"deleted " + name + ", whose owners are gone"}
	default:
		s.change(k, key, func(u *unstructured.Unstructured) { removeOwners(u, u.GetOwnerReferences(), gone, "") })
		return []string{"removed owners that are gone from " + name}
	}
}

func removeOwners(u *unstructured.Unstructured, refs []metav1.OwnerReference, gone []types.UID, one types.UID) {
	u.SetOwnerReferences(slices.DeleteFunc(refs, func(r metav1.OwnerReference) bool { return r.UID == one || slices.Contains(gone, r.UID) }))
}
