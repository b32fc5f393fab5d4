// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxAnnotations is how many bytes the names and values of all annotations may have together:
// TotalAnnotationSizeLimitB of k8s.io/apimachinery/pkg/api/validation.
const maxAnnotations = 256 << 10

// stash is what other versions of an object hold and its own cannot: changes by version.
//
// On the wire it is an object whose members are versions and whose values are lists of changes: p is the path, o what the
// conversion finds there, n what belongs there; absent is left out. #mac is a signature and always comes first.
type stash map[string][]Change

// versions are the versions something is kept for, in order.
func (s stash) versions() []string {
	if len(s) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(s))
}

const macName = "#mac"

// errStash: an annotation that is none of ours, or not signed with a key of the list.
var errStash = errors.New("the annotation " + Annotation + " was not written by this converter")

// readStash reads the annotation of an object. One that cannot be trusted is as good as none.
func (c *Converter) readStash(o *object) (stash, error) {
	if !o.stash.ok() || len(o.stash.str()) == 0 {
		return nil, nil
	}
	text := o.stash.str()
	d := &doc{}
	if err := d.parse(text); err != nil || d.nodes[0].kind != '{' {
		return nil, errStash
	}
	root := ref{d, 0}
	if len(c.macKeys) > 0 {
		if err := c.verify(o, text, root); err != nil {
			return nil, err
		}
	}
	s := stash{}
	for m := range root.children() {
		version := string(m.name())
		if strings.HasPrefix(version, "#") {
			continue
		}
		if m.kind() != '[' {
			return nil, errStash
		}
		for e := range m.children() {
			ch, ok := readChange(e)
			if !ok {
				return nil, errStash
			}
			s[version] = append(s[version], ch)
		}
	}
	return s, nil
}

func readChange(e ref) (Change, bool) {
	if e.kind() != '{' || e.get("p").kindOr() != '"' {
		return Change{}, false
	}
	ch := Change{Path: string(e.get("p").str()), Old: raw(e.get("o")), New: raw(e.get("n"))}
	if a := e.get("a"); a.ok() {
		after := string(a.str())
		if ch.after = &after; ch.New == nil {
			return Change{}, false
		}
	}
	if d := e.get("d"); d.ok() {
		ch.digest = []string{}
		for item := range d.children() {
			ch.digest = append(ch.digest, string(item.str()))
		}
		return ch, true
	}
	return ch, ch.Old != nil || ch.New != nil
}

// kindOr is kind, and 0 for a value that is not there.
func (r ref) kindOr() kind {
	if !r.ok() {
		return 0
	}
	return r.kind()
}

func appendChanges(b []byte, changes []Change) []byte {
	b = append(b, '[')
	for i, ch := range changes {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(append(b, `{"p":`...), ch.Path)
		if ch.after != nil {
			b = appendString(append(b, `,"a":`...), *ch.after)
		}
		if ch.digest != nil {
			b = append(b, `,"d":[`...)
			for k, d := range ch.digest {
				if k > 0 {
					b = append(b, ',')
				}
				b = appendString(b, d)
			}
			b = append(b, ']')
		}
		if ch.Old != nil {
			b = append(append(b, `,"o":`...), ch.Old...)
		}
		if ch.New != nil {
			b = append(append(b, `,"n":`...), ch.New...)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

// write is the annotation; "" when nothing is to be kept.
func (c *Converter) write(o *object, s stash) (string, error) {
	var b []byte
	for _, version := range s.versions() {
		if len(s[version]) == 0 {
			continue
		}
		b = append(b, ',')
		b = append(appendString(b, version), ':')
		b = appendChanges(b, s[version])
	}
	if len(b) == 0 {
		return "", nil
	}
	b = append(b, '}')
	if len(c.macKeys) > 0 {
		mac := c.mac(c.macKeys[0], o, b)
		b = append([]byte(`,"`+macName+`":"`+mac+`"`), b...)
	}
	b[0] = '{'
	return string(b), fits(o, len(b), s)
}

// mac signs what follows the signature: the rest of the object from the comma on.
func (c *Converter) mac(key []byte, o *object, rest []byte) string {
	h := hmac.New(sha256.New, key)
	fmt.Fprintf(h, "%s\x00%s\x00%s\x00", c.gk, o.namespace, o.name)
	h.Write(rest)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

func (c *Converter) verify(o *object, text []byte, root ref) error {
	m := root.get(macName)
	if !m.ok() || m.i != 1 || m.n().next == root.n().next {
		return fmt.Errorf("%w: it is not signed", errStash)
	}
	rest := text[m.n().end:]
	for _, key := range c.macKeys {
		if hmac.Equal([]byte(c.mac(key, o, rest)), m.str()) {
			return nil
		}
	}
	return fmt.Errorf("%w: its signature is of no key of the list", errStash)
}

// fits holds the annotations of an object against the API server's limit.
func fits(o *object, size int, s stash) error {
	total := len(Annotation) + size
	for a := range o.meta.get("annotations").children() {
		if a.i != o.stash.i || a.doc != o.stash.doc {
			total += len(a.name()) + len(a.str())
		}
	}
	if total <= maxAnnotations {
		return nil
	}
	e := &SizeError{Bytes: total, Limit: maxAnnotations}
	for _, changes := range s {
		for _, ch := range changes {
			e.Largest = append(e.Largest, PathSize{ch.Path, len(ch.Old) + len(ch.New)})
		}
	}
	slices.SortFunc(e.Largest, func(a, b PathSize) int {
		if a.Bytes != b.Bytes {
			return b.Bytes - a.Bytes
		}
		return strings.Compare(a.Path, b.Path)
	})
	e.Largest = e.Largest[:min(3, len(e.Largest))]
	return e
}

// of are the changes kept for a version, or else for the first one with the same schema.
func (s stash) of(c *Converter, version string) []Change {
	if changes, ok := s[version]; ok {
		return changes
	}
	for _, v := range s.versions() {
		if c.same(v, version) {
			return s[v]
		}
	}
	return nil
}

// without is a copy without what is kept for a version.
func (s stash) without(c *Converter, versions ...string) stash {
	out := stash{}
	for v, changes := range s {
		if !slices.ContainsFunc(versions, func(w string) bool { return v == w || c.class[v] != "" && c.class[v] == c.class[w] }) {
			out[v] = changes
		}
	}
	return out
}
