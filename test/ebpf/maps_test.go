// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ebpf

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/ashlar-go/ashlar/bpfmap"
	"github.com/ashlar-go/ashlar/bpfmap/prog"
	"github.com/ashlar-go/ashlar/test/ebpf/progs"
)

// The pinned map is not the one that the program uses. https://github.com/cilium/cilium/issues/45196
func TestReport_cilium_45196SplitBrain(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in))
	sync1(t, s, release(progs.One, "on_tcx"))
	flows := mapOf(t, s, "flows")
	if err := s.Guard(flows); err != nil {
		t.Errorf("the map in use: %v", err)
	}
	sync1(t, s, wide())
	if err := s.Guard(flows); !errors.Is(err, bpfmap.ErrSplitBrain) {
		t.Errorf("the map of the version before: %v", err)
	}
	if err := s.Guard(mapOf(t, s, "flows")); err != nil {
		t.Errorf("opened again: %v", err)
	}
	// Somebody pins another map at the public name.
	other, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 16, MaxEntries: 1024})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := errors.Join(os.Remove(root+"/slot/maps/flows"), other.Pin(root+"/slot/maps/flows")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Map("flows"); !errors.Is(err, bpfmap.ErrSplitBrain) {
		t.Errorf("a stranger's pin: %v", err)
	}
}

// Programs that share maps go on sharing them after any number of upgrades. https://github.com/l3af-project/l3afd/issues/588
func TestReport_l3afd_588SharedMapsStayShared(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in))
	var id ebpf.MapID
	for i, object := range [][]byte{progs.One, progs.Two, progs.One, progs.Two} {
		sync1(t, s, release(object, "on_tcx"))
		m := mapOf(t, s, "hits")
		info, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		if now, _ := info.ID(); id != 0 && now != id {
			t.Errorf("upgrade %d: map %d became %d", i, id, now)
		} else {
			id = now
		}
	}
}

func TestMerged(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in))
	sync1(t, s, release(progs.One, "on_tcx"))
	w.send(10, 1)
	r := release(progs.Wide, "on_tcx")
	late := false
	r.Maps = map[string]prog.Keep{
		"percpu": prog.Fresh(),
		"flows": prog.Merged(func(key, before, after, now []byte) []byte {
			if before == nil && !late {
				late = true
				w.send(5, 1) // the old program is still in force
			}
			return append(make([]byte, 8), after...)
		}),
	}
	sync1(t, s, r)
	if n := packets(t, s, "flows", 1); n != 15 {
		t.Errorf("%d packets, want 15", n)
	}
	if m := mapOf(t, s, "percpu"); m.Lookup(uint32(1), new([][2]uint64)) == nil {
		t.Error("the fresh map is not empty")
	}
}

// Two declarations of one size whose fields differ. https://github.com/cilium/ebpf/issues/821
func TestReport_cilium_ebpf_821SameSizeOtherFields(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in))
	sync1(t, s, release(progs.One, "on_tcx"))
	_, err := s.Sync(t.Context(), release(progs.Other, "on_tcx"))
	if !errors.Is(err, prog.ErrMap) || !strings.Contains(err.Error(), "layout was u32 → struct{packets u64 @0}, is u32 → struct{errors u32 @0; packets u32 @32}") {
		t.Errorf("got %v", err)
	}
	r := release(progs.Other, "on_tcx")
	r.Maps = map[string]prog.Keep{"flows": prog.Fresh(), "percpu": prog.Fresh()}
	sync1(t, s, r)
}

