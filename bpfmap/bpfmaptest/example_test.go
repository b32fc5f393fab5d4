// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmaptest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/ashlar-go/ashlar/bpfmap"
	"github.com/ashlar-go/ashlar/bpfmap/bpfmaptest"
)

func ExampleNew() {
	k := bpfmaptest.New(bpfmaptest.WithCPUs(4), bpfmaptest.WithoutSysAdmin())
	m, err := bpfmap.Open[uint32, uint32](bpfmap.Spec{Name: "limits", MaxEntries: 2}, bpfmap.WithSystem(k))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.Put(1, 10), m.Put(2, 20), m.Put(3, 30))
	fmt.Println(k.FDs(), m.Close(), k.FDs())
	// Output:
	// <nil> <nil> put limits: no more space in map (2 of 2)
	// 1 <nil> 0
}

// The write of a pass fails after its second element.
func ExampleInject() {
	faults := bpfmaptest.Inject(bpfmaptest.New())
	m, err := bpfmap.Open[uint32, uint32](bpfmap.Spec{Name: "limits", MaxEntries: 8}, bpfmap.WithSystem(faults))
	if err != nil {
		fmt.Println(err)
		return
	}
	faults.Reset()
	faults.FailElement(2, 2, syscall.ENOMEM)
	res, err := m.Sync(context.Background(), maps.All(map[uint32]uint32{1: 1, 2: 2, 3: 3, 4: 4}))
	fmt.Println(res.Written, len(res.Failures), errors.Is(err, syscall.ENOMEM))
	fmt.Println(faults.Calls())
	// Output:
	// 3 1 true
	// [LookupBatch UpdateBatch UpdateBatch]
}

// In a test of a system of your own.
func ExampleConformance() {
	_ = func(t *testing.T) {
		bpfmaptest.Conformance(t, bpfmaptest.New(), "/sys/fs/bpf/test")
	}
	// Output:
}

func ExampleDiffer() {
	diff, err := bpfmaptest.Differ(bpfmaptest.New(), bpfmaptest.New(), []byte{0, 3, 0, 1, 7, 0, 3, 1})
	fmt.Printf("%q %v\n", diff, err)
	// Output:
	// "" <nil>
}

// A process that has been started without a capability, and a program that uses a map.
func ExampleKernel_Use() {
	k := bpfmaptest.New()
	b, err := k.Create(&ebpf.MapSpec{Name: "flows", Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 8})
	if err != nil {
		fmt.Println(err)
		return
	}
	info, err := b.Info()
	fmt.Println(k.Use(b, 77), err)
	programs, complete, err := k.Users(info.ID)
	fmt.Println(programs, complete, err)
	// Output:
	// <nil> <nil>
	// [77] true <nil>
}
