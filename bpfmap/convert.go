// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// converter copies the fields that two layouts share by name.
type converter struct{ pairs []pair }

type pair struct{ from, to leaf }

// convertTo pairs the leaves of two descriptions. A layout without leaves is bytes without meaning: copied as it is.
func (d described) convertTo(l described) converter {
	var c converter
	if len(d.leaves) == 0 || len(l.leaves) == 0 {
		size := min(d.size, l.size)
		return converter{[]pair{{leaf{size: size, array: true}, leaf{size: size, array: true}}}}
	}
	for _, to := range l.leaves {
		for _, from := range d.leaves {
			if from.name == to.name {
				c.pairs = append(c.pairs, pair{from, to})
			}
		}
	}
	return c
}

// convert fills dst, which is zero, from src. A number that does not fit its new type is an error, and so are bytes that
// would be cut off.
func (c converter) convert(dst, src []byte) error {
	for _, p := range c.pairs {
		from, to := src[p.from.from:p.from.from+p.from.size], dst[p.to.from:p.to.from+p.to.size]
		if err := p.convert(to, from); err != nil {
			return fmt.Errorf("%w: field %s %w", ErrLayout, p.from.path, err)
		}
	}
	return nil
}

func (p pair) convert(to, from []byte) error {
	f, t := p.from, p.to
	switch {
	case !f.array && !t.array:
		return p.number(to, from)
	case !f.array || !t.array || f.elem == 0 || t.elem == 0: // a union, a bit field, or the bytes of a number
	case f.elem == t.elem && f.float == t.float && f.signed == t.signed:
	case f.size/f.elem == t.size/t.elem:
		for i := range f.size / f.elem {
			if err := p.number(to[i*t.elem:(i+1)*t.elem], from[i*f.elem:(i+1)*f.elem]); err != nil {
				return err
			}
		}
		return nil
	case f.size != t.size: // else the same bytes seen in another way, as an address is
		return fmt.Errorf("is %d numbers of %d bytes, which do not become %d of %d", f.size/f.elem, f.elem, t.size/t.elem, t.elem)
	}
	n := copy(to, from)
	for _, b := range from[n:] {
		if b != 0 {
			return fmt.Errorf("has %d bytes in use, the new one has room for %d", len(from), len(to))
		}
	}
	return nil
}

// number converts one number: a whole one, or a real one.
func (p pair) number(to, from []byte) error {
	if p.from.float != p.to.float {
		return errors.New("is a real number on one side and a whole one on the other")
	}
	if p.from.float && len(from) != len(to) {
		v := real64(from)
		if storeReal(to, v); real64(to) != v && v == v { // NaN stays NaN
			return fmt.Errorf("is %v, which does not fit into the %d bytes of the new one", v, len(to))
		}
		return nil
	}
	v := number64(from, p.from.signed)
	if store64(to, v); number64(to, p.to.signed) != v || p.from.signed != p.to.signed && int64(v) < 0 {
		return fmt.Errorf("is %d, which does not fit into the %d bytes of the new one", v, len(to))
	}
	return nil
}

// real64 reads a float of 4 or 8 bytes.
func real64(b []byte) float64 {
	if len(b) == 4 {
		return float64(math.Float32frombits(binary.NativeEndian.Uint32(b)))
	}
	return math.Float64frombits(binary.NativeEndian.Uint64(b))
}

func storeReal(b []byte, v float64) {
	if len(b) == 4 {
		binary.NativeEndian.PutUint32(b, math.Float32bits(float32(v)))
		return
	}
	binary.NativeEndian.PutUint64(b, math.Float64bits(v))
}

// number64 reads a number of 1, 2, 4 or 8 bytes, extended by its sign.
func number64(b []byte, signed bool) uint64 {
	switch len(b) {
	case 1:
		if signed {
			return uint64(int8(b[0]))
		}
		return uint64(b[0])
	case 2:
		if v := binary.NativeEndian.Uint16(b); signed {
			return uint64(int16(v))
		} else {
			return uint64(v)
		}
	case 4:
		if v := binary.NativeEndian.Uint32(b); signed {
			return uint64(int32(v))
		} else {
			return uint64(v)
		}
	case 8:
		return binary.NativeEndian.Uint64(b)
	}
	return 0
}

func store64(b []byte, v uint64) {
	switch len(b) {
	case 1:
		b[0] = byte(v)
	case 2:
		binary.NativeEndian.PutUint16(b, uint16(v))
	case 4:
		binary.NativeEndian.PutUint32(b, uint32(v))
	case 8:
		binary.NativeEndian.PutUint64(b, v)
	}
}

// Old is an entry of a map that is being replaced, by the names of the fields it had there. Names are compared without
// case and underscores.
type Old struct {
	KeyBytes, ValueBytes []byte // as they were, valid during the call; in a per-CPU map the value of the first CPU
	key, value           described
}

// Key reads a number of the key; false when the old key had no such number.
func (o Old) Key(field string) (uint64, bool) { return o.key.number(o.KeyBytes, field) }

// Value reads a number of the value; false when the old value had no such number.
func (o Old) Value(field string) (uint64, bool) { return o.value.number(o.ValueBytes, field) }

func (d described) number(b []byte, field string) (uint64, bool) {
	for _, f := range d.leaves {
		if f.name == plain(field) && !f.array {
			return number64(b[f.from:f.from+f.size], f.signed), true
		}
	}
	return 0, false
}
