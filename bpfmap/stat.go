// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"context"
	"errors"
	"fmt"
	"syscall"
)

// Layout says what the Go types were held against when a map was opened.
type Layout string

// What a layout can be held against.
const (
	LayoutBTF     Layout = "btf"     // the map's own BTF: names, offsets, sizes of all fields
	LayoutSidecar Layout = "sidecar" // what this library pinned beside the map when it made it, just as good
	LayoutSizes   Layout = "sizes"   // the sizes of key and value alone: the map has no BTF, or reading it needs CAP_SYS_ADMIN
)

// Stat is the state of a map, counted by the kernel.
type Stat struct {
	Used, Max int     // entries; an array is always full
	Pressure  float64 // Used/Max, at most 1
	Layout    Layout  // what the types were held against
}

// Stat counts the entries by reading the map, which costs what a pass in sync costs. [Map.Sync] gives the same numbers
// for nothing.
func (m *Map[K, V]) Stat() (Stat, error) {
	s := Stat{Max: int(m.info.MaxEntries), Layout: m.layout}
	if m.array() {
		s.Used = s.Max
	} else {
		b, _ := m.bufs.Get().(*buffers)
		if b == nil {
			b = &buffers{}
		}
		defer m.bufs.Put(b)
		err := m.walk(context.Background(), b, false, func(_, _ []byte, n int) error {
			s.Used += n
			return nil
		})
		if err != nil {
			return s, m.fail("stat", err)
		}
	}
	s.Pressure = min(1, float64(s.Used)/float64(s.Max))
	return s, nil
}

// verify holds the types against the best description of the map there is.
func (c *config) verify(b Backend, info Info, key, value layout) (Layout, error) {
	if info.BTF != 0 && info.KeyType|info.ValueType != 0 {
		k, v, err := c.sys.Types(b)
		switch {
		case err == nil:
			var errs []error
			if k != nil && key.typ != nil {
				errs = append(errs, against(key, "key", k)...)
			}
			if v != nil && value.typ != nil {
				errs = append(errs, against(value, "value", v)...)
			}
			return LayoutBTF, errors.Join(errs...)
		case !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.ENOENT) && !unsupported(err):
			return "", fmt.Errorf("read BTF: %w", err)
		}
	}
	if c.pin == "" {
		return LayoutSizes, nil
	}
	card, err := readSidecar(c.sys, c.pin)
	if err != nil || card.id != info.ID {
		return LayoutSizes, nil // none, or one of an earlier map: nothing is known
	}
	var errs []error
	if key.typ != nil {
		errs = key.compare("key", card.key)
	}
	if value.typ != nil {
		errs = append(errs, value.compare("value", card.value)...)
	}
	return LayoutSidecar, errors.Join(errs...)
}
