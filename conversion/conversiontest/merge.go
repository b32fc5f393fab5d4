// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversiontest

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// open stands for a value that nobody can predict: what belongs to which of several equal items.
type open struct{}

// hollow is an object without members, which may be absent as well.
type hollow struct{}

// merge is what a version shows after an edit at another one: what it showed before, but for what the edit has changed.
// before and after are the edited object, converted to this version without anything that was kept. It is written on Go
// values, from the sentence alone, so that it shares no mistake with package conversion.
func merge(shown, before, after any, s *schema) any {
	if reflect.DeepEqual(before, after) {
		return shown
	}
	a, aok := before.(map[string]any)
	b, bok := after.(map[string]any)
	c, cok := shown.(map[string]any)
	if aok && bok && cok {
		out := map[string]any{}
		names := map[string]bool{}
		for _, m := range []map[string]any{a, b, c} {
			for k := range m {
				names[k] = true
			}
		}
		for k := range names {
			x, inA := a[k]
			y, inB := b[k]
			z, inC := c[k]
			switch {
			case inA == inB && (!inA || reflect.DeepEqual(x, y)):
				if inC {
					out[k] = z
				}
			case inA && inB && inC:
				out[k] = merge(z, x, y, s.property(k))
			case inB:
				out[k] = y
			}
		}
		return out
	}
	la, aok := before.([]any)
	lb, bok := after.([]any)
	lc, cok := shown.([]any)
	if aok && bok && cok {
		return mergeLists(lc, la, lb, s)
	}
	return after
}

// mergeBody is merge for a whole object. That an old version has nothing left to say in spec or status takes nothing away
// that it never showed, and whether one of them is empty or absent says nothing.
func mergeBody(shown, before, after map[string]any, s *schema) map[string]any {
	filled := func(m map[string]any) map[string]any {
		m = maps.Clone(m)
		for _, k := range []string{"spec", "status"} {
			if m[k] == nil {
				m[k] = map[string]any{}
			}
		}
		return m
	}
	shown, before, after = filled(shown), filled(before), filled(after)
	out, _ := merge(shown, before, after, s).(map[string]any)
	for _, k := range []string{"spec", "status"} {
		if m, ok := out[k].(map[string]any); out[k] == nil || ok && len(m) == 0 {
			out = maps.Clone(out)
			out[k] = hollow{}
		}
	}
	return out
}

// loosen opens the places of a prediction p that differ from q and that nobody owns. fields are the owned ones, as
// managedFields writes them.
func loosen(p, q any, fields map[string]any, s *schema) any {
	if reflect.DeepEqual(p, q) {
		return p
	}
	if len(fields) == 0 {
		return open{}
	}
	switch p := p.(type) {
	case map[string]any:
		b, _ := q.(map[string]any)
		out := map[string]any{}
		for k, x := range p {
			f, owned := fields["f:"+k].(map[string]any)
			y, there := b[k]
			switch {
			case there:
				out[k] = loosen(x, y, f, s.property(k))
			case !owned:
				out[k] = open{}
			default:
				out[k] = loosen(x, nil, f, s.property(k))
			}
		}
		for k := range b {
			if _, there := p[k]; !there {
				out[k] = open{}
			}
		}
		return out
	case []any:
		b, _ := q.([]any)
		if s == nil || len(s.MapKeys) == 0 {
			return p
		}
		out := make([]any, len(p))
		for i, x := range p {
			f, owned := fields["k:"+fieldKey(x, s.MapKeys)].(map[string]any)
			j := indexOf(b, x, s.MapKeys)
			if !owned || j < 0 {
				return open{}
			}
			out[i] = loosen(x, b[j], f, s.Items)
		}
		return out
	}
	return p
}

// fieldKey is the key of an item as managedFields writes it.
func fieldKey(item any, keys []string) string {
	m, _ := item.(map[string]any)
	out := map[string]any{}
	for _, k := range keys {
		out[k] = m[k]
	}
	return string(encode(out))
}

