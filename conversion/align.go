// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import "slices"

// align says for every item of to which item of from it is, -1 for none; both lists come from one conversion, so an item
// that differs was converted, not replaced.
//
// With keys, items with equal keys are the same. Without, equal items that are the only ones of their kind are; between
// those, items are the same by position where as many stand on either side.
func align(from, to []ref, keys []string) []int {
	out := make([]int, len(to))
	for i := range out {
		out[i] = -1
	}
	if len(keys) > 0 {
		if a, b := identities(from, keys), identities(to, keys); a != nil && b != nil {
			for id, i := range b {
				if j, ok := a[id]; ok {
					out[i] = j
				}
			}
			return out
		}
	}
	if len(from) == len(to) && !slices.ContainsFunc(from, func(r ref) bool { return r.kind() != '{' && r.kind() != '[' }) {
		// The usual case needs few digests: every item is where it was, or looks like none of the others.
		if !moved(from, to) {
			for i := range out {
				out[i] = i
			}
			return out
		}
	}
	a, b := unique(from), unique(to)
	last := -1
	for i, item := range to {
		if j, ok := a[digest(item)]; ok {
			if _, once := b[digest(item)]; once {
				out[i] = j
			}
		}
	}
	// Gaps between items that are in order on both sides.
	i := 0
	for i < len(to) {
		if out[i] >= 0 {
			last = out[i]
			i++
			continue
		}
		end := i
		for end < len(to) && out[end] < 0 {
			end++
		}
		next := len(from)
		if end < len(to) {
			next = out[end]
		}
		if next-last-1 == end-i {
			for k := range end - i {
				if !slices.Contains(out, last+1+k) {
					out[i+k] = last + 1 + k
				}
			}
		}
		i = end
	}
	return out
}

// moved reports whether an item of to is at another place in from, and not at its own.
func moved(from, to []ref) bool {
	const long = 32 // from here on the square of the length is more than all digests
	var known map[string]struct{}
	for i, item := range to {
		switch {
		case equal(from[i], item):
		case len(from) < long:
			if slices.ContainsFunc(from, func(r ref) bool { return equal(r, item) }) {
				return true
			}
		default:
			if known == nil {
				known = make(map[string]struct{}, len(from))
				for _, r := range from {
					known[digest(r)] = struct{}{}
				}
			}
			if _, ok := known[digest(item)]; ok {
				return true
			}
		}
	}
	return false
}

// unique maps the digests of the items that are there once to their places.
func unique(list []ref) map[string]int {
	out, twice := make(map[string]int, len(list)), map[string]bool{}
	for i, r := range list {
		d := digest(r)
		if _, ok := out[d]; ok || twice[d] {
			delete(out, d)
			twice[d] = true
			continue
		}
		out[d] = i
	}
	return out
}

// identities maps what the key members of every item say to its place; nil if an item has none, or two have the same.
func identities(list []ref, keys []string) map[string]int {
	out := make(map[string]int, len(list))
	for i, r := range list {
		id, ok := identity(r, keys)
		if _, twice := out[id]; !ok || twice {
			return nil
		}
		out[id] = i
	}
	return out
}

// identity is the key members of an item as a JSON list. A key that is absent counts as null: the keys of a list map have
// defaults.
func identity(r ref, keys []string) (string, bool) {
	if r.kind() != '{' {
		return "", false
	}
	b := []byte{'['}
	found := false
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		if v := r.get(k); v.ok() {
			found = true
			b = appendCanonical(b, v)
		} else {
			b = append(b, "null"...)
		}
	}
	return string(append(b, ']')), found
}
