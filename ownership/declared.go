// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// declared decides about one declared object: rules 1 to 5 of Plan.
func (p *planner) declared(o Object) (Decision, error) {
	gvk, err := p.gvk(o)
	if err != nil {
		return Decision{}, fmt.Errorf("plan children of %s: %w", p.owner.ref, err)
	}
	ref := Ref{GroupVersionKind: gvk, Namespace: o.GetNamespace(), Name: o.GetName()}
	i, ok := p.set.byKind[gvk.GroupKind()]
	if !ok {
		return Decision{}, fmt.Errorf("plan %s of %s: %w in set %q", ref, p.owner.ref, ErrUndeclared, p.set.name)
	}
	kind := p.set.kinds[i]
	if err := p.checkDeclared(kind, ref); err != nil {
		return Decision{}, err
	}
	k := key{kind: i, ns: ref.Namespace, name: ref.Name}
	at, exists := p.live[k]
	var m *member
	if exists {
		m = &p.members[at]
		if m.want {
			return Decision{}, fmt.Errorf("plan %s of %s: declared twice", ref, p.owner.ref)
		}
		m.want = true
	} else {
		p.live[k] = len(p.members) // a second declaration of the name is found
		p.members = append(p.members, member{key: k, want: true})
	}

	carrier, err := p.set.carrierOf(p.owner, p.hasFinalizer, kind, ref)
	if err != nil {
		return Decision{}, err
	}
	if !exists {
		if p.terminating && !kind.NeededByCleanup {
			return Decision{Verb: Keep, Ref: ref, Desired: true,
				Why: "not created: the owner is being deleted and cleanup does not need the kind"}, nil
		}
		doc, hash, err := p.compose(o, kind, carrier)
		if err != nil {
			return Decision{}, err
		}
		// No object has this resourceVersion, so the apply creates or fails; it cannot touch a namesake.
		doc["metadata"].(map[string]any)["resourceVersion"] = "1"
		return sent(Create, ref, doc, "", "", "does not exist", Evidence{Hash: hash, Quick: p.quick(o)}), nil
	}
	if m.obj.GetDeletionTimestamp() != nil {
		return p.found(Wait, m, "terminating: it must be gone before it can be created again"), nil
	}
	switch h := m.hold; {
	case h.foreign && !(h.former && p.policy.Adopt && !p.terminating):
		return p.foreign(m), nil
	case h.ours():
		return p.ours(o, kind, carrier, m)
	case p.terminating && carrier == Native:
		return p.found(Keep, m, "no longer ours: the owner is being deleted and its reference is gone"), nil
	case p.terminating:
		return p.found(Conflict, m, "exists, carries no claim of ours, and a terminating owner adopts nothing"), nil
	case !p.policy.Adopt:
		return p.found(Conflict, m, "exists and nobody controls it; Policy.Adopt would take it over"), nil
	}
	doc, hash, err := p.compose(o, kind, carrier)
	if err != nil {
		return Decision{}, err
	}
	md := doc["metadata"].(map[string]any)
	md["uid"], md["resourceVersion"] = string(m.obj.GetUID()), m.obj.GetResourceVersion()
	why := "exists and nobody controls it"
	if m.hold.former {
		why = "left behind by a former owner of the same name"
	}
	return sent(Adopt, ref, doc, m.obj.GetUID(), m.obj.GetResourceVersion(), why, Evidence{Hash: hash, Quick: p.quick(o)}), nil
}

// quick is 0 when nobody remembers it.
func (p *planner) quick(o Object) uint64 {
	if p.recall == nil {
		return 0
	}
	return p.set.quick(o, p.owner)
}

func (p *planner) checkDeclared(kind Kind, ref Ref) error {
	switch {
	case kind.GroupVersionKind != ref.GroupVersionKind:
		return fmt.Errorf("plan %s of %s: apiVersion %s: the set %q declares %s",
			ref, p.owner.ref, ref.GroupVersion(), p.set.name, kind.GroupVersion())
	case kind.Retired:
		return fmt.Errorf("plan %s of %s: the set %q declares the kind as retired", ref, p.owner.ref, p.set.name)
	case kind.Found:
		return fmt.Errorf("plan %s of %s: the set %q declares the kind as found: others create it", ref, p.owner.ref, p.set.name)
	case ref.Name == "":
		return fmt.Errorf("plan %s of %s: metadata.name: empty (generateName cannot be applied)", ref, p.owner.ref)
	case kind.Cluster && ref.Namespace != "":
		return fmt.Errorf("plan %s of %s: metadata.namespace: the kind is declared cluster-scoped", ref, p.owner.ref)
	case !kind.Cluster && ref.Namespace == "":
		return fmt.Errorf("plan %s of %s: metadata.namespace: empty for a namespaced kind", ref, p.owner.ref)
	}
	return nil
}

// foreign explains who stands in the way.
func (p *planner) foreign(m *member) Decision {
	h := m.hold
	if !h.former {
		return p.found(Conflict, m, fmt.Sprintf("controlled by %s (uid %s)", h.holder, h.holderUID))
	}
	if m.obj.GetLabels()[p.set.labelKey] == "" {
		return p.found(Wait, m, fmt.Sprintf("belongs to a deleted %s (uid %s): the garbage collector removes it",
			h.holder, h.holderUID))
	}
	return p.found(Conflict, m, fmt.Sprintf("left behind by a former %s (uid %s); Policy.Adopt would take it over",
		h.holder, h.holderUID))
}

