// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"context"
	"errors"
	"fmt"
	"reflect"
)

// Valid parses a document with the scanner.
func Valid(raw []byte) error { return (&doc{}).parse(raw) }

// Decode fills *x through the codec; ok is false where the codec leaves the type to a JSON library.
func Decode(raw []byte, x any) (ok bool, err error) {
	d := &doc{}
	if err := d.parse(raw); err != nil {
		return true, err
	}
	ts := types{}
	v := reflect.ValueOf(x).Elem()
	info := ts.of(v.Type())
	return !info.opaque, (&decoder{}).value(ref{d, 0}, info, v)
}

// Encode writes *x through the codec, and holds the index it writes against the one that reading gives.
func Encode(x any) ([]byte, error) {
	ts := types{}
	v := reflect.ValueOf(x).Elem()
	var w writer
	if err := w.value(ts.of(v.Type()), v); err != nil {
		return w.b, err
	}
	var d doc
	if err := d.parse(w.b); err != nil {
		return w.b, err
	}
	return w.b, sameIndex(w.nodes, d.nodes)
}

func sameIndex(written, read []node) error {
	if len(written) != len(read) {
		return fmt.Errorf("%d values are in the index that was written, %d in the one that was read", len(written), len(read))
	}
	for i := range read {
		if written[i] != read[i] {
			return fmt.Errorf("value %d: the index says %+v, reading says %+v", i, written[i], read[i])
		}
	}
	return nil
}

// Steps converts and holds the index of what was written against the one that reading gives.
func Steps(ctx context.Context, c *Converter, raw []byte, to string) ([]byte, error) {
	d := &doc{}
	if err := d.parse(raw); err != nil {
		return nil, err
	}
	o, err := readObject(d, c.gk.Group)
	if err != nil {
		return nil, err
	}
	if o, err = c.run(ctx, o, to); err != nil {
		return nil, err
	}
	var again doc
	if err := again.parse(o.body.raw); err != nil {
		return o.body.raw, fmt.Errorf("%w: %w", ErrIndex, err)
	}
	if err := sameIndex(o.body.nodes, again.nodes); err != nil {
		return o.body.raw, fmt.Errorf("%w: %w", ErrIndex, err)
	}
	return o.body.raw, nil
}

// ErrIndex is a document whose index is wrong.
var ErrIndex = errors.New("index")

// Canonical is the spelling that equal documents share.
func Canonical(raw []byte) ([]byte, error) {
	d := &doc{}
	if err := d.parse(raw); err != nil {
		return nil, err
	}
	return appendCanonical(nil, ref{d, 0}), nil
}

// Equal compares two documents.
func Equal(a, b []byte) (bool, error) {
	x, y := &doc{}, &doc{}
	if err := x.parse(a); err != nil {
		return false, err
	}
	if err := y.parse(b); err != nil {
		return false, err
	}
	return equal(ref{x, 0}, ref{y, 0}), nil
}

// Diff and Restore compare and mend bare documents.
func Diff(old, new []byte, keys map[string][]string) ([]Change, error) {
	x, y := &doc{}, &doc{}
	if err := x.parse(old); err != nil {
		return nil, err
	}
	if err := y.parse(new); err != nil {
		return nil, err
	}
	d := differ{keys: keys}
	d.members("", "", ref{x, 0}, ref{y, 0}, nil)
	return d.out, nil
}

func Restore(doc0 []byte, keys map[string][]string, changes []Change) (out []byte, dropped int, err error) {
	x := &doc{}
	if err := x.parse(doc0); err != nil {
		return nil, 0, err
	}
	out, _, dropped = restore(ref{x, 0}, keys, changes)
	return out, dropped, nil
}
