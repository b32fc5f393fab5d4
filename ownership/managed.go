// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ownedBy returns the fields that manager applied on the main resource at apiVersion, as the FieldsV1 tree. known is
// false when the object carries no managedFields at all, as in a cache that strips them, or when our entry is written
// in another version's terms.
func ownedBy(o Object, manager, apiVersion string) (tree map[string]any, known bool) {
	for _, e := range o.GetManagedFields() {
		if e.Manager != manager || e.Operation != metav1.ManagedFieldsOperationApply || e.Subresource != "" {
			continue
		}
		if e.APIVersion != apiVersion || e.FieldsV1 == nil || json.Unmarshal(e.FieldsV1.GetRawBytes(), &tree) != nil {
			return nil, false
		}
		return tree, true
	}
	return nil, false
}

// undeclared returns the path of the first field that is ours on the server and no longer declared, or "". Such a
// field is ours to remove, which the next apply does. Fields the server holds as zero do not count: there is nothing to
// remove, and some servers record the zeros a Go type adds.
func undeclared(path string, owned map[string]any, doc, live any) string {
	for _, k := range sortedKeys(owned) {
		sub, _ := owned[k].(map[string]any)
		kind, name, _ := strings.Cut(k, ":")
		var here string
		var want, have any
		declared := false
		switch kind {
		case "f":
			if path == "" && name == "status" {
				continue // an apply of the main resource cannot own it where status is a subresource
			}
			here = path + "." + name
			l, _ := live.(map[string]any)
			have = l[name]
			if m, ok := doc.(map[string]any); ok {
				want, declared = m[name], has(m, name)
			}
		case "k":
			here = path + "[" + name + "]"
			have, _ = itemWith(name, live)
			want, declared = itemWith(name, doc)
		case "v":
			var v any
			if json.Unmarshal([]byte(name), &v) != nil {
				continue
			}
			list, _ := doc.([]any)
			here, have = path+"["+name+"]", v
			declared = slices.ContainsFunc(list, func(e any) bool { return e == v || sameNumber(e, v) })
		default:
			continue
		}
		if !declared {
			if isZero(have) {
				continue
			}
			return here
		}
		if p := undeclared(here, sub, want, have); p != "" {
			return p
		}
	}
	return ""
}

func has(m map[string]any, k string) bool {
	_, ok := m[k]
	return ok
}

// itemWith finds the item of a list with the keys that managedFields spell.
func itemWith(key string, list any) (any, bool) {
	items, _ := list.([]any)
	for _, e := range items {
		if m, ok := e.(map[string]any); ok && matchesKey(key, m) {
			return m, true
		}
	}
	return nil, false
}
