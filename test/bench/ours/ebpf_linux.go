// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/ashlar-go/ashlar/bpfmap/prog"
	"github.com/ashlar-go/ashlar/bpfmap/sign"
	"github.com/ashlar-go/ashlar/test/bench/side"
)

// The kernel is real, and what is attached is attached: these need root.
var progBenches = []side.Bench{
	{Name: "prog.swap_tcx", Prepare: func() (side.Work, error) { return swaps("on_tcx") }},
	{Name: "prog.swap_xdp", Prepare: func() (side.Work, error) { return swaps("on_xdp") }},
	{Name: "prog.swap_cgroup", Prepare: func() (side.Work, error) { return swaps("on_cgroup") }},
	{Name: "prog.swap_tracepoint", Prepare: func() (side.Work, error) { return swaps("on_tracepoint") }},
	{Name: "sign.verify1M", Prepare: verify1M},
	{Name: "sha256.verify1M", Prepare: digest1M},
	{Name: "prog.load", Prepare: loadOurs},
	{Name: "ebpf.load", Prepare: loadTheirs},
}

// progObject reads an object of the tests of bpfmap/prog.
func progObject(name string) ([]byte, error) {
	_, here, _, _ := runtime.Caller(0)
	return os.ReadFile(filepath.Join(filepath.Dir(here), "../../../bpfmap/prog/testdata", name+".o"))
}

// eventsPerSwap is the least number of events that each swap has to get through: 500 swaps see more than 30 000.
const eventsPerSwap = 64

// swapping replaces a program once for each operation while events keep coming.
type swapping struct {
	scene   *scene
	slot    *prog.Slot
	objects [2][]byte
	program string
	hits    *ebpf.Map
	flows   *ebpf.Map // by the number of the event, nil where the program does not look into it
	calls   *callCounter
	n       int
	took    []time.Duration
}

func swaps(program string) (w side.Work, err error) {
	s := &swapping{program: program}
	fail := func(err error) (side.Work, error) { return side.Work{}, errors.Join(err, s.close()) }
	for i, name := range []string{"one", "two"} {
		if s.objects[i], err = progObject(name); err != nil {
			return fail(err)
		}
	}
	var hook prog.Hook
	if s.scene, hook, err = newScene(program); err != nil {
		return fail(err)
	}
	if s.slot, err = prog.New(s.scene.pins, "bench", hook); err != nil {
		return fail(err)
	}
	if _, err = s.slot.Sync(context.Background(), s.release()); err != nil {
		return fail(err)
	}
	if s.hits, err = s.slot.Map("hits"); err != nil {
		return fail(err)
	}
	if program == "on_tcx" || program == "on_cgroup" {
		if s.flows, err = s.slot.Map("flows"); err != nil {
			return fail(err)
		}
	}
	if program == "on_tracepoint" {
		only, err := s.slot.Map("only")
		if err == nil {
			err = errors.Join(only.Put(uint32(0), uint32(os.Getpid())), only.Close())
		}
		if err != nil {
			return fail(err)
		}
	}
	if s.calls, err = countCalls(); err != nil {
		return fail(err)
	}
	s.scene.start()
	return side.Work{Do: s.do, Counts: s.counts, Close: s.close}, nil
}

func (s *swapping) release() prog.Release {
	s.n++
	return prog.Release{Object: s.objects[s.n%2], Program: s.program, Verify: prog.Unsigned}
}

func (s *swapping) do() error {
	from := s.scene.sent.Load()
	res, err := s.slot.Sync(context.Background(), s.release())
	if err != nil {
		return err
	}
	if !res.Changed {
		return fmt.Errorf("swap %d changed nothing", s.n)
	}
	s.took = append(s.took, res.Switch)
	for deadline := time.Now().Add(10 * time.Second); s.scene.sent.Load() < from+eventsPerSwap; {
		if err := s.scene.err(); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return errors.New("no events")
		}
		runtime.Gosched()
	}
	return nil
}

