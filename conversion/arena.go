// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"reflect"
	"slices"
)

// arena is the memory of one conversion. A conversion makes half a dozen documents and forgets all of them; a busy
// webhook would spend most of its time on that.
type arena struct {
	docs []*doc
	used int
	meta metadata
}

// metadata is decoded once for all steps of a conversion, as long as no step has changed it.
type metadata struct {
	from  ref
	info  *typeInfo
	value reflect.Value
}

func (c *Converter) arena() *arena { return c.arenas.Get().(*arena) }

// free takes the memory back: whatever lives in it must have been copied.
func (c *Converter) free(a *arena) {
	a.reset()
	c.arenas.Put(a)
}

// doc is an empty document with room.
func (a *arena) doc() *doc {
	if a == nil {
		return &doc{}
	}
	if a.used == len(a.docs) {
		a.docs = append(a.docs, &doc{})
	}
	d := a.docs[a.used]
	a.used++
	return d
}

// room is memory of a document to write a document into.
func (d *doc) room(n int) []byte { return slices.Grow(d.own[:0], n) }

// reset makes everything free again. Large memory is given back: one object of a megabyte must not cost a megabyte for
// ever.
func (a *arena) reset() {
	const large = 128 << 10
	a.used, a.meta = 0, metadata{}
	a.docs = slices.DeleteFunc(a.docs, func(d *doc) bool { return cap(d.own) > large || cap(d.nodes)*32 > large })
	for _, d := range a.docs {
		d.raw, d.copy = nil, ""
	}
}
