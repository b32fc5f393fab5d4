// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversiontest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
)

// manager applies at one version.
type manager struct {
	name, version string
	config        map[string]any // what it applied last
}

// choose is what the manager applies next: some of the members of an edited object, whole, and labels at times.
func (m *manager) choose(r *rand.Rand, before, after map[string]any, s *schema) map[string]any {
	out := map[string]any{"apiVersion": after["apiVersion"], "kind": after["kind"]}
	meta, _ := after["metadata"].(map[string]any)
	mine := map[string]any{"name": meta["name"]}
	if r.IntN(3) == 0 {
		mine["labels"] = map[string]any{"of-" + m.name: []string{"a", "b"}[r.IntN(2)]}
	}
	out["metadata"] = mine
	for _, part := range sortedKeys(body(after)) {
		members, ok := after[part].(map[string]any)
		if !ok {
			continue
		}
		was, _ := before[part].(map[string]any)
		some := map[string]any{}
		for _, k := range sortedKeys(members) {
			if r.IntN(3) == 0 || members[k] == nil || tooMany(was[k], members[k], s.property(part).property(k)) {
				continue
			}
			some[k] = members[k]
		}
		if len(some) > 0 {
			out[part] = some
		}
	}
	return out
}

// tooMany reports whether the items of two lists together are more than a list may have.
func tooMany(before, after any, s *schema) bool {
	a, aok := before.([]any)
	b, bok := after.([]any)
	if !aok || !bok || s == nil || s.MaxItems == nil || len(s.MapKeys) == 0 {
		return false
	}
	n := len(b)
	for _, x := range a {
		if indexOf(b, x, s.MapKeys) < 0 {
			n++
		}
	}
	return n > *s.MaxItems
}

func indexOf(list []any, item any, keys []string) int {
	return slices.IndexFunc(list, func(x any) bool { return keyOf(x, keys) == keyOf(item, keys) })
}

// nothing is the value of a place that is not there.
type nothing struct{}

func member(m map[string]any, k string) any {
	if v, ok := m[k]; ok {
		return v
	}
	return nothing{}
}

// parts splits a value that several managers may own parts of; nil if it is owned as a whole.
func (s *schema) parts(v any) map[string]any {
	switch v := v.(type) {
	case map[string]any:
		return v
	case []any:
		if s != nil && len(s.MapKeys) > 0 {
			out := map[string]any{}
			for _, x := range v {
				out[keyOf(x, s.MapKeys)] = x
			}
			return out
		}
	}
	return nil
}

// barren reports whether a value holds nothing that anybody could own: merging drops it when it takes something else away.
func (s *schema) barren(v any) bool {
	parts := s.parts(v)
	for k, x := range parts {
		if !s.part(v, k).barren(x) {
			return false
		}
	}
	return parts != nil
}

func (s *schema) part(v any, name string) *schema {
	if s == nil {
		return nil
	}
	if _, list := v.([]any); list {
		return s.Items
	}
	return s.property(name)
}

// applied says what is wrong with an object after an apply of x by a manager that has applied prev before: x is there, and
// what is neither in x nor in prev is as it was.
func applied(before, now, x, prev any, s *schema, path string) string {
	_, none := x.(nothing)
	_, never := prev.(nothing)
	if none && (!never || reflect.DeepEqual(before, now)) && s.parts(prev) == nil {
		return ""
	}
	a, b, p := s.parts(before), s.parts(now), s.parts(prev)
	c := s.parts(x)
	switch {
	case none && never:
		return fmt.Sprintf("%s: %s, want %s: nobody applied it", path, said(now), said(before))
	case b == nil && (none || p != nil && s.barren(x)):
		return "" // taken away with what the manager has applied; what it applies now holds nothing
	case !none && (c == nil || b == nil):
		if reflect.DeepEqual(x, now) {
			return ""
		}
		return fmt.Sprintf("%s: %s, want what was applied: %s", path, said(now), said(x))
	}
	names := map[string]any{}
	for _, m := range []map[string]any{a, b, c, p} {
		maps.Copy(names, m)
	}
	for _, k := range sortedKeys(names) {
		if d := applied(member(a, k), member(b, k), member(c, k), member(p, k), s.part(now, k), path+"."+k); d != "" {
			return d
		}
	}
	return ""
}

func said(x any) string {
	_, none := x.(nothing)
	return say(x, !none)
}

// shrinks reports whether something in one configuration is not in the next.
func shrinks(prev, x any, s *schema) bool {
	if _, none := prev.(nothing); none {
		return false
	}
	if _, none := x.(nothing); none {
		return true
	}
	p, c := s.parts(prev), s.parts(x)
	for k, v := range p {
		if c != nil && shrinks(v, member(c, k), s.part(prev, k)) {
			return true
		}
	}
	return p != nil && c == nil
}

// overlaid is an object with what is applied to it.
func overlaid(before, x any, s *schema) any {
	a, aok := before.(map[string]any)
	b, bok := x.(map[string]any)
	if aok && bok {
		out := maps.Clone(a)
		for k, v := range b {
			if old, there := out[k]; there {
				v = overlaid(old, v, s.property(k))
			}
			out[k] = v
		}
		return out
	}
	la, aok := before.([]any)
	lb, bok := x.([]any)
	if !aok || !bok || s == nil || len(s.MapKeys) == 0 {
		return x
	}
	out := slices.Clone(la)
	for _, item := range lb {
		if i := indexOf(out, item, s.MapKeys); i >= 0 {
			out[i] = overlaid(out[i], item, s.Items)
		} else {
			out = append(out, item)
		}
	}
	return out
}

// withBody is an object with another body.
func withBody(m, b map[string]any) map[string]any {
	out := map[string]any{"apiVersion": m["apiVersion"], "kind": m["kind"]}
	meta, _ := strip(m)["metadata"].(map[string]any)
	meta = maps.Clone(meta)
	for k, v := range b {
		switch k {
		case "metadata.labels":
			meta["labels"] = v
		case "metadata.annotations":
			meta["annotations"] = v
		default:
			out[k] = v
		}
	}
	out["metadata"] = meta
	return out
}