// A typed map that was opened by its public pin does not write to the map of the version before.
func TestTypedMapRefusesAfterASwap(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in))
	sync1(t, s, release(progs.One, "on_tcx"))
	m, err := bpfmap.Open[uint32, uint64](bpfmap.Spec{Name: "flows", Type: ebpf.Hash, MaxEntries: 1024}, bpfmap.WithPin(s.Pin("flows")))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	want := func(yield func(uint32, uint64) bool) { yield(7, 7) }
	if _, err := m.Sync(t.Context(), want); err != nil {
		t.Fatalf("before the swap: %v", err)
	}
	sync1(t, s, wide())
	want = func(yield func(uint32, uint64) bool) { yield(7, 8) }
	if _, err := m.Sync(t.Context(), want); !errors.Is(err, bpfmap.ErrSplitBrain) {
		t.Errorf("after the swap: %v", err)
	}
	if err := s.Guard(mapOf(t, s, "flows")); err != nil {
		t.Error(err)
	}
}

// Readers open the public pin at any time. https://github.com/cilium/cilium/issues/32387
func TestReport_cilium_32387ReadersAlwaysFindTheMap(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in))
	sync1(t, s, release(progs.One, "on_tcx"))
	stop, opened, failed := make(chan struct{}), 0, 0
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			m, err := ebpf.LoadPinnedMap(s.Pin("flows"), nil)
			if opened++; err != nil {
				failed++
				continue
			}
			m.Close()
		}
	})
	for i := range 100 {
		act := []string{"wide", "narrow"}[i%2]
		if err := acts[act](t.Context(), s); err != nil {
			t.Fatalf("upgrade %d: %v", i, err)
		}
	}
	close(stop)
	wg.Wait()
	if failed > 0 || opened == 0 {
		t.Errorf("%d of %d opens failed", failed, opened)
	}
	t.Logf("%d opens during 100 exchanges of the map", opened)
}

// A packet that the old program is still at when the switch happens is counted by it, after the switch. The second pass
// of the migration has to wait for it.
func TestPacketsUnderWayAreCounted(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	h := prog.TCX("in", prog.Ingress).In(w.in)
	var wg sync.WaitGroup
	for range 5 {
		s, err := prog.New(root, "slot", h, prog.WithObserver(func(e prog.Event) {
			if e.Step == prog.StepSwap {
				wg.Go(func() { w.send(1, 5) })
				time.Sleep(3 * time.Millisecond) // it is in the program now
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
		sync1(t, s, release(progs.Slow, "on_tcx"))
		r := wide()
		r.Maps["percpu"] = prog.Fresh() // moving that one waits for every CPU by itself
		sync1(t, s, r)
		wg.Wait()
		if _, each := total(t, mapOf(t, s, "hits")); each[1] != 1 {
			t.Logf("the packet missed the old program: %v", each)
		}
		if n := packets(t, s, "flows", 5); n != 1 {
			t.Errorf("%d packets, want 1", n)
		}
		if err := s.Remove(); err != nil {
			t.Fatal(err)
		}
	}
}

// What goes wrong after the new version was pinned is undone.
func TestAFailedMigrationIsUndone(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in))
	one := sync1(t, s, release(progs.One, "on_tcx"))
	w.send(10, 1)
	r := wide()
	r.Maps["flows"] = prog.Merged(func(_, _, after, _ []byte) []byte { return after }) // eight bytes, and sixteen are wanted
	if res, err := s.Sync(t.Context(), r); !errors.Is(err, prog.ErrMap) || res.Digest != one.Digest {
		t.Errorf("%+v, %v", res, err)
	}
	if left := leftovers(t, root); len(left) > 0 || len(versions(t, root)) != 1 {
		t.Errorf("left over: %v, %v", left, versions(t, root))
	}
	ctx, cancel := context.WithCancel(t.Context())
	r.Maps["flows"] = prog.Merged(func(_, _, after, _ []byte) []byte { cancel(); return append(after, after...) })
	if res, err := s.Sync(ctx, r); !errors.Is(err, context.Canceled) || res.Digest != one.Digest || len(versions(t, root)) != 1 {
		t.Errorf("%+v, %v", res, err)
	}
	w.send(10, 1)
	if n := packets(t, s, "flows", 1); n != 20 {
		t.Errorf("%d packets, want 20", n)
	}
}

// The kernel made a map a little larger than it was declared, and the same declaration fits it the next time.
// https://github.com/cilium/cilium/issues/42511
func TestReport_cilium_42511RoundedEntries(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in))
	sync1(t, s, release(progs.Slow, "on_tcx"))
	id := func() ebpf.MapID {
		m, err := ebpf.LoadPinnedMap(s.Pin("recent"), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		info, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		id, _ := info.ID()
		return id
	}
	before := id()
	r := release(progs.Other, "on_tcx")
	r.Maps = map[string]prog.Keep{"flows": prog.Fresh(), "percpu": prog.Fresh()}
	sync1(t, s, r)
	if after := id(); after != before {
		t.Errorf("map %d became %d", before, after)
	}
}

// The programs that a program jumps to are its own, and not those of the version before.
func TestProgramsThatAreJumpedToBelongToTheVersion(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in))
	counted := func(what string, want ...uint64) {
		t.Helper()
		w.send(10, 1)
		if _, each := total(t, mapOf(t, s, "hits")); each[1] != want[0] || each[2] != want[1] {
			t.Errorf("%s: %v, want %v", what, each, want)
		}
	}
	sync1(t, s, release(progs.Tails, "head"))
	counted("the first", 10, 0)
	sync1(t, s, release(progs.Tails2, "head"))
	counted("the second", 10, 10)
	if _, err := s.Rollback(t.Context(), "asked"); err != nil {
		t.Fatal(err)
	}
	counted("and back", 20, 10)
}

