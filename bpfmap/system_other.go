// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package bpfmap

import (
	"fmt"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// Kernel is the kernel of this machine, which has no bpf(2): every call is [ErrUnsupported]. Code that uses this package
// builds everywhere, and its tests run everywhere on bpfmaptest.
func Kernel() System { return machine{} }

type machine struct{}

func errHere() error {
	return fmt.Errorf("%w: bpf needs linux, this is %s", ErrUnsupported, runtime.GOOS)
}

func handle(*ebpf.Map) (Backend, error) { return nil, errHere() }

func (machine) Create(*ebpf.MapSpec) (Backend, error) { return nil, errHere() }

func (machine) OpenPin(string, bool) (Backend, error) { return nil, errHere() }

func (machine) OpenID(uint32) (Backend, error) { return nil, errHere() }

func (machine) Pin(Backend, string) error { return errHere() }

func (machine) Rename(string, string) error { return errHere() }

func (machine) Remove(string) error { return errHere() }

func (machine) Pins(string) ([]Pinned, error) { return nil, errHere() }

func (machine) Types(Backend) (key, value btf.Type, err error) { return nil, nil, errHere() }

func (machine) Users(uint32) ([]uint32, bool, error) { return nil, false, errHere() }

func (machine) CPUs() (int, error) { return 0, errHere() }

func (machine) Ring(Backend) (RingSource, error) { return nil, errHere() }

func surroundings() (t thread) { return t }