// ours compares a member with its declaration, cheapest evidence first.
func (p *planner) ours(o Object, kind Kind, carrier Carrier, m *member) (Decision, error) {
	keep := func(why string, e Evidence) (Decision, error) {
		d := p.found(Keep, m, why)
		d.Evidence = e
		return d, nil
	}
	uid, rv := m.obj.GetUID(), m.obj.GetResourceVersion()
	var known Evidence
	quick := uint64(0)
	if p.recall != nil {
		quick = p.set.quick(o, p.owner)
		if e, ok := p.recall(uid); ok {
			known = e
		}
		if known.Quick == quick {
			if why := seen(rv, known.ResourceVersion); why != "" {
				return keep(why, known)
			}
		}
	}
	doc, hash, err := p.compose(o, kind, carrier)
	if err != nil {
		return Decision{}, err
	}
	if known.Hash != hash {
		known = Evidence{}
	}
	if why := seen(rv, known.ResourceVersion); why != "" {
		known.Quick = quick
		return keep(why, known)
	}
	now := Evidence{ResourceVersion: rv, Hash: hash, Quick: quick}
	live, err := content(m.obj)
	if err != nil {
		return Decision{}, fmt.Errorf("read %s: %w", p.refOf(m.key), err)
	}
	if known.Print != "" && printOf(doc, live) == known.Print {
		now.Print = known.Print
		return keep("what is declared is as the server stored it", now)
	}
	why := p.whyUpdate(doc, hash, live, carrier, m)
	if why == "" {
		return keep("as declared", now)
	}
	e := Evidence{Hash: hash, Print: printOf(doc, live), Quick: quick}
	md := doc["metadata"].(map[string]any)
	// The uid alone would let a forced apply that was decided on an older view take a claim back: one that the collector
	// has stripped from a child of an orphaned owner, or that was handed over to another owner since.
	md["uid"], md["resourceVersion"] = string(uid), rv
	return sent(Update, p.refOf(m.key), doc, uid, rv, why, e), nil
}

// seen says why an object at version rv needs no comparison after our write at version ours, or "".
func seen(rv, ours string) string {
	switch {
	case ours == "":
		return ""
	case rv == ours:
		return "unchanged since our last write"
	}
	if c, err := resourceversion.CompareResourceVersion(rv, ours); err == nil && c < 0 {
		return "the cache is behind our last write"
	}
	return ""
}

// whyUpdate names the first reason to write, or "".
func (p *planner) whyUpdate(doc map[string]any, hash string, live map[string]any, carrier Carrier, m *member) string {
	switch h := m.hold; {
	case h.foreign: // a former owner's claim beside ours
		return "a former owner's claim is still on it"
	case carrier == Native && !h.native, carrier != Native && h.native:
		return "the claim moves to another carrier"
	case carrier == Native && !h.current:
		return "our owner reference is not as it should be"
	}
	owned, known := ownedBy(m.obj, p.set.manager, p.set.kinds[m.key.kind].GroupVersion().String())
	if known {
		if path := undeclared("", owned, doc, live); path != "" {
			return path + " is ours and no longer declared"
		}
	}
	if was := m.obj.GetAnnotations()[AppliedAnnotation]; was != hash {
		if was == "" {
			return "was never applied by this set"
		}
		return "the declaration changed"
	}
	want := maps.Clone(doc)
	delete(want, "apiVersion") // empty in typed objects out of a cache, and equal by construction
	delete(want, "kind")
	md := maps.Clone(doc["metadata"].(map[string]any))
	if refs, ok := md["ownerReferences"].([]any); ok {
		// Ours was compared above, without blockOwnerDeletion, which admission may have taken from us.
		others := make([]any, 0, len(refs))
		for _, r := range refs {
			if ref, ok := r.(map[string]any); ok && ref["uid"] != string(p.owner.uid) {
				others = append(others, r)
			}
		}
		if md["ownerReferences"] = others; len(others) == 0 {
			delete(md, "ownerReferences")
		}
	}
	want["metadata"] = md
	c := comparer{whole: wholeListGroups[p.set.kinds[m.key.kind].Group]}
	if path := c.differs("", "", want, live, owned); path != "" {
		return path + " differs"
	}
	return ""
}

// compose makes the document to apply: the declaration, the claim, and the hash of both.
func (p *planner) compose(o Object, kind Kind, carrier Carrier) (map[string]any, string, error) {
	doc, err := document(o, kind.GroupVersionKind)
	if err != nil {
		return nil, "", err
	}
	md := doc["metadata"].(map[string]any)
	for _, r := range o.GetOwnerReferences() {
		if r.Controller != nil && *r.Controller && r.UID != p.owner.uid && carrier == Native {
			return nil, "", fmt.Errorf("plan %s %s/%s of %s: metadata.ownerReferences: declares another controller, %s %s",
				kind.GroupVersionKind.Kind, o.GetNamespace(), o.GetName(), p.owner.ref, r.Kind, r.Name)
		}
	}
	p.set.claimOn(md, p.owner, carrier)
	hash := digest(doc)
	notes := md["annotations"].(map[string]any) // claimOn made it ours
	notes[AppliedAnnotation] = hash
	return doc, hash, nil
}
