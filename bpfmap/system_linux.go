// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

// Kernel is the kernel of this machine, which is what [Open] uses unless told otherwise.
func Kernel() System { return machine{} }

type machine struct{}

func handle(m *ebpf.Map) (Backend, error) {
	if m == nil {
		return nil, errors.New("the map is nil")
	}
	return newKernel(m, false), nil
}

func (machine) Create(spec *ebpf.MapSpec) (Backend, error) {
	m, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, bare(err)
	}
	return newKernel(m, spec.Flags&flagReadOnly != 0), nil
}

// bare cuts an error down to its errno where that is all the advice in it is worth: cilium blames locked memory.
func bare(err error) error {
	if errors.Is(err, unix.EPERM) {
		return unix.EPERM
	}
	return err
}

func (machine) OpenPin(path string, readOnly bool) (Backend, error) {
	m, err := ebpf.LoadPinnedMap(path, &ebpf.LoadPinOptions{ReadOnly: readOnly})
	if err != nil {
		return nil, bare(err)
	}
	return newKernel(m, readOnly), nil
}

func (machine) OpenID(id uint32) (Backend, error) {
	m, err := ebpf.NewMapFromID(ebpf.MapID(id))
	if err != nil {
		return nil, bare(err)
	}
	return handle(m)
}

// Pin calls bpf(2) itself: cilium's Pin moves a handle that is pinned already.
func (machine) Pin(m Backend, path string) error {
	if err := mounted(filepath.Dir(path)); err != nil {
		return err
	}
	name, err := unix.ByteSliceFromString(path)
	if err != nil {
		return err
	}
	attr := struct {
		path  pointer
		fd    uint32
		flags uint32
	}{at(name), uint32(m.FD()), 0}
	return bpf(unix.BPF_OBJ_PIN, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
}

// mounted says whether a directory is in a bpf file system, and what to do about it when not.
func mounted(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if uint32(st.Type) != unix.BPF_FS_MAGIC {
		return fmt.Errorf("%s is not in a bpf file system: mount one (mount -t bpf bpf /sys/fs/bpf) and pin below it: %w", dir, unix.EINVAL)
	}
	return nil
}

func (machine) Rename(from, to string) error { return os.Rename(from, to) }

func (machine) Remove(path string) error {
	if err := mounted(filepath.Dir(path)); err != nil {
		return err
	}
	return os.Remove(path)
}

func (machine) Pins(dir string) (out []Pinned, err error) {
	if err := mounted(dir); err != nil {
		return nil, err
	}
	err = filepath.WalkDir(dir+"/", func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path != dir+"/" { // went while we walked
			return nil
		}
		if err != nil || d.IsDir() || strings.Contains(d.Name(), ".") { // the kernel's own: maps.debug, progs.debug
			return err
		}
		out = append(out, identify(path))
		return nil
	})
	slices.SortFunc(out, func(a, b Pinned) int { return strings.Compare(a.Path, b.Path) })
	return out, err
}

// identify opens a pin as each kind in turn: opening as the wrong one is refused without effect.
func identify(path string) Pinned {
	p := Pinned{Path: path}
	opts := &ebpf.LoadPinOptions{ReadOnly: true}
	if m, err := ebpf.LoadPinnedMap(path, opts); err == nil {
		p.Kind = "map"
		if info, err := m.Info(); err == nil {
			id, _ := info.ID()
			p.ID, p.Name = uint32(id), info.Name
		}
		_ = m.Close() // only looked at
		return p
	}
	if prog, err := ebpf.LoadPinnedProgram(path, nil); err == nil {
		p.Kind = "program"
		if info, err := prog.Info(); err == nil {
			id, _ := info.ID()
			p.ID, p.Name = uint32(id), info.Name
		}
		_ = prog.Close() // only looked at
		return p
	}
	if l, err := link.LoadPinnedLink(path, nil); err == nil {
		p.Kind = "link"
		if info, err := l.Info(); err == nil {
			p.ID = uint32(info.ID)
		}
		_ = l.Close() // closing one that is pinned does not detach it
	}
	return p
}

