// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Converter converts the objects of one kind between any two of its versions. It does not change once it is built, and
// any number of goroutines may use it.
type Converter struct {
	gk       schema.GroupKind
	versions []string
	class    map[string]string
	hub      string
	paths    map[string]map[string][]*edge
	sides    map[string]*side
	keys     map[string]listKeys
	macKeys  [][]byte
	arenas   *sync.Pool
}

// GroupKind is what the converter is for.
func (c *Converter) GroupKind() schema.GroupKind { return c.gk }

// Versions are all versions the converter knows, the oldest first.
func (c *Converter) Versions() []string { return slices.Clone(c.versions) }

// Result is a conversion and what there is to say about it.
type Result struct {
	Object   []byte   // JSON; never shares memory with the input
	From, To string   // versions
	Kept     []Change // what To cannot hold and the annotation now keeps
	Bytes    int      // of the annotation
	Restored int      // values that came back from the annotation of the input
	Dropped  int      // values that did not, because the place was edited, moved or removed since
	Rejected error    // why the annotation of the input was not used at all
	Refused  error    // why the object is in quarantine, see WithQuarantine
}

// Convert converts a JSON object to a version of its kind, for an API server or for a file. The input is not modified.
//
// What both versions hold is copied byte for byte. What the target cannot hold is kept in [Annotation] as path, old and
// new value, and comes back in a conversion to a version that can, at every place that nobody has edited in between.
// There is no annotation if nothing is lost, and none on a partial object without metadata.
//
// The error is an [*Error]; it matches [ErrUnknownKind], [ErrUnknownVersion], a [*SizeError], a [*PanicError], or what a
// function of a pair has returned.
func (c *Converter) Convert(ctx context.Context, raw []byte, to string) ([]byte, error) {
	r, err := c.Trial(ctx, raw, to)
	return r.Object, err
}

// Trial is Convert with all there is to say about it: what a rehearsal of a migration or a test wants to know.
func (c *Converter) Trial(ctx context.Context, raw []byte, to string) (Result, error) {
	d := &doc{}
	err := d.parse(raw)
	o := object{body: none, meta: none}
	if err == nil {
		o, err = readObject(d, c.gk.Group)
	}
	if err != nil {
		return Result{}, failure(&o, to, err)
	}
	o.mem = c.arena()
	defer c.free(o.mem)
	r, err := c.guarded(ctx, &o, to, false)
	if err != nil {
		return Result{From: o.version, To: to}, failure(&o, to, err)
	}
	r.Object = bytes.Clone(r.Object)
	for i := range r.Kept {
		r.Kept[i].Old, r.Kept[i].New = bytes.Clone(r.Kept[i].Old), bytes.Clone(r.Kept[i].New)
	}
	return r, nil
}

func (c *Converter) knows(version string) error {
	if _, ok := c.paths[version]; !ok {
		return fmt.Errorf("%w: %s of %s; known are %s", ErrUnknownVersion, version, c.gk, strings.Join(c.versions, ", "))
	}
	return nil
}

// same reports whether two versions are known to have one schema.
func (c *Converter) same(a, b string) bool {
	class := c.class[a]
	return class != "" && class == c.class[b]
}

// convert is the whole of a conversion. What it returns lives in the memory of o.
func (c *Converter) convert(ctx context.Context, o *object, to string, brief bool) (Result, error) {
	r := Result{From: o.version, To: to}
	if o.kind != c.gk.Kind {
		return r, fmt.Errorf("%w: %s; this converter is for %s", ErrUnknownKind, o.kind, c.gk)
	}
	if err := errors.Join(c.knows(o.version), c.knows(to)); err != nil {
		return r, err
	}
	if o.version == to {
		r.Object = o.body.bytes()
		return r, nil
	}
	target := schema.GroupVersion{Group: c.gk.Group, Version: to}.String()
	if c.same(o.version, to) {
		// The same schema: whatever is kept for others stays as it is.
		same := *o
		same.stash = none
		r.Object = same.write(len(o.body.raw)+16, target, "", brief)
		return r, nil
	}
	if was, ok, err := c.original(o); err != nil {
		return r, err
	} else if ok {
		return c.release(ctx, was, to, brief)
	}
	kept, err := c.readStash(o)
	if err != nil {
		r.Rejected, kept = err, nil
	}
	y, rest, err := c.carry(ctx, *o, to, kept, &r)
	if err != nil {
		rejected := c.misfits(ctx, *o, kept)
		if rejected == nil {
			return r, err
		}
		r = Result{From: r.From, To: r.To, Rejected: rejected}
		if y, rest, err = c.carry(ctx, *o, to, kept, &r); err != nil {
			return r, err
		}
	}
	y.stash = o.stash
	if y.meta.doc != o.meta.doc {
		y.readMeta()
	}
	text := ""
	if o.meta.ok() {
		if text, err = c.write(&y, rest); err != nil {
			return r, err
		}
	}
	r.Bytes = len(text)
	size := len(y.body.bytes()) + len(text) + len(text)/4 + 128 // quotes are escaped
	if y.meta.ok() {
		size += len(y.meta.bytes()) + len(Annotation)
	}
	if brief && y.managed.ok() {
		size -= len(y.managed.bytes())
	}
	r.Object = y.write(size, target, text, brief)
	return r, nil
}

