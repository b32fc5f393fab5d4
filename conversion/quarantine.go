// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"context"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// The annotation of an object in quarantine has these members.
const (
	fromName  = "#from"  // the version of the original
	bodyName  = "#body"  // the original without apiVersion, kind and metadata
	leftName  = "#left"  // where the copy lacks what the original has, as JSON pointers
	stashName = "#stash" // what the annotation of the original was
	errorName = "#error"
)

// attempt converts an object, or sets it apart if that fails and is allowed. A panic is a failure.
func (c *Converter) attempt(ctx context.Context, o *object, to string, quarantine bool) (r Result, err error) {
	r, err = c.guarded(ctx, o, to, true)
	if err == nil || !quarantine || ctx.Err() != nil || !o.meta.ok() || c.knows(o.version) != nil || c.knows(to) != nil {
		return r, err
	}
	why := failure(o, to, err)
	set, qerr := c.setApart(o, to, why)
	if qerr != nil {
		return r, fmt.Errorf("%w; quarantine is not possible: %w", err, qerr)
	}
	return set, nil
}

// guarded is convert with panics as errors: those of pairs, and those of the methods of their types.
func (c *Converter) guarded(ctx context.Context, o *object, to string, brief bool) (r Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	return c.convert(ctx, o, to, brief)
}

// setApart makes an object of the target version that holds what both versions have in common, and the original beside it.
func (c *Converter) setApart(o *object, to string, why error) (Result, error) {
	original, kept := *o, o.stash
	if was, ok, err := c.original(o); err != nil {
		return Result{}, err
	} else if ok {
		original, kept = was, was.stash
	}
	body, left := c.common(&original, to)
	text := appendString(append([]byte{','}, `"`+fromName+`":`...), original.version)
	text = append(append(text, `,"`+bodyName+`":`...), bareBody(&original)...)
	text = append(text, `,"`+leftName+`":[`...)
	for i, path := range left {
		if i > 0 {
			text = append(text, ',')
		}
		text = appendString(text, path)
	}
	text = append(text, ']')
	if kept.ok() {
		text = appendString(append(text, `,"`+stashName+`":`...), kept.str())
	}
	text = appendString(append(text, `,"`+errorName+`":`...), why.Error())
	text = append(text, '}')
	if len(c.macKeys) > 0 {
		text = append([]byte(`,"`+macName+`":"`+c.mac(c.macKeys[0], o, text)+`"`), text...)
	}
	text[0] = '{'
	if err := fits(o, len(text), stash{original.version: {{Path: "", New: original.body.bytes()}}}); err != nil {
		return Result{}, err
	}
	y := *o
	if err := y.setBody(body); err != nil {
		return Result{}, err
	}
	return Result{
		Object: y.write(len(o.body.raw), c.gk.WithVersion(to).GroupVersion().String(), string(text), true),
		From:   o.version, To: to, Bytes: len(text), Refused: why,
	}, nil
}

