// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"unicode/utf8"
)

// maxDepth is how deep documents may nest. It is encoding/json's limit.
const maxDepth = 10000

// kind is the first byte of a value; every number is '0'.
type kind = byte

// node is one value of a document. The nodes of a document are in the order of their first bytes, so the children of a
// value follow it, and next is where its subtree ends.
type node struct {
	start, end  uint32 // of the value
	key, keyEnd uint32 // of the member's name, without the quotes; both zero in an array and at the root
	next        int32
	kind        kind
	keyEscaped  bool
	escaped     bool // a string whose bytes are not its text: a backslash, or no UTF-8
}

// doc is a parsed document: its bytes and an index into them. Nothing is copied and nothing is decoded.
type doc struct {
	raw   []byte
	nodes []node
	own   []byte // memory of raw, if the document was written here
	copy  string // of raw, once somebody needs strings of it
}

// ref is a value of a document.
type ref struct {
	*doc
	i int32
}

var (
	errEnd   = errors.New("unexpected end of JSON")
	errDepth = fmt.Errorf("JSON nests deeper than %d", maxDepth)
)

// syntaxError says where a document stops being JSON.
type syntaxError struct {
	offset int
	found  byte
	want   string
}

func (e *syntaxError) Error() string {
	return fmt.Sprintf("invalid character %q at byte %d, want %s", e.found, e.offset, e.want)
}

// parse indexes raw, which must hold one JSON value, in the storage of d. It accepts what encoding/json accepts, but for
// objects in which a name is there twice: they mean something else to every reader.
func (d *doc) parse(raw []byte) error {
	if len(raw) > math.MaxInt32 {
		return fmt.Errorf("%d bytes of JSON are too many", len(raw))
	}
	d.raw, d.nodes, d.copy = raw, d.nodes[:0], ""
	s := scanner{raw: raw, nodes: d.nodes}
	i, err := s.value(s.space(0), 0, 0, false, 0)
	if err == nil {
		if i = s.space(i); i < len(raw) {
			err = s.bad(i, "the end")
		}
	}
	d.nodes = s.nodes
	return err
}

// scanner is a parse that is going on.
type scanner struct {
	raw   []byte
	nodes []node
}

func (s *scanner) bad(i int, want string) error {
	if i >= len(s.raw) {
		return errEnd
	}
	return &syntaxError{offset: i, found: s.raw[i], want: want}
}

// space returns the place of the first byte at or after i that is no white space.
func (s *scanner) space(i int) int {
	for i < len(s.raw) {
		if c := s.raw[i]; c > ' ' || c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			break
		}
		i++
	}
	return i
}

// value indexes the value that starts at i and returns where it ends.
func (s *scanner) value(i, key, keyEnd int, keyEscaped bool, depth int) (int, error) {
	if i >= len(s.raw) {
		return i, errEnd
	}
	if depth > maxDepth {
		return i, errDepth
	}
	at := len(s.nodes)
	s.nodes = append(s.nodes, node{start: uint32(i), key: uint32(key), keyEnd: uint32(keyEnd), kind: s.raw[i], keyEscaped: keyEscaped})
	var err error
	switch s.raw[i] {
	case '{':
		i, err = s.object(i+1, depth)
	case '[':
		i, err = s.array(i+1, depth)
	case '"':
		var escaped bool
		i, escaped, err = s.str(i + 1)
		s.nodes[at].escaped = escaped
	case 't':
		i, err = s.word(i, "true")
	case 'f':
		i, err = s.word(i, "false")
	case 'n':
		i, err = s.word(i, "null")
	default:
		s.nodes[at].kind = '0'
		i, err = s.number(i)
	}
	s.nodes[at].end = uint32(i)
	s.nodes[at].next = int32(len(s.nodes))
	return i, err
}

func (s *scanner) word(i int, word string) (int, error) {
	for k := range len(word) {
		if i+k >= len(s.raw) || s.raw[i+k] != word[k] {
			return i, s.bad(i+k, word)
		}
	}
	return i + len(word), nil
}

func (s *scanner) object(i, depth int) (int, error) {
	first := len(s.nodes)
	if i = s.space(i); i < len(s.raw) && s.raw[i] == '}' {
		return i + 1, nil
	}
	last, sorted := 0, true // of the names
	for {
		if i >= len(s.raw) || s.raw[i] != '"' {
			return i, s.bad(i, "a member's name")
		}
		key := i + 1
		end, escaped, err := s.str(key)
		if err != nil {
			return end, err
		}
		if i = s.space(end); i >= len(s.raw) || s.raw[i] != ':' {
			return i, s.bad(i, "':'")
		}
		at := len(s.nodes)
		// Names in order are all different, and an API server sends them in order.
		sorted = sorted && !escaped && (at == first || bytes.Compare(s.name(last), s.raw[key:end-1]) < 0)
		last = at
		if i, err = s.value(s.space(i+1), key, end-1, escaped, depth+1); err != nil {
			return i, err
		}
		if i = s.space(i); i < len(s.raw) && s.raw[i] == ',' {
			i = s.space(i + 1)
			continue
		}
		if i >= len(s.raw) || s.raw[i] != '}' {
			return i, s.bad(i, "',' or '}'")
		}
		if !sorted {
			if name, twice := s.twice(first); twice {
				return i, fmt.Errorf("name %q is there twice in the object that ends at byte %d", name, i)
			}
		}
		return i + 1, nil
	}
}

