// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
)

// writer writes a document and its index in one go, so that nobody has to read it again.
type writer struct {
	b           []byte
	nodes       []node
	key, keyEnd uint32 // of the value that comes next
	keyEscaped  bool
	depth       int
}

// writer is one that writes into the memory of d.
func (d *doc) writer(room int) writer { return writer{b: d.room(room), nodes: d.nodes[:0]} }

// written makes d what w has written.
func (d *doc) written(w *writer) error {
	d.own, d.raw, d.nodes, d.copy = w.b, w.b, w.nodes, ""
	if len(w.b) > math.MaxInt32 {
		return fmt.Errorf("%d bytes of JSON are too many", len(w.b))
	}
	return nil
}

func (w *writer) begin(k kind) int {
	w.nodes = append(w.nodes, node{start: uint32(len(w.b)), key: w.key, keyEnd: w.keyEnd, keyEscaped: w.keyEscaped, kind: k})
	w.key, w.keyEnd, w.keyEscaped = 0, 0, false
	return len(w.nodes) - 1
}

func (w *writer) end(at int) {
	n := &w.nodes[at]
	n.end, n.next = uint32(len(w.b)), int32(len(w.nodes))
}

// open begins an object or a list; shut ends it.
func (w *writer) open(k kind) (at int, err error) {
	if w.depth++; w.depth > maxDepth {
		return 0, errDepth
	}
	at = w.begin(k)
	w.b = append(w.b, k)
	return at, nil
}

func (w *writer) shut(at int) {
	w.depth--
	w.b = append(w.b, w.nodes[at].kind+2) // '}' comes two after '{', and ']' after '['
	w.end(at)
}

// comma separates what comes from what is there already; nothing ends with an opening bracket but what is empty.
func (w *writer) comma() {
	if c := w.b[len(w.b)-1]; c != '{' && c != '[' {
		w.b = append(w.b, ',')
	}
}

// name begins a member.
func (w *writer) name(name string) {
	w.comma()
	from := len(w.b)
	w.b = appendString(w.b, name)
	w.named(from, escapes(w.b[from:], len(name)))
}

// quoted begins a member whose name is in quotes already.
func (w *writer) quoted(name string, escaped bool) {
	w.comma()
	from := len(w.b)
	w.b = append(w.b, name...)
	w.named(from, escaped)
}

// named notes the name that was appended in quotes.
func (w *writer) named(from int, escaped bool) {
	w.key, w.keyEnd, w.keyEscaped = uint32(from)+1, uint32(len(w.b))-1, escaped
	w.b = append(w.b, ':')
}

// escapes reports whether a string of so many bytes needed a backslash.
func escapes(quoted []byte, length int) bool {
	return len(quoted) != length+2 && bytes.IndexByte(quoted, '\\') >= 0
}

func (w *writer) null() { w.word('n', "null") }

func (w *writer) word(k kind, word string) {
	at := w.begin(k)
	w.b = append(w.b, word...)
	w.end(at)
}

func (w *writer) bool(x bool) {
	if x {
		w.word('t', "true")
	} else {
		w.word('f', "false")
	}
}

func (w *writer) int(i int64) {
	at := w.begin('0')
	w.b = strconv.AppendInt(w.b, i, 10)
	w.end(at)
}

func (w *writer) uint(u uint64) {
	at := w.begin('0')
	w.b = strconv.AppendUint(w.b, u, 10)
	w.end(at)
}

func (w *writer) float(f float64, bits int) (err error) {
	at := w.begin('0')
	w.b, err = appendFloat(w.b, f, bits)
	w.end(at)
	return err
}

func (w *writer) string(s string) {
	at := w.begin('"')
	from := len(w.b)
	w.b = appendString(w.b, s)
	w.nodes[at].escaped = escapes(w.b[from:], len(s))
	w.end(at)
}

// json appends what other code has written. It is read before it is believed.
func (w *writer) json(raw []byte) error {
	from := len(w.b)
	w.b = append(w.b, bytes.TrimSpace(raw)...)
	s := scanner{raw: w.b, nodes: w.nodes}
	end, err := s.value(from, int(w.key), int(w.keyEnd), w.keyEscaped, w.depth)
	w.nodes, w.key, w.keyEnd, w.keyEscaped = s.nodes, 0, 0, false
	if err == nil && end < len(w.b) {
		err = s.bad(end, "the end")
	}
	if bad, ok := err.(*syntaxError); ok { //nolint:errorlint // the scanner wraps none
		bad.offset -= from
	}
	return err
}

// copy appends a value of another document.
func (w *writer) copy(r ref) {
	n := r.n()
	shift, places := uint32(len(w.b))-n.start, int32(len(w.nodes))-r.i
	at := len(w.nodes)
	w.nodes = append(w.nodes, r.nodes[r.i:n.next]...)
	for i := range w.nodes[at:] {
		c := &w.nodes[at+i]
		c.start += shift
		c.end += shift
		c.next += places
		if c.keyEnd != 0 {
			c.key += shift
			c.keyEnd += shift
		}
	}
	c := &w.nodes[at]
	c.key, c.keyEnd, c.keyEscaped = w.key, w.keyEnd, w.keyEscaped
	w.key, w.keyEnd, w.keyEscaped = 0, 0, false
	w.b = append(w.b, r.bytes()...)
}

// member appends a member of another document.
func (w *writer) member(m ref) {
	w.nameOf(m)
	w.copy(m)
}

// nameOf begins a member with the name that a member of another document has.
func (w *writer) nameOf(m ref) {
	w.comma()
	n := m.n()
	from := len(w.b)
	w.b = append(append(append(w.b, '"'), m.raw[n.key:n.keyEnd]...), '"')
	w.named(from, n.keyEscaped)
}