func bareBody(o *object) []byte {
	b := []byte{'{'}
	for m := range o.body.children() {
		if outside(string(m.name())) {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		n := m.n()
		b = append(append(append(b, '"'), m.raw[n.key:n.keyEnd]...), '"', ':')
		b = append(b, m.bytes()...)
	}
	return append(b, '}')
}

// original is what an object in quarantine really is, with what has been edited on the copy since.
func (c *Converter) original(o *object) (was object, ok bool, err error) {
	if !o.stash.ok() {
		return was, false, nil
	}
	d := &doc{}
	if d.parse(o.stash.str()) != nil {
		return was, false, nil
	}
	root := ref{d, 0}
	from, body := root.get(fromName), root.get(bodyName)
	if from.kindOr() != '"' || body.kindOr() != '{' || c.knows(string(from.str())) != nil {
		return was, false, nil
	}
	if len(c.macKeys) > 0 && c.verify(o, o.stash.str(), root) != nil {
		return was, false, nil // it is a copy under another name, or forged: readStash rejects it
	}
	was = *o
	was.version, was.body, was.stash = string(from.str()), body, none
	copied := was
	var shown []byte
	if left := root.get(leftName); left.ok() {
		shown = without(body, left)
	} else {
		shown, _ = c.common(&was, o.version)
	}
	if err := copied.setBody(shown); err != nil {
		return was, false, err
	}
	now := *o
	if err := now.setBody(bareBody(o)); err != nil {
		return was, false, err
	}
	now.meta, copied.meta = none, none
	now.version = was.version
	if edits := c.lost(now, copied); len(edits) > 0 {
		if was, err = c.restore(was, edits, nil); err != nil {
			return was, false, err
		}
	}
	// The annotation is what it was before.
	if s := root.get(stashName); s.kindOr() == '"' {
		err = was.setMeta(metaWith(o, string(s.str())))
	} else {
		err = was.setMeta(metaWith(o, ""))
	}
	return was, err == nil, err
}

// metaWith writes metadata with another annotation of ours.
func metaWith(o *object, stash string) []byte {
	d := &doc{}
	x := object{meta: o.meta, stash: o.stash, body: none}
	if d.parse(x.append(nil, "", stash, false)) != nil {
		return []byte("{}") // not reachable: append writes JSON
	}
	return ref{d, 0}.get("metadata").bytes()
}

// without is a body without what is at some places of it.
func without(body, left ref) []byte {
	r := restorer{root: body, replace: map[int32][]byte{}}
	lists := map[int32][]ref{}
	for place := range left.children() {
		at := body
		for segment := range strings.SplitSeq(strings.TrimPrefix(string(place.str()), "/"), "/") {
			switch at.kindOr() {
			case '{':
				at = at.get(unescape(segment))
			case '[':
				if lists[at.i] == nil {
					lists[at.i] = at.items()
				}
				i, err := strconv.Atoi(segment)
				if items := lists[at.i]; err != nil || i < 0 || i >= len(items) {
					at = none
				} else {
					at = items[i]
				}
			default:
				at = none
			}
		}
		if at.ok() {
			r.replace[at.i] = nil
			r.touched = append(r.touched, at.i)
		}
	}
	slices.Sort(r.touched)
	return r.write(nil, body)
}

// common is the body of an object as far as two versions have it in common, and the places where they have not. Without
// types that is nothing.
func (c *Converter) common(o *object, to string) (body []byte, left []string) {
	if c.class[o.version] == c.class[to] {
		return bareBody(o), nil
	}
	b := []byte{'{'}
	a, z := c.sideOf(o.version), c.sideOf(to)
	typed := a != nil && z != nil && a.info != nil && z.info != nil
	var s *shape
	if typed {
		s = shapes{}.of(a.info, z.info)
	}
	var p sharing
	for m := range o.body.children() {
		if outside(string(m.name())) {
			continue
		}
		var f *field
		if typed {
			f = z.info.field(m.name())
		}
		b = p.member(b, m, s, f, "")
	}
	return append(b, '}'), p.left
}

// sideOf is the Go form of a version, or of one with the same schema.
func (c *Converter) sideOf(version string) *side {
	if s := c.sides[version]; s != nil {
		return s
	}
	for _, v := range c.versions {
		if c.class[v] == c.class[version] && c.sides[v] != nil {
			return c.sides[v]
		}
	}
	return nil
}

// sharing copies what two types hold, and notes the places it leaves out.
type sharing struct{ left []string }

// member appends the part of a member that both types hold, if there is one.
func (p *sharing) member(b []byte, m ref, s *shape, f *field, path string) []byte {
	if s = s.child(m.name()); f == nil {
		s = nil
	}
	var t *typeInfo
	if f != nil {
		t = f.info
	}
	return p.entry(b, m, s, t, path)
}

// entry is member for what has the shape s and the type t.
func (p *sharing) entry(b []byte, m ref, s *shape, t *typeInfo, path string) []byte {
	mark, from := len(p.left), len(b)
	path += "/" + escape(string(m.name()))
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(appendString(b, m.name()), ':')
	b, ok := p.value(b, m, s, t, path)
	if !ok {
		p.left = append(p.left[:mark], path)
		return b[:from]
	}
	return b
}

func (p *sharing) value(b []byte, r ref, s *shape, t *typeInfo, path string) ([]byte, bool) {
	if s == nil {
		return b, false
	}
	t = t.deref()
	switch {
	case s.member != nil && r.kind() == '{':
		b = append(b, '{')
		for m := range r.children() {
			b = p.member(b, m, s, t.field(m.name()), path)
		}
		return append(b, '}'), true
	case s.list && r.kind() == '[':
		b = append(b, '[')
		i := 0
		for m := range r.children() {
			if i > 0 {
				b = append(b, ',')
			}
			var ok bool
			if b, ok = p.value(b, m, s.elem, t.elem, path+"/"+strconv.Itoa(i)); !ok {
				return b, false
			}
			i++
		}
		return append(b, ']'), true
	}
	if !takes(t, r) {
		return b, false
	}
	if s.elem != nil && r.kind() == '{' { // a map whose values may be common in part only
		b = append(b, '{')
		for m := range r.children() {
			b = p.entry(b, m, s.elem, t.elem, path)
		}
		return append(b, '}'), true
	}
	return append(b, r.bytes()...), true
}

// takes reports whether a type takes a value. What its code panics over it does not take.
func takes(t *typeInfo, r ref) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	return (&decoder{}).value(r, t, reflect.New(t.t).Elem()) == nil
}
