// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Claim returns the label and the annotation of a label claim of owner. Put them on the metadata of templates whose
// objects somebody else creates: labels and annotations of a StatefulSet's volumeClaimTemplates are copied to the
// volumes, which carry no owner reference. The owner must have been read from the server, so that it has a uid.
func (s *Set) Claim(owner Object) (labels, annotations map[string]string) {
	id := s.identify(owner)
	return map[string]string{s.labelKey: string(id.uid)}, map[string]string{s.noteKey: id.ref.wire()}
}

// OwnerOf tells who controls a child: the controller owner reference if there is one, else the owner named by a label
// claim of any set. A native reference does not say whether its owner has a namespace; the child's is given.
func OwnerOf(child Object) (Ref, bool) {
	for _, r := range child.GetOwnerReferences() {
		if r.Controller != nil && *r.Controller {
			gv, err := schema.ParseGroupVersion(r.APIVersion)
			if err != nil {
				return Ref{}, false
			}
			return Ref{GroupVersionKind: gv.WithKind(r.Kind), Namespace: child.GetNamespace(), Name: r.Name}, true
		}
	}
	labels, notes := child.GetLabels(), child.GetAnnotations()
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if set, ok := strings.CutPrefix(key, ownerLabel); ok {
			if ref, ok := parseRef(notes[ownerRefNote+set]); ok {
				return ref, true
			}
		}
	}
	return Ref{}, false
}

