// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cilium/cilium/pkg/bpf"
	"github.com/cilium/ebpf"
	"github.com/cilium/statedb"
	"golang.org/x/sys/unix"

	"github.com/ashlar-go/ashlar/test/bench/load"
	"github.com/ashlar-go/ashlar/test/bench/side"
)

var benches = []side.Bench{{Name: "mapops100k", Prepare: mapOps}}

type (
	key   struct{ ID uint64 }
	value struct{ A, B, C uint64 }
	flow  struct {
		key   key
		value value
	}
)

func (k *key) String() string      { return fmt.Sprint(k.ID) }
func (k *key) New() bpf.MapKey     { return &key{} }
func (v *value) String() string    { return fmt.Sprint(*v) }
func (v *value) New() bpf.MapValue { return &value{} }

// The marshaler is the one that Cilium's own tables use.
func (f *flow) BinaryKey() encoding.BinaryMarshaler { return bpf.StructBinaryMarshaler{Target: &f.key} }
func (f *flow) BinaryValue() encoding.BinaryMarshaler {
	return bpf.StructBinaryMarshaler{Target: &f.value}
}

// mapOps is a full reconciliation by NewMapOps: what StateDB's reconciler calls when it prunes and refreshes, Prune once
// and Update for each object. The table, its transactions and the status of each object are left out, in its favour.
func mapOps() (w side.Work, err error) {
	// A map is not made before a bpf file system is found, though nothing is pinned.
	dir, err := os.MkdirTemp("", "ashlar-bench-")
	if err != nil {
		return side.Work{}, err
	}
	w.Close = func() error { return errors.Join(unix.Unmount(dir, unix.MNT_DETACH), os.Remove(dir)) }
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		return side.Work{}, errors.Join(err, os.Remove(dir))
	}
	if w.Do, err = mapOpsPass(); err != nil {
		return side.Work{}, errors.Join(err, w.Close())
	}
	return w, nil
}

func mapOpsPass() (func() error, error) {
	bpf.EnableMapPreAllocation() // as the map of the other sides is
	m := bpf.NewMap("flows", ebpf.Hash, &key{}, &value{}, load.FlowRoom, 0)
	if err := m.CreateUnpinned(); err != nil {
		return nil, err
	}
	fd, err := unix.FcntlInt(uintptr(m.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	others, err := ebpf.NewMapFromFD(fd)
	if err != nil {
		return nil, err
	}
	ops, table := bpf.NewMapOps[*flow](m), make([]*flow, load.Flows)
	for i := range table {
		table[i] = &flow{key{uint64(i)}, value{A: uint64(i)}}
	}
	ctx := context.Background()
	reconcile := func() error {
		err := ops.Prune(ctx, nil, func(yield func(*flow, statedb.Revision) bool) {
			for i, f := range table {
				if !yield(f, statedb.Revision(i)) {
					return
				}
			}
		})
		for i := 0; err == nil && i < len(table); i++ {
			err = ops.Update(ctx, nil, statedb.Revision(i), table[i])
		}
		return err
	}
	if err := reconcile(); err != nil {
		return nil, err
	}
	changed, gone, extra := load.FlowDrift()
	put := slices.Concat(changed, extra)
	values := make([]value, len(put))
	for i := range values {
		values[i].A = 1 << 40
	}
	return func() error {
		if _, err := others.BatchUpdate(put, values, nil); err != nil {
			return err
		}
		if _, err := others.BatchDelete(gone, nil); err != nil {
			return err
		}
		if err := reconcile(); err != nil {
			return err
		}
		// One of each kind: a side that leaves its work undone has no figure.
		for _, k := range []uint64{changed[1], gone[1]} {
			var v value
			if err := others.Lookup(k, &v); err != nil || v.A != k {
				return fmt.Errorf("key %d is %v after the pass: %w", k, v, err)
			}
		}
		if err := others.Lookup(extra[1], &value{}); err == nil {
			return fmt.Errorf("key %d is still there", extra[1])
		}
		return nil
	}, nil
}