// fill writes n keys from a first one on, as a datapath would.
func fill(t testing.TB, m *ebpf.Map, from, n uint32, value any) {
	t.Helper()
	for key := from; key < from+n; key++ {
		if err := m.Put(key, value); err != nil {
			t.Fatal(err)
		}
	}
}

// Flows come and go while they are moved: the new table has no room for all of them. The swap stands, and it is said once.
func TestCountersThatHaveNoRoom(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	var old *ebpf.Map
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in), prog.WithObserver(func(e prog.Event) {
		if old == nil || e.Step != prog.StepRecord || !strings.HasPrefix(e.Detail, "swap to") {
			return
		}
		for key := range uint32(1024) {
			_ = old.Delete(key)
		}
		fill(t, old, 5000, 1024, uint64(7))
	}))
	sync1(t, s, release(progs.One, "on_tcx"))
	flows := mapOf(t, s, "flows")
	fill(t, flows, 0, 1000, uint64(3))
	old = flows
	r := wide()
	res, err := s.Sync(t.Context(), r)
	if !errors.Is(err, prog.ErrMap) || !strings.Contains(err.Error(), "flows is full: what 1000 keys counted last is lost") {
		t.Errorf("got %v", err)
	}
	if res.Phase != prog.PhaseDraining || !res.Changed {
		t.Errorf("got %+v", res)
	}
	if res := sync1(t, s, r); !res.Plan.Empty() || res.Phase != prog.PhaseDraining {
		t.Errorf("again: %+v", res)
	}
	if left := leftovers(t, root); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	w.send(5, 1)
	if n := packets(t, s, "flows", 1); n != 8 {
		t.Errorf("%d packets of a flow that had its place, want 8", n)
	}
}

