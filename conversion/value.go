// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"iter"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// none is a value that is not there: absent, which is not the same as null.
var none = ref{i: -1}

func (r ref) ok() bool      { return r.i >= 0 }
func (r ref) n() *node      { return &r.nodes[r.i] }
func (r ref) kind() kind    { return r.nodes[r.i].kind }
func (r ref) bytes() []byte { n := r.n(); return r.raw[n.start:n.end] }

// name is the member's name as it is written, which differs from the name itself only where it is escaped.
func (r ref) name() []byte {
	n := r.n()
	name := r.raw[n.key:n.keyEnd]
	if n.keyEscaped {
		name, _ = unquote(nil, name)
	}
	return name
}

// str is the string a value holds; for all else it is empty.
func (r ref) str() []byte {
	if !r.ok() || r.kind() != '"' {
		return nil
	}
	n := r.n()
	s := r.raw[n.start+1 : n.end-1]
	if n.escaped {
		s, _ = unquote(nil, s)
	}
	return s
}

// text is str as a Go string. All strings of a document share one copy of it, because a copy of each is what decoding
// would spend its time on.
func (r ref) text() string {
	n := r.n()
	if n.escaped {
		return string(r.str())
	}
	return r.copied()[n.start+1 : n.end-1]
}

// nameText is name as a Go string.
func (r ref) nameText() string {
	n := r.n()
	if n.keyEscaped {
		return string(r.name())
	}
	return r.copied()[n.key:n.keyEnd]
}

func (d *doc) copied() string {
	if d.copy == "" {
		d.copy = string(d.raw)
	}
	return d.copy
}

// children are the members of an object or the items of an array.
func (r ref) children() iter.Seq[ref] {
	return func(yield func(ref) bool) {
		if !r.ok() {
			return
		}
		for i, end := r.i+1, r.n().next; i < end; i = r.nodes[i].next {
			if !yield(ref{r.doc, i}) {
				return
			}
		}
	}
}

// get returns the member with a name, or none.
func (r ref) get(name string) ref {
	if !r.ok() || r.kind() != '{' {
		return none
	}
	for i, end := r.i+1, r.n().next; i < end; i = r.nodes[i].next {
		n := &r.nodes[i]
		if n.keyEscaped {
			if string(ref{r.doc, i}.name()) == name {
				return ref{r.doc, i}
			}
		} else if string(r.raw[n.key:n.keyEnd]) == name {
			return ref{r.doc, i}
		}
	}
	return none
}

// find is get for a member that probably comes right at or after the hint; it returns the next hint.
func (r ref) find(name []byte, hint int32) (ref, int32) {
	end := r.n().next
	if hint > r.i && hint < end {
		if n := &r.nodes[hint]; !n.keyEscaped && bytes.Equal(r.raw[n.key:n.keyEnd], name) {
			return ref{r.doc, hint}, n.next
		}
	}
	for i := r.i + 1; i < end; i = r.nodes[i].next {
		n := &r.nodes[i]
		if !n.keyEscaped && bytes.Equal(r.raw[n.key:n.keyEnd], name) || n.keyEscaped && bytes.Equal(ref{r.doc, i}.name(), name) {
			return ref{r.doc, i}, n.next
		}
	}
	return none, hint
}

func (r ref) items() []ref {
	out := make([]ref, 0, r.count())
	for c := range r.children() {
		out = append(out, c)
	}
	return out
}

func (r ref) count() (n int) {
	for range r.children() {
		n++
	}
	return n
}

// equal reports whether two values mean the same: the order of members and the spelling of strings do not count, the
// spelling of numbers does.
func equal(a, b ref) bool {
	if !a.ok() || !b.ok() {
		return a.ok() == b.ok()
	}
	if a.kind() != b.kind() {
		return false
	}
	if bytes.Equal(a.bytes(), b.bytes()) {
		return true
	}
	switch a.kind() {
	case '"':
		return (a.n().escaped || b.n().escaped) && bytes.Equal(a.str(), b.str())
	case '[':
		i, j, iEnd, jEnd := a.i+1, b.i+1, a.n().next, b.n().next
		for ; i < iEnd && j < jEnd; i, j = a.nodes[i].next, b.nodes[j].next {
			if !equal(ref{a.doc, i}, ref{b.doc, j}) {
				return false
			}
		}
		return i == iEnd && j == jEnd
	case '{':
		n, hint := 0, b.i+1
		for x := range a.children() {
			var y ref
			if y, hint = b.find(x.name(), hint); !y.ok() || !equal(x, y) {
				return false
			}
			n++
		}
		return n == b.count()
	}
	return false
}

// appendCanonical appends a spelling that is the same for equal values.
func appendCanonical(b []byte, r ref) []byte {
	switch r.kind() {
	case '{':
		members := r.items()
		slices.SortFunc(members, func(x, y ref) int { return bytes.Compare(x.name(), y.name()) })
		b = append(b, '{')
		for i, m := range members {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendString(b, m.name()), ':')
			b = appendCanonical(b, m)
		}
		return append(b, '}')
	case '[':
		b = append(b, '[')
		i := 0
		for m := range r.children() {
			if i++; i > 1 {
				b = append(b, ',')
			}
			b = appendCanonical(b, m)
		}
		return append(b, ']')
	case '"':
		return appendString(b, r.str())
	}
	return append(b, r.bytes()...)
}

// digest names a value by its content.
func digest(r ref) string {
	sum := sha256.Sum256(appendCanonical(nil, r))
	return base64.RawURLEncoding.EncodeToString(sum[:8])
}

// unquote appends what the inside of a JSON string means. What is no UTF-8 becomes the replacement character, and so does
// half a surrogate pair, as in encoding/json. The error is nil for what the scanner has accepted.
func unquote(b, s []byte) ([]byte, error) {
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '\\':
			if i+1 >= len(s) {
				return b, errEnd
			}
			i += 2
			switch s[i-1] {
			case 'b':
				b = append(b, '\b')
			case 'f':
				b = append(b, '\f')
			case 'n':
				b = append(b, '\n')
			case 'r':
				b = append(b, '\r')
			case 't':
				b = append(b, '\t')
			case 'u':
				r := hex4(s[i:])
				if r < 0 {
					return b, errEnd
				}
				i += 4
				if utf16.IsSurrogate(r) {
					low := rune(-1)
					if i+6 <= len(s) && s[i] == '\\' && s[i+1] == 'u' {
						low = hex4(s[i+2:])
					}
					if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
						i += 6
					}
				}
				b = utf8.AppendRune(b, r)
			default:
				b = append(b, s[i-1])
			}
		case c < utf8.RuneSelf:
			b = append(b, c)
			i++
		default:
			r, size := utf8.DecodeRune(s[i:])
			b = utf8.AppendRune(b, r)
			i += size
		}
	}
	return b, nil
}

func hex4(s []byte) (r rune) {
	if len(s) < 4 {
		return -1
	}
	for _, c := range s[:4] {
		d := hex(c)
		if d < 0 {
			return -1
		}
		r = r<<4 | d
	}
	return r
}

// appendString appends a string as JSON. What is no UTF-8 becomes the replacement character.
func appendString[S []byte | string](b []byte, s S) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	from := 0
	for i := plain(s, 0); i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(string(s[i:min(len(s), i+utf8.UTFMax)]))
			if r == utf8.RuneError && size == 1 {
				b = append(append(b, s[from:i]...), "\ufffd"...)
				from = i + 1
			}
			i = plain(s, i+size)
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		b = append(b, s[from:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
		from = i + 1
		i = plain(s, from)
	}
	b = append(b, s[from:]...)
	return append(b, '"')
}
