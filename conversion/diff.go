// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"slices"
	"strconv"
	"strings"
)

// Change is a value that differs between two documents. Old and New are JSON; nil is absent, which is not null.
//
// Path is a JSON pointer. An item of a list is named by what it is, not by where it stands: "@" and its key values, or
// "#" and a digest of its content, followed by ".n" for the n-th of several equal items.
type Change struct {
	Path     string // JSON pointer
	Old, New []byte // JSON

	after  *string  // New is inserted into the list at Path, after the item with this selector ("": in front)
	digest []string // of all items of the list at Path, which has equal ones: the change changes nothing itself
}

// listKeys are the members that tell the items of a list apart, by the path of the list without its items: spec.rules.
type listKeys map[string][]string

// differ compares two documents of one version.
type differ struct {
	keys listKeys
	out  []Change
}

func escape(segment string) string {
	return strings.ReplaceAll(strings.ReplaceAll(segment, "~", "~0"), "/", "~1")
}

func unescape(segment string) string {
	return strings.ReplaceAll(strings.ReplaceAll(segment, "~1", "/"), "~0", "~")
}

// top reports whether a member of an object is there whether it says something or not: an old version that has nothing left
// to say in spec or status takes nothing away that it never showed. Further down, who removes an object means all of it.
func top(name string) bool { return name == "spec" || name == "status" }

func raw(r ref) []byte {
	if !r.ok() {
		return nil
	}
	return r.bytes()
}

func join(schema, name string) string {
	if schema == "" {
		return name
	}
	return schema + "." + name
}

// value notes how to get from old to new. Both are there.
func (d *differ) value(path, schema string, old, new ref) {
	switch {
	case equal(old, new):
	case old.kind() == '{' && new.kind() == '{':
		d.members(path, schema, old, new, nil)
	case old.kind() == '[' && new.kind() == '[':
		d.list(path, schema, old, new)
	default:
		d.out = append(d.out, Change{Path: path, Old: old.bytes(), New: new.bytes()})
	}
}

func (d *differ) members(path, schema string, old, new ref, leave func(string) bool) {
	hint := old.i + 1
	for n := range new.children() {
		if leave != nil && leave(string(n.name())) {
			continue
		}
		var o ref
		if o, hint = old.find(n.name(), hint); o.ok() && equal(o, n) {
			continue
		}
		name := string(n.name())
		at := path + "/" + escape(name)
		if !o.ok() && path == "" && top(name) && n.kind() == '{' && n.count() > 0 {
			// By member, so that what an old version says there one day leaves the rest where it is.
			for m := range n.children() {
				d.out = append(d.out, Change{Path: at + "/" + escape(string(m.name())), New: m.bytes()})
			}
			continue
		}
		if !o.ok() {
			d.out = append(d.out, Change{Path: at, New: n.bytes()})
			continue
		}
		d.value(at, join(schema, name), o, n)
	}
	hint = new.i + 1
	for o := range old.children() {
		if leave != nil && leave(string(o.name())) {
			continue
		}
		var n ref
		if n, hint = new.find(o.name(), hint); !n.ok() {
			d.out = append(d.out, Change{Path: path + "/" + escape(string(o.name())), Old: o.bytes()})
		}
	}
}

// list names items in a way that still means them when the list has been edited at the other version.
func (d *differ) list(path, schema string, old, new ref) {
	whole := Change{Path: path, Old: old.bytes(), New: new.bytes()}
	olds, news := old.items(), new.items()
	from := align(olds, news, d.keys[schema])
	last := -1
	for _, i := range from {
		if i >= 0 {
			if i <= last { // the conversion moves items about
				d.out = append(d.out, whole)
				return
			}
			last = i
		}
	}
	names := selectors(olds, d.keys[schema])
	for i := 0; i < len(news); i++ {
		// Where the two sides of a gap have nothing in common nobody can say which item became which.
		if from[i] < 0 && gapHasOlds(from, i, len(olds)) {
			d.out = append(d.out, whole)
			return
		}
	}
	mark := len(d.out)
	named := false
	use := func(i int) string {
		named = named || strings.Contains(names[i], ".")
		return names[i]
	}
	after := ""
	for i, n := range news {
		if from[i] < 0 {
			at := after
			d.out = append(d.out, Change{Path: path, New: n.bytes(), after: &at})
			continue
		}
		before := len(d.out)
		d.value(path+"/"+escape(names[from[i]]), schema, olds[from[i]], n)
		if len(d.out) > before {
			use(from[i])
		}
		after = names[from[i]]
		if i+1 < len(news) && from[i+1] < 0 {
			use(from[i])
		}
	}
	for i, o := range olds {
		if !slices.Contains(from, i) {
			d.out = append(d.out, Change{Path: path + "/" + escape(use(i)), Old: o.bytes()})
		}
	}
	if named {
		// Equal items can only be told apart by their surroundings.
		head := Change{Path: path, digest: make([]string, len(olds))}
		for i, o := range olds {
			head.digest[i] = digest(o)
		}
		d.out = slices.Insert(d.out, mark, head)
	}
}

// gapHasOlds reports whether the old items between the neighbours of a new item without an old one are left over, too.
func gapHasOlds(from []int, i, olds int) bool {
	last, next := -1, olds
	for k := i; k >= 0; k-- {
		if from[k] >= 0 {
			last = from[k]
			break
		}
	}
	for k := i; k < len(from); k++ {
		if from[k] >= 0 {
			next = from[k]
			break
		}
	}
	return next-last > 1
}

// selectors names the items of a list.
func selectors(list []ref, keys []string) []string {
	out := make([]string, len(list))
	if len(keys) > 0 && identities(list, keys) != nil {
		for i, r := range list {
			id, _ := identity(r, keys)
			out[i] = "@" + id
		}
		return out
	}
	count := map[string]int{}
	for i, r := range list {
		out[i] = "#" + digest(r)
		count[out[i]]++
	}
	seen := map[string]int{}
	for i, s := range out {
		if count[s] > 1 {
			seen[s]++
			out[i] = s + "." + strconv.Itoa(seen[s])
		}
	}
	return out
}
