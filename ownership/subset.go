// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// keyedLists are list fields of built-in types that server-side apply merges by key, so that other writers may add
// items. Every other list is compared whole, in order: an extra subject in a RoleBinding is drift. The managedFields
// of a live object, where the cache keeps them, overrule the table.
var keyedLists = map[string][]string{
	"claims": {"name"}, "conditions": {"type"}, "containers": {"name"}, "env": {"name"},
	"ephemeralContainers": {"name"}, "hostAliases": {"ip"}, "imagePullSecrets": {"name"}, "initContainers": {"name"},
	"listeners": {"name"}, "ownerReferences": {"uid"}, "podIPs": {"ip"}, "ports": {"containerPort", "port", "protocol"},
	"resourceClaims": {"name"}, "schedulingGates": {"name"}, "secrets": {"name"},
	"topologySpreadConstraints": {"topologyKey", "whenUnsatisfiable"}, "volumeDevices": {"devicePath"},
	"volumeMounts": {"mountPath"}, "volumes": {"name"}, "webhooks": {"name"},
}

// openLists are lists other parties extend although apply does not merge them by key: admission adds tolerations to
// every pod. Declared items must be there, in any order.
var openLists = map[string]bool{"finalizers": true, "tolerations": true}

// quantityFields hold resource quantities, by themselves or in the map below them. Elsewhere "1" and "1000m" are
// different strings.
var quantityFields = map[string]bool{
	"requests": true, "limits": true, "capacity": true, "hard": true, "overhead": true, "sizeLimit": true,
	"divisor": true, "averageValue": true, "default": true, "defaultRequest": true, "max": true, "min": true,
	"maxLimitRequestRatio": true,
}

// wholeListGroups are API groups without keyed lists, although some of their fields share a name with one: the ports of
// a NetworkPolicy are compared whole.
var wholeListGroups = map[string]bool{"rbac.authorization.k8s.io": true, "networking.k8s.io": true}

// comparer compares one declared tree with one live tree. whole turns the tables of lists off.
type comparer struct{ whole bool }

// differs returns the path of the first declared field that live does not hold, or "". Fields that are not declared
// never count. owned is what managedFields say about this level, nil when unknown.
func (c comparer) differs(path, field string, want, have any, owned map[string]any) string {
	switch w := want.(type) {
	case nil:
		if isZero(have) {
			return ""
		}
	case map[string]any:
		h, ok := have.(map[string]any)
		if !ok {
			if have == nil && isZero(w) {
				return "" // an empty struct of a Go type, which the server drops
			}
			return at(path)
		}
		for _, k := range sortedKeys(w) {
			child := field
			if !quantityFields[field] {
				child = k
			}
			if p := c.differs(path+"."+k, child, w[k], h[k], below(owned, "f:"+k)); p != "" {
				return p
			}
		}
		return ""
	case []any:
		h, ok := have.([]any)
		if !ok {
			if len(w) == 0 && have == nil {
				return ""
			}
			return at(path)
		}
		return c.listDiffers(path, field, w, h, owned)
	case string:
		if h, ok := have.(string); ok && w == h {
			return ""
		}
		if quantityFields[field] && sameQuantity(w, have) {
			return ""
		}
	case bool:
		if h, ok := have.(bool); ok && w == h {
			return ""
		}
	default:
		if sameNumber(want, have) || (quantityFields[field] && sameQuantity(want, have)) {
			return ""
		}
	}
	return at(path)
}

