// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest

import (
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// judge holds one write against the laws. It completes w with the identity its body names and returns whether w is a
// delete with both preconditions.
func (l *laws) judge(r *http.Request, w *Write, body []byte) (fenced bool) {
	if l.exempt[w.Resource.GroupResource()] || r.URL.Query().Get("dryRun") != "" {
		return false
	}
	if w.Verb == VerbDelete || w.Verb == VerbDeleteCollection {
		return l.judgeDelete(r, w, body)
	}
	err := w.fill(mediaType(r.Header), body)
	// A create is judged by its address alone: it can only create, or do what its subresource does.
	if err != nil && w.Verb != VerbCreate {
		l.report(Readable, *w, err.Error())
		return false
	}
	l.judgeForeign(*w)
	switch {
	case w.Verb == VerbCreate:
	case w.Subresource == "status":
		if w.Verb == VerbUpdate {
			l.report(StatusPut, *w, "the status is replaced")
		}
		if w.ResourceVersion == "" {
			l.report(StatusVersion, *w, "no resourceVersion")
		}
	case w.Subresource == "":
		if w.UID == "" && w.ResourceVersion == "" {
			l.report(WriteIdentity, *w, "neither uid nor resourceVersion")
		}
	}
	return false
}

func (l *laws) judgeDelete(r *http.Request, w *Write, body []byte) (fenced bool) {
	if w.Subresource != "" {
		return false
	}
	o, err := deleteOptions(r, mediaType(r.Header), body)
	if err != nil {
		l.report(Readable, *w, err.Error())
		return false
	}
	if slices.Contains(o.DryRun, metav1.DryRunAll) {
		return false
	}
	if p := o.Preconditions; p != nil {
		if p.UID != nil {
			w.UID = *p.UID
		}
		if p.ResourceVersion != nil {
			w.ResourceVersion = *p.ResourceVersion
		}
	}
	l.judgeForeign(*w)
	if w.Verb == VerbDeleteCollection {
		l.report(DeleteCollection, *w, "many objects at once")
		return false
	}
	//lint:ignore SA1019 it is deprecated, and still a policy
	if o.PropagationPolicy == nil && o.OrphanDependents == nil {
		l.report(DeletePolicy, *w, "no propagation policy")
	}
	switch {
	case w.UID == "" && w.ResourceVersion == "":
		l.report(DeletePreconditions, *w, "no uid and no resourceVersion precondition")
	case w.UID == "":
		l.report(DeletePreconditions, *w, "no uid precondition")
	case w.ResourceVersion == "" && l.conflictsOf(w.UID) < conflictsBeforeUIDAlone:
		l.report(DeletePreconditions, *w, "no resourceVersion precondition")
	}
	if uid, ok := l.isDying(*w); ok && (w.UID == "" || w.UID == uid) {
		l.report(DeleteOnce, *w, "the object is terminating already")
	}
	return w.UID != "" && w.ResourceVersion != ""
}

func (l *laws) judgeForeign(w Write) {
	for _, foreign := range l.foreign {
		if foreign(w) {
			l.report(ForeignWrite, w, "the object is foreign")
			return
		}
	}
}

// conflictsBeforeUIDAlone is how often the fenced delete of one uid must have met a conflict before the uid alone
// will do.
const conflictsBeforeUIDAlone = 2

func (l *laws) conflict(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conflicts[uid]++
}

func (l *laws) conflictsOf(uid types.UID) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conflicts[uid]
}

func (l *laws) isDying(w Write) (types.UID, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	uid, ok := l.dying[object{w.Resource.GroupResource(), w.Namespace, w.Name}]
	return uid, ok
}

// note remembers or forgets that the object at an address is terminating.
func (l *laws) note(resource schema.GroupResource, id identity) {
	m := id.Metadata
	if m.Name == "" || m.UID == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	o := object{resource, m.Namespace, m.Name}
	if m.DeletionTimestamp != nil {
		l.dying[o] = m.UID
		return
	}
	// A late reply about the same incarnation does not revive it.
	if l.dying[o] != m.UID {
		delete(l.dying, o)
	}
}

// forget drops what was remembered of an address; of one incarnation only, when the uid is known.
func (l *laws) forget(resource schema.GroupResource, namespace, name string, uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := object{resource, namespace, name}
	if uid == "" || l.dying[o] == uid {
		delete(l.dying, o)
	}
}