func (s *scanner) name(i int) []byte { return s.raw[s.nodes[i].key:s.nodes[i].keyEnd] }

// twice looks for a name that two members share, among those from the given one on.
func (s *scanner) twice(first int) (string, bool) {
	const few = 12
	var near [few][]byte
	var seen map[string]struct{}
	n := 0
	for i := first; i < len(s.nodes); i = int(s.nodes[i].next) {
		name := s.name(i)
		if s.nodes[i].keyEscaped {
			name, _ = unquote(nil, name)
		}
		if n < few {
			for _, other := range near[:n] {
				if bytes.Equal(other, name) {
					return string(name), true
				}
			}
			near[n] = name
			n++
			continue
		}
		if seen == nil {
			seen = map[string]struct{}{}
			for _, other := range near {
				seen[string(other)] = struct{}{}
			}
		}
		if _, twice := seen[string(name)]; twice {
			return string(name), true
		}
		seen[string(name)] = struct{}{}
	}
	return "", false
}

func (s *scanner) array(i, depth int) (int, error) {
	if i = s.space(i); i < len(s.raw) && s.raw[i] == ']' {
		return i + 1, nil
	}
	for {
		var err error
		if i, err = s.value(i, 0, 0, false, depth+1); err != nil {
			return i, err
		}
		if i = s.space(i); i < len(s.raw) && s.raw[i] == ',' {
			i = s.space(i + 1)
			continue
		}
		if i >= len(s.raw) || s.raw[i] != ']' {
			return i, s.bad(i, "',' or ']'")
		}
		return i + 1, nil
	}
}

// str reads a string whose first byte is at i and returns the place after the closing quote.
func (s *scanner) str(i int) (end int, escaped bool, err error) {
	from, ascii := i, true
	for i = plain(s.raw, i); i < len(s.raw); i++ {
		switch c := s.raw[i]; {
		case c == '"':
			return i + 1, escaped || !ascii && !utf8.Valid(s.raw[from:i]), nil
		case c >= utf8.RuneSelf:
			ascii = false
		case c == '\\':
			escaped = true
			if i++; i >= len(s.raw) {
				return i, true, errEnd
			}
			switch s.raw[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for range 4 {
					if i++; i >= len(s.raw) || hex(s.raw[i]) < 0 {
						return i, true, s.bad(i, "a hexadecimal digit")
					}
				}
			default:
				return i, true, s.bad(i, "an escaped character")
			}
		case c < ' ':
			return i, escaped, s.bad(i, "no control character in a string")
		}
	}
	return i, escaped, errEnd
}

// plain returns the place of the first byte at or after i that is not plain in a string, or one up to seven bytes before
// the end: eight bytes are looked at in one go.
func plain[S []byte | string](s S, i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for i+8 <= len(s) {
		x := uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
			uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56
		quote, backslash := x^('"'*ones), x^('\\'*ones)
		// A byte is zero where subtracting one borrows; control characters are those from which 32 cannot be taken.
		special := x | (x-' '*ones)&^x | (quote-ones)&^quote | (backslash-ones)&^backslash
		if special &= highs; special != 0 {
			return i + bits.TrailingZeros64(special)/8
		}
		i += 8
	}
	return i
}

func hex(c byte) rune {
	switch {
	case '0' <= c && c <= '9':
		return rune(c - '0')
	case 'a' <= c && c <= 'f':
		return rune(c - 'a' + 10)
	case 'A' <= c && c <= 'F':
		return rune(c - 'A' + 10)
	}
	return -1
}

func (s *scanner) number(i int) (int, error) {
	digits := func() bool {
		from := i
		for i < len(s.raw) && '0' <= s.raw[i] && s.raw[i] <= '9' {
			i++
		}
		return i > from
	}
	if s.raw[i] == '-' {
		i++
	}
	if i < len(s.raw) && s.raw[i] == '0' {
		i++
	} else if !digits() {
		return i, s.bad(i, "a value")
	}
	if i < len(s.raw) && s.raw[i] == '.' {
		if i++; !digits() {
			return i, s.bad(i, "a digit")
		}
	}
	if i < len(s.raw) && (s.raw[i] == 'e' || s.raw[i] == 'E') {
		if i++; i < len(s.raw) && (s.raw[i] == '+' || s.raw[i] == '-') {
			i++
		}
		if !digits() {
			return i, s.bad(i, "a digit")
		}
	}
	return i, nil
}