// The passes of a reconciler in the drain window take nothing that a rollback needs.
func TestTheWayBackOutlivesTheSyncsInBetween(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in))
	sync1(t, s, release(progs.One, "on_tcx"))
	w.send(10, 5)
	sync1(t, s, wide())
	for range 3 {
		w.send(10, 5)
		if res := sync1(t, s, wide()); res.Phase != prog.PhaseDraining {
			t.Errorf("%+v", res)
		}
		if _, err := s.Recover(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Rollback(t.Context(), "asked"); err != nil {
		t.Fatal(err)
	}
	w.send(10, 5)
	check(t, s, 0, "not", 50)
}

// An LRU map forgets keys by itself, and what has been added must not be forgotten with them.
func TestCountersOfAnLRUAreNotAddedTwice(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in))
	sync1(t, s, release(progs.Slow, "on_tcx"))
	recent := mapOf(t, s, "recent")
	fill(t, recent, 0, 300, uint64(1))
	r := release(progs.Other, "on_tcx")
	r.Maps = map[string]prog.Keep{"flows": prog.Fresh(), "percpu": prog.Fresh(), "recent": prog.Counters()}
	sync1(t, s, r)
	now, key, value, n := mapOf(t, s, "recent"), uint32(0), uint64(0), 0
	for it := now.Iterate(); it.Next(&key, &value); n++ {
		if value != 1 {
			t.Errorf("key %d has %d, want 1", key, value)
		}
	}
	if n < 30 {
		t.Errorf("%d keys were taken over", n)
	}
}

// Nobody who has the function of a merge is there any more: the way on is said, and the way back is open.
func TestAMergeThatWasCutOffCanBeRolledBack(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	j := job{Act: "merge", Root: root, Netns: w.in}
	s, err := j.slot()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Remove() })
	for died := ""; !strings.HasPrefix(died, "merge"); j.Step++ {
		_ = s.Remove()
		sync1(t, s, release(progs.One, "on_tcx"))
		w.send(10, 1)
		if died = j.run(t); died == "" {
			t.Fatal("it never merged")
		}
	}
	if _, err := s.Sync(t.Context(), release(progs.Two, "on_tcx")); !errors.Is(err, prog.ErrMap) || !strings.Contains(err.Error(), "Rollback") {
		t.Errorf("another release: %v", err)
	}
	if res, err := s.Rollback(t.Context(), "asked"); err != nil || res.Phase != prog.PhaseRolledBack {
		t.Fatalf("%+v, %v", res, err)
	}
	if n := packets(t, s, "flows", 1); n != 10 {
		t.Errorf("%d packets, want 10", n)
	}
	sync1(t, s, release(progs.Two, "on_tcx"))
}

// What Merged may lose, and no more: what the new program writes to a key of the old one's between the two calls of one
// merge. Other keys are exact.
func TestMergedLosesNoMoreThanItSays(t *testing.T) {
	root, w := bpffs(t), newNetwork(t)
	s := slot(t, root, prog.TCX("in", prog.Ingress).In(w.in))
	sync1(t, s, release(progs.One, "on_tcx"))
	w.send(10, 1)
	w.send(10, 2)
	old, second := mapOf(t, s, "flows"), false
	r := release(progs.Wide, "on_tcx")
	num := func(b []byte) uint64 {
		if len(b) < 8 {
			return 0
		}
		return uint64(b[0]) | uint64(b[1])<<8
	}
	r.Maps = map[string]prog.Keep{
		"percpu": prog.Fresh(),
		"flows": prog.Merged(func(key, before, after, now []byte) []byte {
			if now == nil { // the first pass
				if key[0] == 1 && !second {
					second = true
					w.send(3, 1) // the old program is still in force: flow 1 changes after it was read
				}
				return append(make([]byte, 8), after...)
			}
			w.send(5, 1) // the new program writes to this key, and loses it
			w.send(5, 2) // and to another one
			out := make([]byte, 16)
			out[8] = byte(num(now[8:]) + num(after) - num(before))
			return out
		}),
	}
	sync1(t, s, r)
	if err := old.Lookup(uint32(1), new(uint64)); err != nil {
		t.Fatal(err)
	}
	if n := packets(t, s, "flows", 2); n != 15 {
		t.Errorf("a flow that the old program left alone has %d packets, want 15", n)
	}
	if n := packets(t, s, "flows", 1); n != 13 {
		t.Errorf("a flow that changed has %d packets, want 13 and the 5 lost", n)
	}
}