// RequestFor maps a child to the owner of this set that claims it, without any lookup: the name and, unless the owner
// kind is cluster-scoped, the namespace. A native reference wins over a label claim. It allocates nothing for typed
// children.
func (s *Set) RequestFor(child Object) (types.NamespacedName, bool) {
	for _, r := range child.GetOwnerReferences() {
		if r.Kind == s.owner.Kind && groupOf(r.APIVersion) == s.owner.Group {
			n := types.NamespacedName{Name: r.Name}
			if !s.clusterOwner {
				n.Namespace = child.GetNamespace()
			}
			return n, true
		}
	}
	if child.GetLabels()[s.labelKey] == "" {
		return types.NamespacedName{}, false
	}
	ref, ok := parseRef(child.GetAnnotations()[s.noteKey])
	if !ok || ref.Kind != s.owner.Kind || ref.Group != s.owner.Group {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, true
}

// Claimed reports whether child carries a claim of owner's uid in this set, by any carrier, and whether nobody else
// controls it. Both must hold before anything is removed.
func (s *Set) Claimed(owner, child Object) bool {
	h := s.holdOf(s.identify(owner), child)
	return h.ours() && !h.foreign
}

// Related reports whether child has anything to do with owner: it carries a claim of owner's uid, or an annotation of
// this set that names owner, as children do whose native reference was stripped. What is not related can be left out of
// the live objects of a plan, unless its name is declared.
func (s *Set) Related(owner, child Object) bool { return s.RelatedTo(owner)(child) }

// RelatedTo is Related for many children of one owner.
func (s *Set) RelatedTo(owner Object) func(child Object) bool {
	o := s.identify(owner)
	return func(child Object) bool {
		for _, r := range child.GetOwnerReferences() {
			if r.UID == o.uid {
				return true
			}
		}
		if child.GetLabels()[s.labelKey] == string(o.uid) {
			return true
		}
		note := child.GetAnnotations()[s.noteKey]
		if note == "" || note == o.wire {
			return note != ""
		}
		ref, ok := parseRef(note)
		return ok && ref.sameObject(o.ref)
	}
}

// Claimants are the uids that claim child in this set's terms, for indexes: the uids of owner references to the owner
// kind, and the uid of the label.
func (s *Set) Claimants(child Object) []string {
	var out []string
	for _, r := range child.GetOwnerReferences() {
		if r.Kind == s.owner.Kind && groupOf(r.APIVersion) == s.owner.Group {
			out = append(out, string(r.UID))
		}
	}
	if uid := child.GetLabels()[s.labelKey]; uid != "" && !slices.Contains(out, uid) {
		out = append(out, uid)
	}
	return out
}

func (s *Set) identify(owner Object) identity {
	ref := Ref{GroupVersionKind: s.owner, Namespace: owner.GetNamespace(), Name: owner.GetName()}
	return identity{ref: ref, apiVersion: s.owner.GroupVersion().String(), uid: owner.GetUID(), wire: ref.wire()}
}

// hold is how one live object stands towards an owner.
type hold struct {
	native, label bool // our uid is on it, by which carrier
	current       bool // our native reference reads as we would write it today, once
	foreign       bool // somebody else controls it, whatever else it carries
	former        bool // that somebody is our owner's namesake with another uid
	note          bool // it was ours: the annotation names our owner
	holder        Ref
	holderUID     types.UID
}

func (h hold) ours() bool { return h.native || h.label }

// holdOf compares uids and nothing else to decide what is ours: a reference to a deleted namesake is not ownership.
func (s *Set) holdOf(o identity, child Object) hold {
	var h hold
	for _, r := range child.GetOwnerReferences() {
		controls := r.Controller != nil && *r.Controller
		switch {
		case o.uid != "" && r.UID == o.uid:
			h.current = !h.native && controls &&
				r.APIVersion == o.apiVersion && r.Kind == o.ref.Kind && r.Name == o.ref.Name
			h.native = true
		case controls:
			h.foreign, h.holderUID = true, r.UID
			gv, _ := schema.ParseGroupVersion(r.APIVersion)
			h.holder = Ref{GroupVersionKind: gv.WithKind(r.Kind), Namespace: child.GetNamespace(), Name: r.Name}
			if s.clusterOwner && r.Kind == o.ref.Kind && gv.Group == o.ref.Group {
				h.holder.Namespace = ""
			}
			h.former = h.holder.sameObject(o.ref)
		}
	}
	var noted Ref
	var ok bool
	if note := child.GetAnnotations()[s.noteKey]; note == o.wire {
		noted, ok, h.note = o.ref, true, true
	} else if noted, ok = parseRef(note); ok {
		h.note = noted.sameObject(o.ref)
	}
	labels := child.GetLabels()
	switch v := types.UID(labels[s.labelKey]); {
	case v == "":
		if part := labels[applySetPart]; part != "" && !h.foreign && part == ApplySetID(o.ref) {
			h.label = true
		}
	case v == o.uid:
		h.label = true
	case !h.foreign:
		h.foreign, h.holderUID, h.former = true, v, h.note
		if h.holder = noted; !ok {
			h.holder = Ref{GroupVersionKind: s.owner, Name: "with uid " + string(v)}
		}
	}
	return h
}

// carrierOf decides the carrier for one child and refuses what Kubernetes or the garbage collector would punish.
func (s *Set) carrierOf(o identity, hasFinalizer bool, k Kind, child Ref) (Carrier, error) {
	crosses := !s.clusterOwner && (k.Cluster || child.Namespace != o.ref.Namespace)
	c := k.Carrier
	switch {
	case c == Native && crosses:
		return 0, fmt.Errorf("claim %s for %s: %w: the owner is in namespace %q",
			child, o.ref, ErrIllegalReference, o.ref.Namespace)
	case c == Auto && (crosses || k.NeededByCleanup || k.Found):
		c = Label
	case c == Auto:
		c = Native
	}
	if c == Native || hasFinalizer {
		return c, nil
	}
	if s.finalizer == "" {
		return 0, fmt.Errorf("claim %s for %s: %w: declare it with WithFinalizer", child, o.ref, ErrNoFinalizer)
	}
	return 0, fmt.Errorf("claim %s for %s: %w: metadata.finalizers lacks %s", child, o.ref, ErrNoFinalizer, s.finalizer)
}

// claimOn writes the claim into the metadata of a document. Maps and slices reachable from md belong to the caller of
// Plan, so each one that changes is copied first.
func (s *Set) claimOn(md map[string]any, o identity, c Carrier) {
	notes := cloneMap(md["annotations"])
	notes[s.noteKey] = o.wire
	md["annotations"] = notes

	labels := cloneMap(md["labels"])
	delete(labels, s.labelKey)
	if c != Native {
		labels[s.labelKey] = string(o.uid)
	}
	if c == ApplySet {
		labels[applySetPart] = ApplySetID(o.ref)
	}
	if md["labels"] = labels; len(labels) == 0 {
		delete(md, "labels")
	}

	refs, _ := md["ownerReferences"].([]any)
	kept := make([]any, 0, len(refs)+1)
	for _, r := range refs {
		if m, ok := r.(map[string]any); ok && m["uid"] != string(o.uid) {
			kept = append(kept, r)
		}
	}
	if c == Native {
		kept = append(kept, map[string]any{
			"apiVersion": o.apiVersion, "kind": o.ref.Kind, "name": o.ref.Name, "uid": string(o.uid),
			"controller": true, "blockOwnerDeletion": true,
		})
	}
	if md["ownerReferences"] = kept; len(kept) == 0 {
		delete(md, "ownerReferences")
	}
}

func cloneMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	out := make(map[string]any, len(m)+2)
	maps.Copy(out, m)
	return out
}

// Noted is the owner that the annotation of this set names, whether or not a claim still stands: it stays behind when
// the garbage collector strips a native reference.
func (s *Set) Noted(child Object) (Ref, bool) {
	ref, ok := parseRef(child.GetAnnotations()[s.noteKey])
	return ref, ok && ref.Group == s.owner.Group && ref.Kind == s.owner.Kind
}
