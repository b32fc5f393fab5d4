// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Verify says whether an object may be used like this. It is called with the very bytes that are loaded, before they are
// parsed. The method For of sign.Keys makes one.
type Verify func(object []byte, program, hook, target string) error

// Unsigned is a [Verify] that accepts everything: for objects that are part of the binary that loads them.
func Unsigned(_ []byte, _, _, _ string) error { return nil }

// ReadObject reads a regular file, or what a link to one points to, once, up to max bytes (0: the default of [Limits]). The result can be verified and
// loaded without the file being read again, so it does not matter what becomes of it in between.
func ReadObject(path string, max uint64) ([]byte, error) {
	if max == 0 {
		max = defaultLimits.Object
	}
	max = min(max, math.MaxInt64-1)
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe that nobody writes to would be waited for
	if err != nil {
		return nil, wrap("read", path, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, wrap("read", path, errors.Join(err, fmt.Errorf("%w: it is no regular file", ErrObject)))
	}
	data, err := io.ReadAll(io.LimitReader(f, int64(max)+1))
	if err == nil && uint64(len(data)) > max {
		err = &LimitError{What: "object bytes", Got: uint64(len(data)), Max: max}
	}
	if err != nil {
		return nil, wrap("read", path, err)
	}
	return data, nil
}

// Want says which program of an object is loaded, for which hook.
type Want struct {
	Program string // name of the program's function
	Hook    Hook   // where it is meant to run
}

// Loaded is a program in the kernel that runs nowhere yet. [Loaded.Close] gives it back.
type Loaded struct {
	Program *ebpf.Program        // the wanted one
	Maps    map[string]*ebpf.Map // every map of the object, by its name there
	Digest  string               // SHA-256 of the object, 64 hexadecimal digits
	Verdict Verdict              // what the verifier said

	coll    *ebpf.Collection
	layouts map[string]string // of maps, see layoutOf
}

// Close gives the descriptors back. Programs and maps live on where they are attached or pinned; but the kernel empties a
// program array, which holds the programs that the wanted one jumps to, when it is neither open nor pinned.
func (l *Loaded) Close() error {
	l.coll.Close()
	return nil
}

// Load verifies, parses and loads one program of an object and the maps of the object. Nothing is parsed before verify
// has said yes to the bytes, nothing is loaded before [Limits] have been held, no other program of the object is loaded,
// and pinning that the object asks for is not done: where things are pinned is the caller's decision.
//
// Errors: [ErrUnverified], what verify returns, [ErrLimit], [ErrObject], [ErrHook], *[VerifierError],
// *[bpfmap.PermissionError]. Capabilities: CAP_BPF, and CAP_NET_ADMIN or CAP_PERFMON by the type of program.
func Load(object []byte, verify Verify, want Want, opts ...Option) (*Loaded, error) {
	c, err := configure(opts)
	if err != nil {
		return nil, err
	}
	p, err := prepare(object, verify, want, c.limits)
	if err != nil {
		return nil, err
	}
	for name, m := range c.maps {
		if m == nil || p.spec.Maps[name] == nil {
			return nil, wrap("load", want.Program, fmt.Errorf("%w: WithMaps: the map is nil, or the object has no map %.80q", ErrMap, name))
		}
	}
	return p.load(c.maps)
}

// prepared is an object that has passed every check that needs no kernel.
type prepared struct {
	want   Want
	digest string
	spec   *ebpf.CollectionSpec
}

func prepare(object []byte, verify Verify, want Want, limits Limits) (*prepared, error) {
	if err := want.Hook.check(); err != nil {
		return nil, wrap("load", want.Program, err)
	}
	if verify == nil {
		return nil, wrap("verify", want.Program, ErrUnverified)
	}
	if n := uint64(len(object)); n > limits.Object {
		return nil, wrap("verify", want.Program, &LimitError{What: "object bytes", Got: n, Max: limits.Object})
	}
	// The caller's slice may be a mapped file, or change under us for other reasons: what is verified, parsed and loaded
	// is one copy.
	object = bytes.Clone(object)
	if err := verify(object, want.Program, want.Hook.Name(), want.Hook.Target()); err != nil {
		return nil, wrap("verify", want.Program, err)
	}
	spec, err := parse(object)
	if err != nil {
		return nil, wrap("parse", want.Program, err)
	}
	if err := trim(spec, want); err != nil {
		return nil, wrap("load", want.Program, err)
	}
	if err := limits.hold(spec); err != nil {
		return nil, wrap("load", want.Program, err)
	}
	return &prepared{want: want, digest: digestOf(object), spec: spec}, nil
}

// parse reads an ELF file. Readers of ELF were written for files that compilers make.
func parse(object []byte) (spec *ebpf.CollectionSpec, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: it cannot be parsed: %v", ErrObject, r)
		}
	}()
	spec, err = ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrObject, err)
	}
	return spec, nil
}