func (machine) Types(m Backend) (key, value btf.Type, err error) {
	k, ok := m.(*kernel)
	if !ok {
		return nil, nil, ErrUnsupported
	}
	info, err := k.Info()
	if err != nil {
		return nil, nil, err
	}
	h, err := btf.NewHandleFromID(btf.ID(info.BTF))
	if err != nil {
		return nil, nil, bare(err)
	}
	defer h.Close()
	spec, err := h.Spec(nil)
	if err != nil {
		return nil, nil, err
	}
	if info.KeyType != 0 {
		if key, err = spec.TypeByID(btf.TypeID(info.KeyType)); err != nil {
			return nil, nil, err
		}
	}
	if info.ValueType != 0 {
		value, err = spec.TypeByID(btf.TypeID(info.ValueType))
	}
	return key, value, err
}

func (machine) Users(id uint32) (programs []uint32, complete bool, err error) {
	for at := ebpf.ProgramID(0); ; {
		at, err = ebpf.ProgramGetNextID(at)
		if errors.Is(err, os.ErrNotExist) {
			return programs, true, nil
		}
		if errors.Is(err, unix.EPERM) {
			return programs, false, nil
		}
		if err != nil {
			return programs, false, err
		}
		p, err := ebpf.NewProgramFromID(at)
		if errors.Is(err, os.ErrNotExist) { // unloaded meanwhile
			continue
		}
		if err != nil {
			return programs, false, err
		}
		info, err := p.Info()
		_ = p.Close() // only looked at
		if err != nil {
			return programs, false, err
		}
		if ids, _ := info.MapIDs(); slices.Contains(ids, ebpf.MapID(id)) {
			programs = append(programs, uint32(at))
		}
	}
}

func (machine) CPUs() (int, error) { return ebpf.PossibleCPU() }

func (machine) Ring(m Backend) (RingSource, error) {
	k, ok := m.(*kernel)
	if !ok {
		return nil, ErrUnsupported
	}
	r, err := ringbuf.NewReader(k.m)
	if err != nil {
		return nil, err
	}
	return &ring{r: r}, nil
}

// ring makes a deadline end a read that waits already, which cilium's does not: setting one waits for the read instead.
// And a closed one has nothing available, where cilium's has no memory to look at.
type ring struct {
	r   *ringbuf.Reader
	rec ringbuf.Record

	mu       sync.Mutex
	deadline time.Time
	closed   bool
}

func (r *ring) Read(buf []byte) ([]byte, error) {
	for {
		r.mu.Lock()
		deadline := r.deadline
		r.mu.Unlock()
		r.r.SetDeadline(deadline)
		r.rec.RawSample = buf[:0]
		err := r.r.ReadInto(&r.rec)
		if !errors.Is(err, ringbuf.ErrFlushed) { // woken: there may be another deadline
			return r.rec.RawSample, err
		}
	}
}

func (r *ring) SetDeadline(t time.Time) {
	r.mu.Lock()
	r.deadline = t
	r.mu.Unlock()
	_ = r.r.Flush() // wakes the reader; of a closed ring there is none
}

func (r *ring) Available() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0
	}
	return r.r.AvailableBytes()
}

func (r *ring) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	return r.r.Close()
}

// surroundings reads what decides about EPERM. The thread counts, not the process: capabilities can differ.
func surroundings() (t thread) {
	status, err := os.ReadFile("/proc/thread-self/status")
	for _, line := range strings.Split(string(status), "\n") {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok && err == nil {
			t.caps, err = strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			t.known = err == nil
		}
	}
	if text, err := os.ReadFile("/sys/kernel/security/lockdown"); err == nil {
		t.lockdown = chosen(string(text))
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		var major, minor int
		if n, _ := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); n == 2 {
			t.oldMemlock = major < 5 || major == 5 && minor < 11
		}
	}
	return t
}
