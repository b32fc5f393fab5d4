// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Keys of KEP-3659, as kubectl writes them.
const (
	applySetID         = "applyset.kubernetes.io/id"
	applySetPart       = "applyset.kubernetes.io/part-of"
	applySetTooling    = "applyset.kubernetes.io/tooling"
	applySetKinds      = "applyset.kubernetes.io/contains-group-kinds"
	applySetNamespaces = "applyset.kubernetes.io/additional-namespaces"
	applySetManager    = "-applyset" // suffix of the field manager that writes the parent
	toolingVersion     = "/v1"
)

// ErrForeignTooling is matched by errors about an owner that is the ApplySet parent of another tool. KEP-3659 forbids
// to touch it.
var ErrForeignTooling = errors.New("ApplySet belongs to another tool")

// ApplySetID is the id of the ApplySet whose parent is r, as KEP-3659 and kubectl compute it:
// "applyset-" + base64url(sha256(name.namespace.Kind.group)) + "-v1". The version does not enter.
func ApplySetID(r Ref) string {
	sum := sha256.Sum256([]byte(r.Name + "." + r.Namespace + "." + r.Kind + "." + r.Group))
	return "applyset-" + base64.RawURLEncoding.EncodeToString(sum[:]) + "-v1"
}

// RecordManager is the field manager of the documents RecordBefore and RecordAfter return.
func (s *Set) RecordManager() string { return s.manager + applySetManager }

// RecordBefore returns the document to apply to the owner before a plan is carried out: the id, the tool, and the
// group-kinds and namespaces of every ApplySet member there was or will be. It is nil when the owner says so already, or
// when no kind is carried by ApplySet. The size of the record depends on kinds and namespaces, not on members.
// The error matches ErrForeignTooling.
func (s *Set) RecordBefore(p Plan) (Object, error) {
	if !s.usesApplySet() || p.Teardown {
		return nil, nil
	}
	kinds, namespaces := recorded(p.Owner)
	s.addMembers(p, kinds, namespaces, func(Decision) bool { return true })
	return s.record(p.Owner, kinds, namespaces)
}

// RecordAfter returns the document that shrinks the record to the members a carried out plan left, or nil. A plan in
// which anything failed keeps the superset. Kinds that the set does not declare stay recorded: nothing here can know
// whether their last member is gone.
func (s *Set) RecordAfter(p Plan) (Object, error) {
	if !s.usesApplySet() || p.Teardown || slices.ContainsFunc(p.Decisions, func(d Decision) bool { return d.Err != nil }) {
		return nil, nil
	}
	kinds, namespaces := map[string]bool{}, map[string]bool{}
	old, oldNamespaces := recorded(p.Owner)
	for k := range old {
		if _, declared := s.byKind[schema.ParseGroupKind(k)]; !declared {
			kinds[k] = true
			namespaces = oldNamespaces
		}
	}
	s.addMembers(p, kinds, namespaces, func(d Decision) bool { return d.Verb != Prune && d.Verb != Release })
	return s.record(p.Owner, kinds, namespaces)
}

func (s *Set) usesApplySet() bool {
	return slices.ContainsFunc(s.kinds, func(k Kind) bool { return k.Carrier == ApplySet })
}

func (s *Set) addMembers(p Plan, kinds, namespaces map[string]bool, stays func(Decision) bool) {
	for _, d := range p.Decisions {
		i, ok := s.byKind[d.Ref.GroupKind()]
		if !ok || s.kinds[i].Carrier != ApplySet || !stays(d) || (d.Verb == Conflict && d.Desired) {
			continue
		}
		kinds[d.Ref.GroupKind().String()] = true
		if ns := d.Ref.Namespace; ns != "" && ns != p.Owner.GetNamespace() {
			namespaces[ns] = true
		}
	}
}

// recorded reads the owner's record leniently: whoever edits it can only make it larger than needed.
func recorded(owner Object) (kinds, namespaces map[string]bool) {
	list := func(key string) map[string]bool {
		out := map[string]bool{}
		for _, e := range strings.Split(owner.GetAnnotations()[key], ",") {
			if e = strings.TrimSpace(e); e != "" {
				out[e] = true
			}
		}
		return out
	}
	return list(applySetKinds), list(applySetNamespaces)
}

func (s *Set) record(owner Object, kinds, namespaces map[string]bool) (Object, error) {
	o := s.identify(owner)
	id, tooling := ApplySetID(o.ref), s.manager+toolingVersion
	notes := owner.GetAnnotations()
	if was := s.ForeignTool(owner); was != "" {
		return nil, fmt.Errorf("record ApplySet on %s: %w: %s is %q, ours is %q", o.ref, ErrForeignTooling, applySetTooling, was, tooling)
	}
	if was := owner.GetLabels()[applySetID]; was != "" && was != id {
		return nil, fmt.Errorf("record ApplySet on %s: %w: %s is %q, the id of this owner is %q", o.ref, ErrForeignTooling, applySetID, was, id)
	}
	contains := strings.Join(slices.Sorted(maps.Keys(kinds)), ",")
	additional := strings.Join(slices.Sorted(maps.Keys(namespaces)), ",")
	have, ok := notes[applySetKinds]
	if ok && have == contains && notes[applySetNamespaces] == additional && notes[applySetTooling] == tooling &&
		owner.GetLabels()[applySetID] == id {
		return nil, nil
	}
	annotations := map[string]any{applySetTooling: tooling, applySetKinds: contains}
	if additional != "" {
		annotations[applySetNamespaces] = additional
	}
	md := map[string]any{"name": o.ref.Name, "uid": string(o.uid), "labels": map[string]any{applySetID: id}, "annotations": annotations}
	if o.ref.Namespace != "" {
		md["namespace"] = o.ref.Namespace
	}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": o.apiVersion, "kind": o.ref.Kind, "metadata": md}}, nil
}

// ForeignTool is the tool that has owner as the parent of an ApplySet of its own, as its annotation spells it, or "".
func (s *Set) ForeignTool(owner Object) string {
	if was := owner.GetAnnotations()[applySetTooling]; was != "" && toolName(was) != s.manager {
		return was
	}
	return ""
}

// toolName is everything before the last slash.
func toolName(tooling string) string {
	if i := strings.LastIndexByte(tooling, '/'); i >= 0 {
		return tooling[:i]
	}
	return tooling
}
