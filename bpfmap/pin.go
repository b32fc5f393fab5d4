// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"
)

// checkPin refuses what a bpf file system refuses, with a reason, and what could lead elsewhere.
func checkPin(pin string) error {
	switch {
	case !path.IsAbs(pin) || path.Clean(pin) != pin || pin == "/":
		return fmt.Errorf("the path %q must be absolute and clean", pin)
	case strings.Contains(path.Base(pin), "."):
		return fmt.Errorf("the name %q must not contain a dot: a bpf file system refuses it", path.Base(pin))
	}
	for _, suffix := range []string{"-layout", "-next", "-prev"} {
		if strings.HasSuffix(pin, suffix) {
			return fmt.Errorf("the name %q must not end in %s, which lies beside a pin", path.Base(pin), suffix)
		}
	}
	return nil
}

// open makes a map or opens the pinned one.
func open[K, V any](s Spec, f face, c *config, kc codec[K], vc codec[V]) (*Map[K, V], error) {
	fail := func(err error) error { return &Error{Op: "open", Map: cmp.Or(c.pin, s.Name), Err: err} }
	want, err := s.full(f, kc.wire(), vc.wire())
	if err != nil {
		return nil, fail(err)
	}
	if c.pin == "" {
		b, err := c.sys.Create(want)
		if err != nil {
			return nil, fail(permission(err, needCreate))
		}
		m, err := build(b, s.Name, f, c, kc, vc)
		return closing(m, b, err)
	}
	cpus, err := c.sys.CPUs()
	if err != nil {
		return nil, fail(err)
	}
	// Two processes that start at once both find no pin, one of them pins, and the other opens that.
	for range 3 {
		b, err := c.sys.OpenPin(c.pin, c.readOnly || want.Flags&flagReadOnly != 0)
		if err == nil {
			c.pinned = true
			info, err := b.Info()
			if err != nil {
				return nil, fail(errors.Join(err, b.Close()))
			}
			c.adopt(info)
			var m *Map[K, V]
			if diff := differs(want, info, cpus); len(diff) > 0 {
				err = &Error{Op: "open", Map: c.pin, Err: fmt.Errorf("%w: %s", ErrIncompatible, strings.Join(diff, ", "))}
				if info.KeySize != want.KeySize || info.ValueSize != want.ValueSize {
					err = errors.Join(err, &LayoutError{Side: "map", Want: fmt.Sprintf("keys of %d and values of %d bytes", want.KeySize, want.ValueSize),
						Got: fmt.Sprintf("the map has %d and %d", info.KeySize, info.ValueSize)})
				}
			} else if m, err = build(b, c.pin, f, c, kc, vc); errors.Is(err, ErrLayout) {
				err = errors.Join(ErrIncompatible, err)
			}
			if err == nil {
				return m, nil
			}
			if errors.Is(err, ErrIncompatible) && c.migrate != nil && !c.readOnly {
				if err := b.Close(); err != nil {
					return nil, fail(err)
				}
				return migrateOpen(s, f, c, kc, vc)
			}
			return nil, errors.Join(err, b.Close())
		}
		if !errors.Is(err, syscall.ENOENT) || c.readOnly {
			return nil, fail(permission(err, needPin))
		}
		if b, err = c.sys.Create(want); err != nil {
			return nil, fail(permission(err, needCreate))
		}
		m, err := build(b, c.pin, f, c, kc, vc)
		if err == nil {
			err = c.pinNew(m.table, kc.described(), vc.described())
		}
		if err == nil {
			c.pinned = true
			return m, nil
		}
		if cerr := b.Close(); !errors.Is(err, syscall.EEXIST) {
			return nil, fail(errors.Join(permission(err, needPin), cerr))
		}
	}
	return nil, fail(fmt.Errorf("%w: the pin came and went at every try", ErrUnstable))
}

// pinNew pins a map and then its layout, which is ready by then: only the process that got the pin may write beside it.
func (c *config) pinNew(t *table, key, value described) error {
	card, err := newSidecar(c.sys, sidecar{t.info.ID, key, value})
	if err != nil {
		return err
	}
	if err = c.sys.Pin(t.b, c.pin); err == nil {
		err = pinSidecar(c.sys, card, sidecarPath(c.pin))
	}
	return errors.Join(err, card.Close())
}

// adopt finishes a migration that was cut off after its commit: the layout of the map in force still has its old name,
// and that of the map before is where this one belongs.
func (c *config) adopt(info Info) {
	next := c.pin + "-next"
	if card, err := readSidecar(c.sys, next); err == nil && card.id == info.ID && !c.readOnly {
		// A failure leaves a map without a sidecar, which is less to check against and nothing lost.
		_ = c.sys.Rename(sidecarPath(c.pin), sidecarPath(c.pin+"-prev"))
		_ = c.sys.Rename(sidecarPath(next), sidecarPath(c.pin))
	}
}

// wrap puts a face on a map that somebody else opened.
func wrap[K, V any](h *ebpf.Map, f face, c *config, kc codec[K], vc codec[V]) (*Map[K, V], error) {
	fail := func(err error) error { return &Error{Op: "wrap", Map: "map", Err: err} }
	b, err := handle(h)
	if err != nil {
		return nil, fail(err)
	}
	return build(b, "", f, c, kc, vc)
}

func closing[M any](m M, b Backend, err error) (M, error) {
	if err != nil {
		err = errors.Join(err, b.Close())
	}
	return m, err
}
