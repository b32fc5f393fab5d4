// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"context"
	"fmt"
	"reflect"
	"runtime/debug"
)

// The annotation of an object in quarantine has these members.
const (
	fromName  = "#from"  // the version of the original
	bodyName  = "#body"  // the original without apiVersion, kind and metadata
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
	body := c.common(&original, to)
	text := appendString(append([]byte{','}, `"`+fromName+`":`...), original.version)
	text = append(append(text, `,"`+bodyName+`":`...), bareBody(&original)...)
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
	if len(c.macKeys) > 0 {
		if err := c.verify(o, o.stash.str(), root); err != nil {
			return was, false, err
		}
	}
	was = *o
	was.version, was.body, was.stash = string(from.str()), body, none
	copied := was
	if err := copied.setBody(c.common(&was, o.version)); err != nil {
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

// common is the body of an object as far as two versions have it in common. Without types that is nothing.
func (c *Converter) common(o *object, to string) []byte {
	b := []byte{'{'}
	if c.class[o.version] == c.class[to] {
		return bareBody(o)
	}
	a, z := c.sideOf(o.version), c.sideOf(to)
	if a == nil || z == nil || a.info == nil || z.info == nil {
		return append(b, '}')
	}
	s := shapes{}.of(a.info, z.info)
	for m := range o.body.children() {
		if outside(string(m.name())) {
			continue
		}
		part, ok := appendCommon(nil, m, s.child(m.name()), z.info.field(m.name()))
		if !ok {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(appendString(b, m.name()), ':')
		b = append(b, part...)
	}
	return append(b, '}')
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

// appendCommon appends the part of a value that both types hold, ok if there is one.
func appendCommon(b []byte, r ref, s *shape, f *field) ([]byte, bool) {
	if s == nil || f == nil {
		return b, false
	}
	return appendShared(b, r, s, f.info)
}

func appendShared(b []byte, r ref, s *shape, t *typeInfo) ([]byte, bool) {
	if s == nil {
		return b, false
	}
	t = t.deref()
	switch {
	case s.member != nil && r.kind() == '{':
		b = append(b, '{')
		first := len(b)
		for m := range r.children() {
			part, ok := appendCommon(nil, m, s.child(m.name()), t.field(m.name()))
			if !ok {
				continue
			}
			if len(b) > first {
				b = append(b, ',')
			}
			b = append(appendString(b, m.name()), ':')
			b = append(b, part...)
		}
		return append(b, '}'), true
	case s.list && r.kind() == '[':
		b = append(b, '[')
		i := 0
		for m := range r.children() {
			if i++; i > 1 {
				b = append(b, ',')
			}
			var ok bool
			if b, ok = appendShared(b, m, s.elem, t.elem); !ok {
				return b, false
			}
		}
		return append(b, ']'), true
	}
	if err := (&decoder{}).value(r, t, reflect.New(t.t).Elem()); err != nil {
		return b, false
	}
	if s.elem != nil && r.kind() == '{' { // a map whose values may be common in part only
		b = append(b, '{')
		first := len(b)
		for m := range r.children() {
			part, ok := appendShared(nil, m, s.elem, t.elem)
			if !ok {
				continue
			}
			if len(b) > first {
				b = append(b, ',')
			}
			b = append(appendString(b, m.name()), ':')
			b = append(b, part...)
		}
		return append(b, '}'), true
	}
	return append(b, r.bytes()...), true
}