// counts stops the events for as long as it takes to compare. The time of an activation is the median of those since it
// was asked last, as a total, so that the figure per operation is the median.
func (s *swapping) counts() map[string]int64 {
	sent, resume := s.scene.pause()
	defer resume()
	lost, doubled := int64(0), int64(0)
	for range 200 { // what is under way arrives soon; what does not is lost
		if lost, doubled = s.compare(sent); lost+doubled == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	calls := s.calls.read()
	other := int64(0)
	for _, cmd := range []uint32{unix.BPF_PROG_ATTACH, unix.BPF_PROG_DETACH, unix.BPF_LINK_CREATE, unix.BPF_LINK_DETACH} {
		other += calls[cmd]
	}
	slices.Sort(s.took)
	activate := int64(0)
	if n := len(s.took); n > 1 {
		activate = s.took[n/2].Microseconds() * int64(n)
	}
	s.took = nil
	return map[string]int64{
		"events": sent, "lost": lost, "doubled": doubled,
		"open_calls": other, "updates": calls[unix.BPF_LINK_UPDATE], "activate_us": activate,
	}
}

// compare holds what was counted against what was sent: all together, and each flow by itself, so that an event that was
// lost and one that was seen twice do not make up for each other.
func (s *swapping) compare(sent int64) (lost, doubled int64) {
	differ := func(sent, counted int64) {
		lost, doubled = max(lost, sent-counted), max(doubled, counted-sent)
	}
	counted := int64(0)
	for i := range uint32(8) {
		var n uint64
		if s.hits.Lookup(i, &n) == nil {
			counted += int64(n)
		}
	}
	differ(sent, counted)
	for flow := int64(0); s.flows != nil && flow < sceneFlows; flow++ {
		var n uint64
		_ = s.flows.Lookup(uint32(flow), &n) // not there is zero
		differ((sent-flow+sceneFlows-1)/sceneFlows, int64(n))
	}
	return lost, doubled
}

func (s *swapping) close() error {
	var errs []error
	if s.calls != nil {
		errs = append(errs, s.calls.close())
	}
	if s.hits != nil {
		errs = append(errs, s.hits.Close())
	}
	if s.flows != nil {
		errs = append(errs, s.flows.Close())
	}
	if s.scene != nil {
		s.scene.stop()
		if s.slot != nil {
			errs = append(errs, s.slot.Remove())
		}
		errs = append(errs, s.scene.close())
	}
	return errors.Join(errs...)
}

// callCounter counts the bpf(2) calls of this process by their command, with a program of its own.
type callCounter struct {
	m *ebpf.Map
	p *ebpf.Program
	l link.Link
}

func countCalls() (*callCounter, error) {
	c := &callCounter{}
	var err error
	if c.m, err = ebpf.NewMap(&ebpf.MapSpec{Name: "calls", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 64}); err != nil {
		return nil, err
	}
	// struct trace_event_raw_sys_enter: the command is the first argument, at 16.
	c.p, err = ebpf.NewProgram(&ebpf.ProgramSpec{Name: "count_calls", Type: ebpf.TracePoint, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, 16, asm.DWord),
		asm.FnGetCurrentPidTgid.Call(),
		asm.RSh.Imm(asm.R0, 32),
		asm.JNE.Imm(asm.R0, int32(os.Getpid()), "out"),
		asm.StoreMem(asm.RFP, -4, asm.R6, asm.Word),
		asm.LoadMapPtr(asm.R1, c.m.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Imm(asm.R1, 1),
		asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, 0),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	}})
	if err == nil {
		c.l, err = link.Tracepoint("syscalls", "sys_enter_bpf", c.p, nil)
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *callCounter) read() (calls [64]int64) {
	for i := range calls {
		_ = c.m.Lookup(uint32(i), &calls[i])
	}
	return calls
}

func (c *callCounter) close() error {
	var errs []error
	if c.l != nil {
		errs = append(errs, c.l.Close())
	}
	if c.p != nil {
		errs = append(errs, c.p.Close())
	}
	return errors.Join(append(errs, c.m.Close())...)
}

// verify1M checks an object of 1 MiB against its manifest, signed by ECDSA P-256.
func verify1M() (side.Work, error) {
	object := bytes.Repeat([]byte("object\n"), 1<<20/7+1)[:1<<20]
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return side.Work{}, err
	}
	now := time.Now().Truncate(time.Second)
	use := sign.Use{Program: "count", Hook: "tcx/ingress", Target: "eth0"}
	manifest, err := sign.Manifest{Object: sign.Digest(object), Use: use, KeyID: "release", NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour)}.Encode()
	if err != nil {
		return side.Work{}, err
	}
	signature, err := sign.Sign(manifest, key)
	if err != nil {
		return side.Work{}, err
	}
	keys, err := sign.New([]sign.Key{{ID: "release", Public: key.Public()}})
	return side.Work{Do: func() error {
		_, err := keys.Verify(manifest, object, signature, use)
		return err
	}}, err
}

// digest1M is SHA-256 of as many bytes, and as much processor time more as the promise allows: it is
// 1.15 times the digest and 0.3 ms, which is 1.15 times (the digest and 0.3 ms/1.15).
func digest1M() (side.Work, error) {
	object := bytes.Repeat([]byte("object\n"), 1<<20/7+1)[:1<<20]
	want := sha256.Sum256(object)
	return side.Work{Do: func() error {
		if sha256.Sum256(object) != want {
			return errors.New("the digest changed")
		}
		for start := time.Now(); time.Since(start) < 300*time.Microsecond*100/115; {
		}
		return nil
	}}, nil
}

// loadOurs verifies, parses, holds the limits, loads, and gives back.
func loadOurs() (side.Work, error) {
	object, err := progObject("one")
	return side.Work{Do: func() error {
		l, err := prog.Load(object, prog.Unsigned, prog.Want{Program: "on_tcx", Hook: prog.TCX("lo", prog.Ingress)})
		if err != nil {
			return err
		}
		return l.Close()
	}}, err
}

// loadTheirs parses and loads the same program and maps with cilium/ebpf alone.
func loadTheirs() (side.Work, error) {
	object, err := progObject("one")
	return side.Work{Do: func() error {
		spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
		if err != nil {
			return err
		}
		for name := range spec.Programs {
			if name != "on_tcx" {
				delete(spec.Programs, name)
			}
		}
		coll, err := ebpf.NewCollection(spec)
		if err != nil {
			return err
		}
		coll.Close()
		return nil
	}}, err
}
