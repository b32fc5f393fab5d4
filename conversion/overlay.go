// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import "bytes"

// overlay writes the output of a pair with the input's bytes wherever the two say the same: at every path the versions
// have in common, an output that equals the re-encoded input is the input. So zeros that omitempty drops, empty lists and
// objects, unknown members and the spelling of numbers survive a Go type that cannot hold them.
type overlay struct {
	writer
}

// value writes the value of a place where all three documents have one.
func (o *overlay) value(in, again, out ref, s *shape) {
	if s == nil {
		o.copy(out)
		return
	}
	same := bytes.Equal(again.bytes(), out.bytes())
	switch {
	case same && (s.whole || s.leaf || s.any):
		o.copy(in)
	case in.kind() == '{' && again.kind() == '{' && out.kind() == '{':
		o.members(in, again, out, s, nil)
	case in.kind() == '[' && again.kind() == '[' && out.kind() == '[':
		o.list(in, again, out, s)
	case same || equal(again, out):
		o.copy(in)
	default:
		o.copy(out)
	}
}

// members writes an object with its members in the input's order.
func (o *overlay) members(in, again, out ref, s *shape, leave func(string) bool) {
	at := o.begin('{')
	o.b = append(o.b, '{')
	againHint, outHint := again.i+1, out.i+1
	for m := range in.children() {
		name := m.name()
		if leave != nil && leave(string(name)) {
			continue
		}
		var x, y ref
		x, againHint = again.find(name, againHint)
		y, outHint = out.find(name, outHint)
		c := s.child(name)
		switch {
		case y.ok() && x.ok():
			o.nameOf(m)
			o.value(m, x, y, c)
		case y.ok():
			o.nameOf(m)
			o.copy(y)
		case !x.ok() && c != nil:
			// Neither the input, read and written again, nor the output has it: nobody has decided against it.
			o.member(m)
		}
	}
	inHint, againHint := in.i+1, again.i+1
	for m := range out.children() {
		name := m.name()
		var x, y ref
		if x, inHint = in.find(name, inHint); x.ok() {
			continue
		}
		// What writing the input adds to it (the zero value of a struct, say) is not there for a reason.
		if y, againHint = again.find(name, againHint); y.ok() && s.child(name) != nil && equal(y, m) {
			continue
		}
		o.member(m)
	}
	o.shut(at)
}

// list writes a list whose items the pair may have converted, dropped, added or moved.
func (o *overlay) list(in, again, out ref, s *shape) {
	c := s.item()
	olds, outs, ins := again.items(), out.items(), in.items()
	at := o.begin('[')
	o.b = append(o.b, '[')
	var from []int
	if len(ins) == len(olds) {
		from = align(olds, outs, s.keys)
	}
	for i, item := range outs {
		o.comma()
		if from == nil || from[i] < 0 {
			o.copy(item)
			continue
		}
		o.value(ins[from[i]], olds[from[i]], item, c)
	}
	o.shut(at)
}
