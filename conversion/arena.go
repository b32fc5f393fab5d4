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
	d.trusted = false
	return d
}

// room is memory of a document that is written into before it is parsed.
func (d *doc) room(n int) []byte { return slices.Grow(d.own[:0], n) }

// written parses what was written into room.
func (d *doc) written(b []byte) error {
	d.own, d.trusted = b, true
	return d.parse(b)
}

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