// ownedAt is what managedFields say of a version, all managers together.
func ownedAt(m map[string]any, version string) map[string]any {
	all := map[string]any{}
	meta, _ := m["metadata"].(map[string]any)
	entries, _ := meta["managedFields"].([]any)
	for _, e := range entries {
		e, _ := e.(map[string]any)
		if f, ok := e["fieldsV1"].(map[string]any); ok && e["apiVersion"] == version {
			all, _ = applyMerge(all, f).(map[string]any)
		}
	}
	inMeta, _ := all["f:metadata"].(map[string]any)
	for _, k := range []string{"labels", "annotations"} {
		if f, ok := inMeta["f:"+k]; ok {
			all["f:metadata."+k] = f
		}
	}
	return all
}

func (s *schema) property(name string) *schema {
	if s == nil {
		return nil
	}
	if p := s.Properties[name]; p != nil {
		return p
	}
	return s.additional()
}

// mergeLists follows every item to where it went.
func mergeLists(shown, before, after []any, s *schema) any {
	if len(shown) != len(before) {
		return open{}
	}
	if s != nil && len(s.MapKeys) > 0 {
		out := make([]any, len(after))
		for i, x := range after {
			out[i] = x
			j := slices.IndexFunc(before, func(y any) bool { return keyOf(x, s.MapKeys) == keyOf(y, s.MapKeys) })
			if j >= 0 {
				out[i] = merge(shown[j], before[j], x, s.Items)
			}
		}
		return out
	}
	times := func(list []any, x any) (n int) {
		for _, y := range list {
			if reflect.DeepEqual(x, y) {
				n++
			}
		}
		return n
	}
	out := make([]any, len(after))
	for i, x := range after {
		switch a, b := times(before, x), times(after, x); {
		case a == 0:
			out[i] = x // new, or edited so that nobody knows it again
		case a == 1 && b == 1:
			out[i] = shown[slices.IndexFunc(before, func(y any) bool { return reflect.DeepEqual(x, y) })]
		default:
			out[i] = open{}
		}
	}
	return out
}

// join is what two predictions agree on; what they do not agree on is open.
func join(p, q any) any {
	a, aok := p.(map[string]any)
	b, bok := q.(map[string]any)
	if aok && bok {
		out := map[string]any{}
		for k, x := range a {
			if y, ok := b[k]; ok {
				out[k] = join(x, y)
			} else {
				out[k] = open{}
			}
		}
		for k := range b {
			if _, ok := a[k]; !ok {
				out[k] = open{}
			}
		}
		return out
	}
	if reflect.DeepEqual(p, q) {
		return p
	}
	return open{}
}

// differs says where what is there is not what was expected, "" if nowhere.
func differs(want, got any, path string) string {
	if _, ok := want.(open); ok {
		return ""
	}
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			break
		}
		names := maps.Clone(w)
		maps.Copy(names, g)
		for _, k := range sortedKeys(names) {
			x, inW := w[k]
			y, inG := g[k]
			if _, ok := x.(hollow); ok && (!inG || reflect.DeepEqual(y, map[string]any{})) {
				continue
			}
			if _, any := x.(open); inW != inG && !any {
				return fmt.Sprintf("%s.%s: %s, want %s", path, k, say(y, inG), say(x, inW))
			}
			if d := differs(x, y, path+"."+k); inW && d != "" {
				return d
			}
		}
		return ""
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			break
		}
		for i := range w {
			if d := differs(w[i], g[i], fmt.Sprintf("%s[%d]", path, i)); d != "" {
				return d
			}
		}
		return ""
	}
	if reflect.DeepEqual(want, got) {
		return ""
	}
	return fmt.Sprintf("%s: %s, want %s", path, say(got, true), say(want, true))
}

func say(x any, there bool) string {
	if !there {
		return "absent"
	}
	return string(encode(closed(x)))
}

// closed makes a value that can be written of one with open places.
func closed(x any) any {
	switch x := x.(type) {
	case open:
		return "(any)"
	case hollow:
		return "(nothing)"
	case map[string]any:
		out := map[string]any{}
		for k, v := range x {
			out[k] = closed(v)
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i, v := range x {
			out[i] = closed(v)
		}
		return out
	}
	return x
}
