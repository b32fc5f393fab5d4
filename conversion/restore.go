// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// restorer applies changes to a document, each only where the document still holds what the change found there. What
// somebody has edited stays as it is.
type restorer struct {
	root    ref
	keys    listKeys
	replace map[int32][]byte   // a nil value drops the place
	add     map[int32][]addend // to an object or a list
	touched []int32
	digests map[int32][]string // of the items of lists with equal items, as they were
	lists   map[int32]*items   // of lists in which an item was looked for
	made    []made             // spec or status, where it is gone
	dropped int
}

// made is a top-level member that changes make anew.
type made struct {
	name    string
	members []addend
}

// addend is a member that is added to an object, or an item that comes after another one in a list.
type addend struct {
	name  string
	after int // place of the item in front of it, -1: none
	raw   []byte
}

// restore returns root with the changes, the bytes of root itself if none applies, and how many did not.
func restore(root ref, keys listKeys, changes []Change) (out []byte, changed bool, dropped int) {
	r := restorer{root: root, keys: keys}
	for _, c := range changes {
		r.change(c)
	}
	if len(r.touched) == 0 {
		return root.bytes(), false, r.dropped
	}
	for _, m := range r.made {
		b := []byte{'{'}
		for i, a := range m.members {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(append(appendString(b, a.name), ':'), a.raw...)
		}
		if b = append(b, '}'); root.get(m.name).ok() {
			r.replace[root.get(m.name).i] = b
		} else {
			r.addTo(root.i, addend{name: m.name, raw: b})
		}
	}
	slices.Sort(r.touched)
	return r.write(nil, root), true, r.dropped
}

func (r *restorer) change(c Change) {
	if c.digest != nil {
		if r.digests == nil {
			r.digests = map[int32][]string{}
		}
		if at, _, _ := r.find(c.Path); at.ok() && r.digests[at.i] == nil { // a forged one comes back, and all is found out anew
			r.digests[at.i] = c.digest
			delete(r.lists, at.i)
		}
		return
	}
	at, parent, name := r.find(c.Path)
	switch {
	case c.after != nil:
		if at.ok() && at.kind() == '[' {
			place := -1
			if *c.after != "" {
				if place = r.item(at, *c.after); place < 0 {
					break
				}
			}
			r.addTo(at.i, addend{after: place, raw: c.New})
			return
		}
	case at.ok() && c.Old != nil && r.holds(at, c.Old):
		if r.replace == nil {
			r.replace = map[int32][]byte{}
		}
		r.replace[at.i] = c.New
		r.touched = append(r.touched, at.i)
		return
	case !at.ok() && c.Old == nil && parent.ok() && parent.kind() == '{' && !r.adds(parent.i, name) &&
		!(parent.i == r.root.i && slices.ContainsFunc(r.made, func(m made) bool { return m.name == name })):
		r.addTo(parent.i, addend{name: name, raw: c.New})
		return
	case c.Old == nil && r.anew(c.Path, c.New):
		return
	}
	r.dropped++
}

// anew makes spec or status again for a member that belongs into it. Server-side apply removes the last field, and leaves
// null, of an object that it converts to the version of another manager.
func (r *restorer) anew(path string, raw []byte) bool {
	part, name, ok := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if !ok || strings.Contains(name, "/") || !top(part) || r.root.kind() != '{' {
		return false
	}
	at := r.root.get(part)
	if at.ok() && at.kind() != 'n' {
		return false
	}
	name = unescape(name)
	i := slices.IndexFunc(r.made, func(m made) bool { return m.name == part })
	switch {
	case r.adds(r.root.i, part), i >= 0 && slices.ContainsFunc(r.made[i].members, func(a addend) bool { return a.name == name }):
		return false
	case i < 0:
		i = len(r.made)
		r.made = append(r.made, made{name: part})
		if at.ok() {
			if r.replace == nil {
				r.replace = map[int32][]byte{}
			}
			r.replace[at.i] = at.bytes()
			r.touched = append(r.touched, at.i)
		} else {
			r.touched = append(r.touched, r.root.i)
		}
	}
	r.made[i].members = append(r.made[i].members, addend{name: name, raw: raw})
	return true
}

// adds reports whether a member is added already: who forges an annotation must not be able to write a name twice, which
// no version could convert.
func (r *restorer) adds(i int32, name string) bool {
	return slices.ContainsFunc(r.add[i], func(a addend) bool { return a.name == name })
}

func (r *restorer) addTo(i int32, a addend) {
	if r.add == nil {
		r.add = map[int32][]addend{}
	}
	r.add[i] = append(r.add[i], a)
	r.touched = append(r.touched, i)
}

func (r *restorer) holds(at ref, old []byte) bool {
	if bytes.Equal(at.bytes(), old) {
		return true
	}
	var d doc
	return d.parse(old) == nil && equal(at, ref{&d, 0})
}