// trim leaves the wanted program, and those that its maps jump to.
func trim(spec *ebpf.CollectionSpec, want Want) error {
	main := spec.Programs[want.Program]
	if main == nil {
		return fmt.Errorf("%w: it has no program %.80q, only %.200q", ErrObject, want.Program, keysOf(spec.Programs))
	}
	if err := want.Hook.fits(main); err != nil {
		return err
	}
	if want.Hook.kind == KindCgroup {
		main.AttachType = want.Hook.attachType
	}
	keep := map[string]bool{want.Program: true}
	pins := map[string]string{}
	for name, m := range spec.Maps {
		if err := checkName("map", pinName(name)); err != nil {
			return err
		}
		if other, taken := pins[pinName(name)]; taken {
			return fmt.Errorf("%w: maps %s and %s would have one pin", ErrName, other, name)
		}
		pins[pinName(name)] = name
		m.Pinning = ebpf.PinNone
		for _, kv := range m.Contents {
			called, ok := kv.Value.(string)
			if !ok || m.Type != ebpf.ProgramArray {
				continue
			}
			if p := spec.Programs[called]; p != nil && p.Type != main.Type {
				return fmt.Errorf("%w: map %s holds program %s of type %s, which %s cannot jump to", ErrHook, name, called, p.Type, main.Type)
			}
			keep[called] = true
		}
	}
	for name := range spec.Programs {
		if !keep[name] {
			delete(spec.Programs, name)
		}
	}
	return nil
}

// pinName is the name of a map without the dots of compilers, which a bpf file system refuses.
func pinName(name string) string {
	return strings.ReplaceAll(strings.TrimPrefix(name, "."), ".", "-")
}

func keysOf[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// load puts it into the kernel. Statistics are all that is asked of the verifier when it accepts, which costs nothing; the
// full log is asked for only when it rejects.
func (p *prepared) load(maps map[string]*ebpf.Map) (*Loaded, error) {
	spec, replace := p.spec, maps // the library copies what it changes
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		MapReplacements: replace,
		Programs:        ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats, LogSizeStart: 4096},
	})
	if err != nil {
		return nil, wrap("load", p.want.Program, p.rejected(spec, replace, err))
	}
	program := coll.Programs[p.want.Program]
	layouts := map[string]string{}
	for name, m := range spec.Maps {
		layouts[name] = layoutOf(m)
	}
	return &Loaded{
		Program: program, Maps: coll.Maps, Digest: p.digest, Verdict: accepted(program.VerifierLog), coll: coll, layouts: layouts,
	}, nil
}

// maxTrace is how many instructions the verifier may have followed for its full log to be asked for.
const maxTrace = 200_000

// rejected finds out why a load failed.
func (p *prepared) rejected(spec *ebpf.CollectionSpec, replace map[string]*ebpf.Map, err error) error {
	var verifier *ebpf.VerifierError
	if !errors.As(err, &verifier) {
		if errors.Is(err, ebpf.ErrMapIncompatible) {
			return fmt.Errorf("%w: %w", ErrMap, err)
		}
		return permission(err, p.want.Hook.typ)
	}
	// What the verifier followed that long ends in a sentence, and the way there is a hundred megabytes.
	if v := rejectedBy(verifier.Log); v.Processed > maxTrace {
		return &VerifierError{Verdict: v, Err: verifier.Cause}
	}
	// Once more, and this time with everything that the verifier has to say.
	coll, again := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		MapReplacements: replace,
		Programs:        ebpf.ProgramOptions{LogLevel: ebpf.LogLevelBranch | ebpf.LogLevelStats, LogSizeStart: 1 << 20},
	})
	if again == nil {
		coll.Close()
		return fmt.Errorf("%w: the same program was accepted a moment later: %w", ErrRejected, err)
	}
	if full := (*ebpf.VerifierError)(nil); errors.As(again, &full) {
		verifier = full
	}
	if len(verifier.Log) == 0 {
		return permission(err, p.want.Hook.typ)
	}
	return &VerifierError{Verdict: rejectedBy(verifier.Log), Err: verifier.Cause}
}

// calls yields the helpers that a program calls, and whether it calls functions of the kernel.
func calls(insns asm.Instructions, yield func(helper asm.BuiltinFunc, kernel string)) {
	for _, in := range insns {
		switch {
		case in.IsBuiltinCall():
			yield(asm.BuiltinFunc(in.Constant), "")
		case in.IsKfuncCall():
			yield(0, in.Reference())
		}
	}
}

func digestOf(object []byte) string {
	sum := sha256.Sum256(object)
	return hex.EncodeToString(sum[:])
}
