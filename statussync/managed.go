// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fieldSet is one managedFields entry's FieldsV1: "f:<name>" for fields, "k:<JSON>" for keyed items, "." for the item
// itself.
type fieldSet map[string]any

// parseFields decodes an entry; nil when it is none that can be read.
func parseFields(f *metav1.FieldsV1) fieldSet {
	if f == nil {
		return nil
	}
	var s fieldSet
	if json.Unmarshal(f.GetRawBytes(), &s) != nil {
		return nil
	}
	return s
}

// below follows path; nil when it is not there.
func (s fieldSet) below(path ...string) fieldSet {
	for _, p := range path {
		n, ok := s[p].(map[string]any)
		if !ok {
			return nil
		}
		s = n
	}
	return s
}

// list returns the part of the set inside the condition list.
func (o *owned) list(s fieldSet) fieldSet {
	for _, p := range o.path {
		s = s.below("f:" + p)
	}
	return s
}

// conditionKey returns the condition type a "k:" element names.
func conditionKey(k string) (string, bool) {
	if len(k) < 3 || k[:2] != "k:" {
		return "", false
	}
	var key map[string]any
	if json.Unmarshal([]byte(k[2:]), &key) != nil || len(key) != 1 {
		return "", false
	}
	t, ok := key["type"].(string)
	return t, ok
}

// conditions returns the item of each condition type in the set.
func (o *owned) conditions(s fieldSet) map[string]fieldSet {
	out := map[string]fieldSet{}
	for k, v := range o.list(s) {
		if t, ok := conditionKey(k); ok {
			item, _ := v.(map[string]any)
			out[t] = item
		}
	}
	return out
}

// ours says whether an entry is the one this writer's applies go to. The subresource does not count: nobody else applies
// under this name, and a fake client leaves it out.
func ours(e *metav1.ManagedFieldsEntry, manager string) bool {
	return e.Manager == manager && e.Operation == metav1.ManagedFieldsOperationApply
}

// shared says whether an apply that leaves out what is in d would fail to remove it: somebody else owns it too, or our
// own entry does not. Without managedFields it says no, and the reply tells.
func (o *owned) shared(entries []metav1.ManagedFieldsEntry, manager string, d dropSet) bool {
	if len(entries) == 0 {
		return false
	}
	types, fields := map[string]bool{}, map[string]bool{} // ours alone so far
	for i := range entries {
		if !ours(&entries[i], manager) {
			continue
		}
		s := parseFields(entries[i].FieldsV1)
		for t := range o.conditions(s) {
			types[t] = true
		}
		for f := range s.below("f:status") {
			fields[f] = true
		}
	}
	for i := range entries {
		if ours(&entries[i], manager) {
			continue
		}
		s := parseFields(entries[i].FieldsV1)
		for t := range o.conditions(s) {
			delete(types, t)
		}
		for f := range s.below("f:status") {
			delete(fields, f)
		}
	}
	for _, t := range d.types {
		if !types[t] {
			return true
		}
	}
	for _, f := range d.fields {
		if !fields["f:"+f] {
			return true
		}
	}
	return false
}

// taker names the manager, newest first, that holds something we own and is not us.
func (o *owned) taker(entries []metav1.ManagedFieldsEntry, manager string) string {
	var best *metav1.ManagedFieldsEntry
	for i := range entries {
		e := &entries[i]
		if e.Manager == manager {
			continue
		}
		s := parseFields(e.FieldsV1)
		holds := false
		for t := range o.conditions(s) {
			if at, ok := o.index[t]; ok && at >= 0 {
				holds = true
			}
		}
		status := s.below("f:status")
		for _, f := range o.fields {
			if _, ok := status["f:"+f]; ok {
				holds = true
			}
		}
		if _, ok := status["f:"+observedGeneration]; ok && o.primary {
			holds = true
		}
		if holds && newer(e, best) {
			best = e
		}
	}
	if best == nil {
		return ""
	}
	return best.Manager
}

// contender names the manager that wrote last and is not us.
func contender(entries []metav1.ManagedFieldsEntry, manager string) string {
	var best *metav1.ManagedFieldsEntry
	for i := range entries {
		if e := &entries[i]; e.Manager != manager && newer(e, best) {
			best = e
		}
	}
	if best == nil {
		return ""
	}
	return best.Manager
}

func newer(e, than *metav1.ManagedFieldsEntry) bool {
	return than == nil || (e.Time != nil && (than.Time == nil || than.Time.Before(e.Time)))
}