// find follows a path. Where only the last step is missing, parent is where it would be.
func (r *restorer) find(path string) (at, parent ref, name string) {
	at = r.root
	if path == "" {
		return at, none, ""
	}
	for segment := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if parent = at; !at.ok() {
			return none, none, ""
		}
		name = unescape(segment)
		switch at.kind() {
		case '{':
			at = at.get(name)
		case '[':
			i := r.item(at, name)
			if at = none; i >= 0 {
				at = r.lists[parent.i].all[i]
			}
		default:
			return none, none, ""
		}
	}
	return at, parent, name
}

// items are the items of a list by all that a selector may call them, each found out once: what is kept for thousands of
// items must not cost the square of that.
type items struct {
	all   []ref
	keyed map[string]int   // by key members; -1: several
	once  map[string]int   // by digest; -1: several
	equal map[string][]int // by digest, of items with equal ones
}

// item is the place of the item of a list that a selector means, -1 if there is none or nobody can tell.
func (r *restorer) item(list ref, selector string) int {
	l := r.lists[list.i]
	if l == nil {
		l = &items{all: list.items()}
		if r.lists == nil {
			r.lists = map[int32]*items{}
		}
		r.lists[list.i] = l
	}
	switch {
	case strings.HasPrefix(selector, "@"):
		if l.keyed == nil {
			keys := r.keys[r.schema(list)]
			l.keyed = places(l.all, func(item ref) (string, bool) { return identity(item, keys) })
		}
		return placeOf(l.keyed, selector[1:])
	case strings.HasPrefix(selector, "#"):
		want, nth, equals := strings.Cut(selector[1:], ".")
		if l.once == nil {
			now := make([]string, 0, len(l.all))
			l.once = places(l.all, func(item ref) (string, bool) {
				now = append(now, digest(item))
				return now[len(now)-1], true
			})
			l.equal = among(r.digests[list.i], now)
		}
		if !equals {
			return placeOf(l.once, want)
		}
		if n, err := strconv.Atoi(nth); err == nil && n >= 1 && n <= len(l.equal[want]) {
			return l.equal[want][n-1]
		}
	}
	return -1
}

// places maps what items are called to where they are, -1 for a name of several.
func places(list []ref, name func(ref) (string, bool)) map[string]int {
	out := make(map[string]int, len(list))
	for i, item := range list {
		n, ok := name(item)
		if !ok {
			continue
		}
		if _, twice := out[n]; twice {
			i = -1
		}
		out[n] = i
	}
	return out
}

func placeOf(places map[string]int, name string) int {
	if i, ok := places[name]; ok {
		return i
	}
	return -1
}

// schema is the path of a list without its items.
func (r *restorer) schema(list ref) string {
	var names []string
	for at := r.root; at.i != list.i; {
		for c := range at.children() {
			if c.i <= list.i && list.i < c.n().next {
				if at.kind() == '{' {
					names = append(names, string(c.name()))
				}
				at = c
				break
			}
		}
	}
	return strings.Join(names, ".")
}

// among finds equal items again, in their order: as many must be there as before, and they must stand between the same
// neighbours, of those that are there as often as before. Otherwise one of them was moved, added or removed, and nobody
// can say which.
func among(before, now []string) map[string][]int {
	count := map[string]int{}
	for _, d := range before {
		count[d]++
	}
	for _, d := range now {
		count[d]--
	}
	differs := func(d string) bool { return count[d] != 0 }
	// Not only around one of them: if any item that counts has moved, equal ones may have moved with it.
	if !slices.Equal(slices.DeleteFunc(slices.Clone(before), differs), slices.DeleteFunc(slices.Clone(now), differs)) {
		return nil
	}
	out := map[string][]int{}
	for i, d := range now {
		if !differs(d) {
			out[d] = append(out[d], i)
		}
	}
	return out
}

// write appends a value with the changes below it.
func (r *restorer) write(b []byte, at ref) []byte {
	if raw, ok := r.replace[at.i]; ok {
		return append(b, raw...)
	}
	if k, _ := slices.BinarySearch(r.touched, at.i); k == len(r.touched) || r.touched[k] >= at.n().next {
		return append(b, at.bytes()...)
	}
	open, shut := byte('{'), byte('}')
	if at.kind() == '[' {
		open, shut = '[', ']'
	}
	b = append(b, open)
	first := len(b)
	comma := func() {
		if len(b) > first {
			b = append(b, ',')
		}
	}
	items := func(after int) {
		for _, a := range r.add[at.i] {
			if a.after == after {
				comma()
				b = append(b, a.raw...)
			}
		}
	}
	if open == '[' {
		items(-1)
	}
	i := 0
	for c := range at.children() {
		if raw, ok := r.replace[c.i]; !ok || raw != nil {
			comma()
			if open == '{' {
				n := c.n()
				b = append(append(append(b, '"'), c.raw[n.key:n.keyEnd]...), '"', ':')
			}
			b = r.write(b, c)
		}
		if open == '[' {
			items(i)
		}
		i++
	}
	if open == '{' {
		for _, a := range r.add[at.i] {
			comma()
			b = append(appendString(b, a.name), ':')
			b = append(b, a.raw...)
		}
	}
	return append(b, shut)
}