// misfits drops what is kept for versions whose types do not take it, and says why: an API server lets no such value into an
// object, so it is forged, or of a release with other types, and must not make the object unreadable.
func (c *Converter) misfits(ctx context.Context, x object, kept stash) (why error) {
	takes := func(version string, o object) (err error) {
		s := c.sideOf(version)
		if s == nil || s.info == nil {
			return nil
		}
		defer func() {
			if p := recover(); p != nil {
				err = &PanicError{Value: p, Stack: debug.Stack()}
			}
		}()
		return s.decode(&o, s.make(), []ref{o.managed, o.stash})
	}
	for _, version := range kept.versions() {
		if c.knows(version) != nil {
			continue
		}
		bare, err := c.run(ctx, x, version)
		if err != nil || takes(version, bare) != nil {
			continue
		}
		full, err := c.restore(bare, kept[version], nil)
		if err == nil {
			err = takes(version, full)
		}
		if err != nil {
			delete(kept, version)
			why = errors.Join(why, fmt.Errorf("what the annotation keeps for %s does not fit there: %w", version, err))
		}
	}
	return why
}

// release converts what was in quarantine: from the original, which is no copy at its own version.
func (c *Converter) release(ctx context.Context, was object, to string, brief bool) (Result, error) {
	if was.version != to {
		return c.convert(ctx, &was, to, brief)
	}
	r := Result{From: was.version, To: to}
	stash := string(was.stash.str())
	r.Object = was.write(len(was.body.bytes()), c.gk.WithVersion(to).GroupVersion().String(), stash, brief)
	return r, nil
}

// carry converts an object with what is kept for it, and says what is to be kept from now on.
func (c *Converter) carry(ctx context.Context, x object, to string, kept stash, r *Result) (y object, rest stash, err error) {
	from := x.version
	y, err = c.core(ctx, x, to, kept, r)
	if err != nil || !x.meta.ok() {
		return y, nil, err
	}
	// Whatever a third version would have been shown of x, it is to be shown of y.
	thirds := kept.without(c, from, to)
	rest = stash{}
	for _, version := range thirds.versions() {
		if _, known := c.class[version]; !known {
			rest[version] = thirds[version] // of a version that is gone: not ours to drop
			continue
		}
		full, err := c.core(ctx, x, version, kept, nil)
		if err != nil {
			return y, nil, err
		}
		back, err := c.core(ctx, y, version, rest, nil)
		if err != nil {
			return y, nil, fmt.Errorf("check the way back: %w", err)
		}
		if lost := c.lost(full, back); len(lost) > 0 {
			rest[version] = lost
		}
	}
	back, err := c.core(ctx, y, from, rest, nil)
	if err != nil {
		return y, nil, fmt.Errorf("check the way back: %w", err)
	}
	if lost := c.lost(x, back); len(lost) > 0 {
		rest[from] = lost
		r.Kept = lost
	}
	return y, rest, nil
}

// core converts and restores. What is kept for a third version is to be seen at the target, too, as far as that holds it,
// so the conversion is completed by the difference it makes there.
func (c *Converter) core(ctx context.Context, x object, to string, kept stash, r *Result) (y object, err error) {
	if y, err = c.run(ctx, x, to); err != nil {
		return y, err
	}
	for _, version := range kept.versions() {
		class, known := c.class[version]
		if !known || class == c.class[x.version] || class == c.class[to] || len(kept[version]) == 0 {
			continue
		}
		bare, err := c.run(ctx, x, version)
		if err != nil {
			return y, err
		}
		full, err := c.restore(bare, kept[version], nil)
		if err != nil {
			return y, err
		}
		less, err := c.run(ctx, bare, to)
		if err != nil {
			return y, err
		}
		more, err := c.run(ctx, full, to)
		if err != nil {
			return y, err
		}
		if y, err = c.restore(y, c.lost(more, less), nil); err != nil {
			return y, err
		}
	}
	if changes := kept.of(c, to); len(changes) > 0 {
		y, err = c.restore(y, changes, r)
	}
	return y, err
}

// run takes the steps of a path.
func (c *Converter) run(ctx context.Context, o object, to string) (object, error) {
	for _, e := range c.paths[o.version][to] {
		from := o.version
		next, err := e.run(ctx, o)
		if err != nil {
			var fe *fieldError
			if len(c.paths[from][to]) > 1 && !errors.As(err, &fe) {
				err = fmt.Errorf("in the step from %s to %s: %w", e.from, e.to, err)
			}
			return o, err
		}
		o = next
	}
	o.version = to
	return o, nil
}

const (
	labelsPath      = "/metadata/labels"
	annotationsPath = "/metadata/annotations"
)

