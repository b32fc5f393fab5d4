// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmaptest

import (
	"errors"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/ashlar-go/ashlar/bpfmap"
)

// Kernel is a kernel in memory, for [bpfmap.WithSystem]. It is safe for concurrent use.
type Kernel struct {
	mu       sync.Mutex
	cpus     int
	noAdmin  bool
	noBPF    bool
	nextID   uint32
	nextFD   int
	maps     map[uint32]*object
	fds      map[int]*object
	pins     map[string]pin
	programs map[uint32][]uint32 // by map id
}

type pin struct {
	m     *object
	other bpfmap.Pinned // what is no map
}

var _ bpfmap.System = (*Kernel)(nil)

// Option configures [New].
type Option interface{ apply(*Kernel) }

type option func(*Kernel)

func (o option) apply(k *Kernel) { o(k) }

// WithCPUs sets the number of possible CPUs; the default is 2.
func WithCPUs(n int) Option { return option(func(k *Kernel) { k.cpus = max(1, n) }) }

// WithoutSysAdmin is a process without CAP_SYS_ADMIN: nothing can be found by its id, BTF among it.
func WithoutSysAdmin() Option { return option(func(k *Kernel) { k.noAdmin = true }) }

// WithoutBPF is a process without CAP_BPF: nothing can be made.
func WithoutBPF() Option { return option(func(k *Kernel) { k.noBPF, k.noAdmin = true, true }) }

// New returns an empty kernel.
func New(opts ...Option) *Kernel {
	k := &Kernel{
		cpus: 2, nextID: 1, nextFD: 100, maps: map[uint32]*object{}, fds: map[int]*object{}, pins: map[string]pin{},
		programs: map[uint32][]uint32{},
	}
	for _, o := range opts {
		o.apply(k)
	}
	return k
}

// Use says that programs use a map, for what asks who does.
func (k *Kernel) Use(m bpfmap.Backend, programs ...uint32) error {
	info, err := m.Info()
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.programs[info.ID] = append(k.programs[info.ID], programs...)
	return nil
}

// PinOther pins something that is no map: a program or a link.
func (k *Kernel) PinOther(p bpfmap.Pinned) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pins[p.Path] = pin{other: p}
}

// FDs is how many descriptors are open, for tests that nothing leaks.
func (k *Kernel) FDs() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.fds)
}

// Create makes a map, with the kernel's checks.
func (k *Kernel) Create(spec *ebpf.MapSpec) (bpfmap.Backend, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.noBPF {
		return nil, syscall.EPERM
	}
	m, err := k.make(spec)
	if err != nil {
		return nil, err
	}
	m.id = k.nextID
	k.nextID++
	k.maps[m.id] = m
	h := k.open(m, spec.Flags&flagReadOnly != 0)
	h.writeOnly = spec.Flags&flagWriteOnly != 0
	return h, nil
}

func (k *Kernel) open(m *object, readOnly bool) *handle {
	h := &handle{k: k, m: m, fd: k.nextFD, readOnly: readOnly}
	k.nextFD++
	k.fds[h.fd] = m
	m.refs++
	return h
}

// drop takes a reference away; the last one takes the map with it.
func (k *Kernel) drop(m *object) {
	if m.refs--; m.refs > 0 {
		return
	}
	delete(k.maps, m.id)
	for id, inner := range m.inner {
		for range m.uses[id] {
			k.drop(inner)
		}
	}
}

// OpenPin opens a pinned map.
func (k *Kernel) OpenPin(path string, readOnly bool) (bpfmap.Backend, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p, ok := k.pins[path]
	switch {
	case !ok:
		return nil, syscall.ENOENT
	case p.m == nil:
		return nil, syscall.EINVAL
	case k.noBPF:
		return nil, syscall.EPERM
	}
	return k.open(p.m, readOnly), nil
}

// OpenID opens a map by its id.
func (k *Kernel) OpenID(id uint32) (bpfmap.Backend, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.noAdmin {
		return nil, syscall.EPERM
	}
	m, ok := k.maps[id]
	if !ok {
		return nil, syscall.ENOENT
	}
	return k.open(m, false), nil
}

// Pin pins a map once more.
func (k *Kernel) Pin(m bpfmap.Backend, name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	h, ok := m.(*handle)
	switch {
	case !ok || h.k != k || h.closed:
		return syscall.EBADF
	case strings.Contains(path.Base(name), "."):
		return syscall.EPERM
	}
	if _, taken := k.pins[name]; taken {
		return syscall.EEXIST
	}
	h.m.refs++
	k.pins[name] = pin{m: h.m}
	return nil
}

// Rename moves a pin, over another one if need be.
func (k *Kernel) Rename(from, to string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	p, ok := k.pins[from]
	if !ok {
		return syscall.ENOENT
	}
	if old, ok := k.pins[to]; ok && old.m != nil && from != to {
		k.drop(old.m)
	}
	delete(k.pins, from)
	k.pins[to] = p
	return nil
}

// Remove takes a pin away.
func (k *Kernel) Remove(path string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	p, ok := k.pins[path]
	if !ok {
		return syscall.ENOENT
	}
	delete(k.pins, path)
	if p.m != nil {
		k.drop(p.m)
	}
	return nil
}

// Pins lists what is pinned below dir.
func (k *Kernel) Pins(dir string) (out []bpfmap.Pinned, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, p := range k.pins {
		if !strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/") {
			continue
		}
		if p.m == nil {
			out = append(out, p.other)
		} else {
			out = append(out, bpfmap.Pinned{Path: name, Kind: "map", ID: p.m.id, Name: p.m.spec.Name})
		}
	}
	slices.SortFunc(out, func(a, b bpfmap.Pinned) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

// Types gives back the types a map was made with.
func (k *Kernel) Types(m bpfmap.Backend) (key, value btf.Type, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h, ok := m.(*handle)
	if !ok || h.closed {
		return nil, nil, syscall.EBADF
	}
	if k.noAdmin {
		return nil, nil, syscall.EPERM
	}
	return h.m.spec.Key, h.m.spec.Value, nil
}

// Users lists what [Kernel.Use] said.
func (k *Kernel) Users(id uint32) (programs []uint32, complete bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.noAdmin {
		return nil, false, nil
	}
	return slices.Clone(k.programs[id]), true, nil
}

// CPUs is the number of possible CPUs.
func (k *Kernel) CPUs() (int, error) { return k.cpus, nil }

// Ring reads a ring buffer that [Kernel.Emit] writes.
func (k *Kernel) Ring(m bpfmap.Backend) (bpfmap.RingSource, error) {
	h, ok := m.(*handle)
	if !ok || h.m.spec.Type != ebpf.RingBuf {
		return nil, errors.New("not a ring buffer")
	}
	return &ringReader{r: h.m.ring}, nil
}

// Emit is a program that writes one record into a ring buffer. False: the ring was full and the record is lost.
func (k *Kernel) Emit(m bpfmap.Backend, record []byte) bool {
	h, ok := bare(m).(*handle)
	return ok && h.m.ring != nil && h.m.ring.emit(record)
}