func (c comparer) listDiffers(path, field string, want, have []any, owned map[string]any) string {
	keys, keyed := keyedLists[field]
	keyed = keyed && !c.whole
	open := openLists[field] && !c.whole
	if len(owned) > 0 {
		keyed, open, keys = false, false, nil
		for k := range owned {
			if name, ok := strings.CutPrefix(k, "k:"); ok {
				keyed = true
				keys = mapKeys(name, keys)
			}
			open = open || strings.HasPrefix(k, "v:")
		}
	}
	if keyed && slices.ContainsFunc(want, func(w any) bool { return !hasKey(keys, w) }) {
		keyed = false // a list of the same name that is something else: its items could never be found
	}
	if !keyed && !open {
		if len(want) != len(have) {
			return at(path)
		}
		for i := range want {
			if p := c.differs(path+"["+strconv.Itoa(i)+"]", field, want[i], have[i], nil); p != "" {
				return p
			}
		}
		return ""
	}
	for i, w := range want {
		here := path + "[" + strconv.Itoa(i) + "]"
		wm, isMap := w.(map[string]any)
		if !isMap || !keyed {
			if !slices.ContainsFunc(have, func(h any) bool { return c.differs(here, field, w, h, nil) == "" }) {
				return at(here)
			}
			continue
		}
		found := false
		first := ""
		for _, h := range have {
			hm, ok := h.(map[string]any)
			if !ok || !sameItem(keys, wm, hm) {
				continue
			}
			p := c.differs(here, field, w, h, itemOf(owned, wm))
			if p == "" {
				found = true
				break
			}
			if first == "" {
				first = p
			}
		}
		if !found {
			if first != "" {
				return first
			}
			return at(here)
		}
	}
	return ""
}

// hasKey reports whether an item can be found by a key.
func hasKey(keys []string, item any) bool {
	m, _ := item.(map[string]any)
	return slices.ContainsFunc(keys, func(k string) bool { _, ok := m[k]; return ok })
}

// sameItem compares the key fields both sides have: a key the server defaults, like protocol, may be undeclared.
func sameItem(keys []string, want, have map[string]any) bool {
	same := false
	for _, k := range keys {
		w, ok := want[k]
		if !ok {
			continue
		}
		h, ok := have[k]
		if !ok || (w != h && !sameNumber(w, h)) {
			return false
		}
		same = true
	}
	return same
}

// mapKeys adds the key names of one managedFields list key, such as {"name":"web"}.
func mapKeys(key string, keys []string) []string {
	var m map[string]any
	if json.Unmarshal([]byte(key), &m) != nil {
		return keys
	}
	for k := range m {
		if !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	return keys
}

// itemOf finds what managedFields say about the list item with want's keys.
func itemOf(owned map[string]any, want map[string]any) map[string]any {
	for k, v := range owned {
		if name, ok := strings.CutPrefix(k, "k:"); ok && matchesKey(name, want) {
			m, _ := v.(map[string]any)
			return m
		}
	}
	return nil
}

func matchesKey(key string, item map[string]any) bool {
	var m map[string]any
	if json.Unmarshal([]byte(key), &m) != nil {
		return false
	}
	same := false
	for k, v := range m {
		i, ok := item[k]
		if !ok {
			continue
		}
		if i != v && !sameNumber(i, v) {
			return false
		}
		same = true
	}
	return same
}

func below(owned map[string]any, key string) map[string]any {
	m, _ := owned[key].(map[string]any)
	return m
}

func sameNumber(a, b any) bool {
	x, ok1 := number(a)
	y, ok2 := number(b)
	return ok1 && ok2 && x == y
}

func number(v any) (float64, bool) {
	switch t := v.(type) {
	case int64:
		return float64(t), true
	case int:
		return float64(t), true
	case int32:
		return float64(t), true
	case float64:
		return t, true
	case json.Number:
		f, err := t.Float64()
		return f, err == nil
	}
	return 0, false
}

func sameQuantity(a, b any) bool {
	x, ok1 := quantity(a)
	y, ok2 := quantity(b)
	return ok1 && ok2 && x.Cmp(y) == 0
}

func quantity(v any) (resource.Quantity, bool) {
	s, ok := v.(string)
	if !ok {
		f, isNumber := number(v)
		if !isNumber {
			return resource.Quantity{}, false
		}
		s = strconv.FormatFloat(f, 'f', -1, 64)
	}
	q, err := resource.ParseQuantity(s)
	return q, err == nil
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func at(path string) string {
	if path == "" {
		return "."
	}
	return path
}