// lost are the changes that make x again of what came back, both at one version.
func (c *Converter) lost(x, back object) []Change {
	d := differ{keys: c.keys[x.version]}
	if x.body.doc != back.body.doc {
		d.members("", "", back.body, x.body, outside)
	}
	if x.meta.doc != back.meta.doc {
		for _, name := range []string{"labels", "annotations"} {
			d.strings("/metadata/"+name, back.meta.get(name), x.meta.get(name))
		}
	}
	if len(d.out) > 0 && x.body.doc != back.body.doc {
		d.prove(x, back, c.keys[x.version])
	}
	return d.out
}

// strings compares labels or annotations, which may be absent on either side.
func (d *differ) strings(path string, old, new ref) {
	switch {
	case old.kindOr() == '{' && new.kindOr() == '{':
		mine := func(name string) bool { return name == Annotation }
		d.members(path, "", old, new, mine)
	case new.kindOr() == '{' && new.count() > boolInt(new.get(Annotation).ok()):
		d.out = append(d.out, Change{Path: path, New: withoutStash(new)})
	case old.kindOr() == '{' && old.count() > boolInt(old.get(Annotation).ok()):
		d.out = append(d.out, Change{Path: path, Old: old.bytes()})
	}
}

// byMember takes a change of all labels or all annotations apart where there are some: ours is among them since, and
// somebody may have added others.
func (o *object) byMember(ch Change) []Change {
	if ch.Path != labelsPath && ch.Path != annotationsPath {
		return []Change{ch}
	}
	var old, now doc
	have := o.meta.get(strings.TrimPrefix(ch.Path, "/metadata/"))
	if have.kindOr() != '{' || old.parse([]byte(cmp.Or(string(ch.Old), "{}"))) != nil || now.parse([]byte(cmp.Or(string(ch.New), "{}"))) != nil ||
		old.nodes[0].kind != '{' || equal(have, ref{&old, 0}) {
		return []Change{ch}
	}
	var d differ
	d.members(ch.Path, "", ref{&old, 0}, ref{&now, 0}, nil)
	return d.out
}

// withoutStash writes annotations without what is kept among them.
func withoutStash(annotations ref) []byte {
	b := []byte{'{'}
	for m := range annotations.children() {
		if string(m.name()) == Annotation {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(appendString(b, m.name()), ':')
		b = append(b, m.bytes()...)
	}
	return append(b, '}')
}

// prove applies the changes to what came back. Should that not give the object again, whole members are kept instead:
// being exact comes before being small.
func (d *differ) prove(x, back object, keys listKeys) {
	body := slices.DeleteFunc(slices.Clone(d.out), inMeta)
	out, _, dropped := restore(back.body, keys, body)
	var again doc
	if dropped == 0 && again.parse(out) == nil && sameBody(ref{&again, 0}, x.body) {
		return
	}
	d.out = slices.DeleteFunc(d.out, func(ch Change) bool { return !inMeta(ch) })
	hint := back.body.i + 1
	for n := range x.body.children() {
		var o ref
		if o, hint = back.body.find(n.name(), hint); !outside(string(n.name())) && !equal(o, n) {
			d.out = append(d.out, Change{Path: "/" + escape(string(n.name())), Old: raw(o), New: n.bytes()})
		}
	}
	for o := range back.body.children() {
		if !outside(string(o.name())) && !x.body.get(string(o.name())).ok() {
			d.out = append(d.out, Change{Path: "/" + escape(string(o.name())), Old: o.bytes()})
		}
	}
}

func inMeta(ch Change) bool {
	return strings.HasPrefix(ch.Path, labelsPath) || strings.HasPrefix(ch.Path, annotationsPath)
}

func sameBody(a, b ref) bool {
	n := 0
	for m := range a.children() {
		if outside(string(m.name())) {
			continue
		}
		n++
		if !equal(m, b.get(string(m.name()))) {
			return false
		}
	}
	for m := range b.children() {
		if !outside(string(m.name())) {
			n--
		}
	}
	return n == 0
}

// restore applies changes to the body and the metadata of an object.
func (c *Converter) restore(o object, changes []Change, r *Result) (object, error) {
	body := changes
	refused := 0
	var meta []Change
	if slices.ContainsFunc(changes, inMeta) {
		body = nil
		for _, ch := range changes {
			switch {
			case !inMeta(ch):
				body = append(body, ch)
			case ch.legal():
				meta = append(meta, o.byMember(ch)...)
			default:
				refused++
			}
		}
	}
	out, changed, dropped := restore(o.body, c.keys[o.version], body)
	dropped += refused
	if changed {
		if err := o.setBody(out); err != nil {
			return o, fmt.Errorf("restore: %w", err)
		}
	}
	if len(meta) > 0 && o.meta.ok() {
		for i := range meta {
			meta[i].Path = strings.TrimPrefix(meta[i].Path, "/metadata")
		}
		out, changed, more := restore(o.meta, nil, meta)
		if dropped += more; changed {
			if err := o.setMeta(out); err != nil {
				return o, fmt.Errorf("restore: %w", err)
			}
		}
	}
	if r != nil {
		n := 0
		for _, ch := range changes {
			n += boolInt(ch.digest == nil)
		}
		r.Dropped, r.Restored = r.Dropped+dropped, r.Restored+n-dropped
	}
	return o, nil
}
