// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"github.com/ashlar-go/ashlar/bpfmap"
	"github.com/ashlar-go/ashlar/bpfmap/bpfmaptest"
)

// memory is a world of its own that counts calls.
func memory() (world, *bpfmaptest.Faults) {
	faults := bpfmaptest.Inject(bpfmaptest.New())
	return world{sys: faults, dir: "/sys/fs/bpf/test"}, faults
}

// TestSyncConverges runs random passes with random interference, on every type, and looks at the map after each.
func TestSyncConverges(t *testing.T) {
	t.Parallel()
	worlds(t, func(t *testing.T, w world) {
		for _, typ := range []ebpf.MapType{ebpf.Hash, ebpf.Array} {
			for _, audit := range []time.Duration{0, time.Hour} {
				r := rand.New(rand.NewPCG(7, uint64(audit)))
				m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "random", Type: typ, MaxEntries: 64}, bpfmap.WithAudit(audit))
				desired := map[uint32]uint32{}
				for pass := range 60 {
					for range r.IntN(12) {
						if k := r.Uint32N(48); r.IntN(3) == 0 {
							delete(desired, k)
						} else {
							desired[k] = 1 + r.Uint32N(3)
						}
					}
					for range r.IntN(6) { // others, or we ourselves past the plan
						var err error
						switch k := r.Uint32N(48); r.IntN(4) {
						case 0:
							err = m.Put(k, r.Uint32N(5))
						case 1:
							_, err = m.Delete(k)
						case 2:
							_, err = m.PutAll(sorted(numbers(int(k), 3)))
						default:
							_, err = m.DeleteAll(slices.Values([]uint32{k, k + 1, k + 1}))
						}
						ok(t, err)
					}
					res, err := m.Sync(t.Context(), sorted(desired))
					if err != nil && !errors.Is(err, bpfmap.ErrNotConverging) { // we do interfere in every pass
						t.Fatal(err)
					}
					got := all[uint32, uint32](t, m)
					maps.DeleteFunc(got, func(_, v uint32) bool { return typ == ebpf.Array && v == 0 })
					if diff := cmp.Diff(desired, got); diff != "" {
						t.Fatalf("%s, audit %v, pass %d (%+v):\n%s", typ, audit, pass, res, diff)
					}
					if again, err := m.Sync(t.Context(), sorted(desired)); again.Written+again.Deleted != 0 {
						t.Fatalf("%s, audit %v, pass %d: in sync, and %+v was written: %v", typ, audit, pass, again.Report, err)
					}
				}
			}
		}
	})
}

func TestPlanReasons(t *testing.T) {
	t.Parallel()
	w, _ := memory()
	m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "reasons", MaxEntries: 16})
	why := func(desired map[uint32]uint32) map[uint32]bpfmap.Reason {
		t.Helper()
		p, err := m.Plan(t.Context(), sorted(desired))
		ok(t, err)
		out := map[uint32]bpfmap.Reason{}
		for _, s := range slices.Concat(p.Add, p.Change, p.Delete) {
			out[s.Key] = s.Why
		}
		return out
	}
	ok(t, m.Put(1, 1))
	ok(t, m.Put(2, 2))
	first := map[uint32]bpfmap.Reason{1: bpfmap.Unknown, 2: bpfmap.Differs, 3: bpfmap.Missing}
	want := map[uint32]uint32{2: 20, 3: 30}
	same(t, "before the first pass", why(want), first)
	same(t, "a plan that was not applied changes nothing", why(want), first)
	_, err := m.Sync(t.Context(), sorted(want))
	ok(t, err)
	same(t, "in sync", why(want), map[uint32]bpfmap.Reason{})
	ok(t, m.Put(2, 21))
	_, err = m.Delete(3)
	ok(t, err)
	ok(t, m.Put(4, 4))
	same(t, "drift", why(want), map[uint32]bpfmap.Reason{2: bpfmap.Drifted, 3: bpfmap.Lost, 4: bpfmap.Unknown})
	res, err := m.Sync(t.Context(), sorted(want))
	ok(t, err)
	same(t, "drift in the result", res.Drift, 3)
	same(t, "other wishes", why(map[uint32]uint32{3: 31, 5: 50}), map[uint32]bpfmap.Reason{2: bpfmap.Stale, 3: bpfmap.Changed, 5: bpfmap.Missing})
}

func TestPlanOrder(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason      string
		old, wanted map[uint32]uint32
		gap, over   int
		calls       string
		left        int
	}{
		"fits at once": {
			reason: "nothing is missing in between", old: numbers(0, 4), wanted: numbers(2, 4),
			calls: "[LookupBatch UpdateBatch DeleteBatch]", left: 4,
		},
		"fits one after the other": {
			reason: "deletions make room first, and the plan says how many keys are missing", old: numbers(0, 8), wanted: numbers(2, 8),
			gap: 2, calls: "[LookupBatch DeleteBatch UpdateBatch]", left: 8,
		},
		"never fits": {
			reason: "as many as there is room for, and each of the others is reported", old: numbers(0, 4), wanted: numbers(100, 11),
			gap: 11, over: 3, calls: "[LookupBatch DeleteBatch UpdateBatch UpdateBatch]", left: 8,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, faults := memory()
			m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "order", MaxEntries: 8})
			_, err := m.PutAll(sorted(test.old))
			ok(t, err)
			faults.Reset()
			p, err := m.Plan(t.Context(), sorted(test.wanted))
			ok(t, err)
			same(t, test.reason, []int{p.Gap, p.Overflow}, []int{test.gap, test.over})
			r, err := m.Apply(t.Context(), p)
			if (test.over > 0) != errors.Is(err, bpfmap.ErrFull) {
				t.Errorf("applied: %v", err)
			}
			same(t, "failures", len(r.Failures), test.over)
			calls := fmt.Sprint(faults.Calls())
			same(t, "calls", calls, test.calls)
			same(t, "left", len(all[uint32, uint32](t, m)), test.left)
		})
	}
}

// TestIgnore lets a program count in a field while limits are changed around it.
func TestIgnore(t *testing.T) {
	t.Parallel()
	worlds(t, func(t *testing.T, w world) {
		faults := bpfmaptest.Inject(w.sys)
		m := open[uint32, limit](t, world{sys: faults}, bpfmap.Spec{Name: "ignore", MaxEntries: 8}, bpfmap.WithIgnore("Tokens"))
		want := map[uint32]limit{1: {Rate: 10, Tokens: 1000}}
		_, err := m.Sync(t.Context(), sorted(want))
		ok(t, err)
		same(t, "a new entry starts as given", all[uint32, limit](t, m), want)
		ok(t, m.Put(1, limit{Rate: 10, Tokens: 7})) // the program
		res, err := m.Sync(t.Context(), sorted(want))
		ok(t, err)
		same(t, "not compared", res.Written, 0)
		p, err := m.Plan(t.Context(), sorted(map[uint32]limit{1: {Rate: 20, Tokens: 1000}}))
		ok(t, err)
		same(t, "planned", p.Change, []bpfmap.Step[uint32, limit]{{Key: 1, Old: limit{Rate: 10, Tokens: 7}, New: limit{Rate: 20, Tokens: 7}, Why: bpfmap.Changed}})
		ok(t, m.Put(1, limit{Rate: 10, Tokens: 5})) // the program, between plan and write
		_, err = m.Apply(t.Context(), p)
		ok(t, err)
		same(t, "kept", all[uint32, limit](t, m), map[uint32]limit{1: {Rate: 20, Tokens: 5}})
	})
	_, err := bpfmap.Open[uint32, limit](limits, bpfmap.WithSystem(bpfmaptest.New()), bpfmap.WithIgnore("Token"))
	same(t, "unknown field", fmt.Sprint(err), `open limits: WithIgnore: bpfmap_test.limit has no field "Token"`)
}

func TestOwned(t *testing.T) {
	t.Parallel()
	w, _ := memory()
	m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "shared", MaxEntries: 16}, bpfmap.WithOwned(func(k uint32) bool { return k < 10 }))
	_, err := m.PutAll(sorted(numbers(8, 4)))
	ok(t, err)
	res, err := m.Sync(t.Context(), sorted(numbers(0, 2)))
	ok(t, err)
	same(t, "counts", []int{res.Added, res.Deleted, res.Foreign, res.Used}, []int{2, 2, 2, 4})
	want := numbers(0, 2)
	maps.Copy(want, numbers(10, 2))
	same(t, "left", all[uint32, uint32](t, m), want)
	_, err = m.Sync(t.Context(), sorted(numbers(9, 2)))
	same(t, "wanting a foreign key", fmt.Sprint(err), "sync shared: 10 is wanted, but WithOwned says that it is not ours")
}

func TestBudget(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason  string
		budget  bpfmap.Budget
		wanted  int
		refused bool
	}{
		"no cap":         {"the default deletes at once", bpfmap.Budget{}, 0, false},
		"max":            {"one more than Max", bpfmap.Budget{Max: 9}, 0, true},
		"at max":         {"Max itself is permitted", bpfmap.Budget{Max: 10}, 0, false},
		"percent":        {"more than the share", bpfmap.Budget{Percent: 40}, 5, true},
		"at percent":     {"the share itself is permitted", bpfmap.Budget{Percent: 50}, 5, false},
		"free":           {"free ones do not count against the share", bpfmap.Budget{Percent: 10, Free: 4}, 5, false},
		"beyond percent": {"those beyond do", bpfmap.Budget{Percent: 10, Free: 3}, 5, true},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := memory()
			m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "budget", MaxEntries: 64}, bpfmap.WithMaxDelete(test.budget))
			_, err := m.PutAll(sorted(numbers(0, 10)))
			ok(t, err)
			want := numbers(0, test.wanted)
			want[50] = 1
			res, err := m.Sync(t.Context(), sorted(want))
			if errors.Is(err, bpfmap.ErrBudget) != test.refused {
				t.Errorf("%s: %v", test.reason, err)
			}
			if test.refused {
				same(t, "nothing is deleted, the rest is written", []int{res.Deleted, res.Added, res.Used}, []int{0, 1, 11})
			}
		})
	}
	_, err := bpfmap.Open[uint32, uint32](limits, bpfmap.WithSystem(bpfmaptest.New()), bpfmap.WithMaxDelete(bpfmap.Budget{Percent: 101}))
	if err == nil {
		t.Error("101 percent is a budget")
	}
}

func TestArrays(t *testing.T) {
	t.Parallel()
	worlds(t, func(t *testing.T, w world) {
		m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "slots", Type: ebpf.Array, MaxEntries: 4})
		_, err := m.PutAll(sorted(map[uint32]uint32{0: 5, 1: 6}))
		ok(t, err)
		res, err := m.Sync(t.Context(), sorted(map[uint32]uint32{1: 7, 2: 8}))
		ok(t, err)
		same(t, "counts", []int{res.Changed, res.Deleted, res.Added, res.Used}, []int{2, 1, 0, 4})
		same(t, "slots", all[uint32, uint32](t, m), map[uint32]uint32{0: 0, 1: 7, 2: 8, 3: 0})
		was, err := m.Delete(2)
		ok(t, err)
		r, err := m.DeleteAll(slices.Values([]uint32{1}))
		ok(t, err)
		same(t, "deleted", []any{was, r.Deleted}, []any{true, 1})
		same(t, "zeroed", all[uint32, uint32](t, m), map[uint32]uint32{0: 0, 1: 0, 2: 0, 3: 0})
		if _, err := m.Sync(t.Context(), sorted(map[uint32]uint32{4: 1})); !errors.Is(err, bpfmap.ErrRange) {
			t.Errorf("slot 4 of 4: %v", err)
		}
		cpus, err := bpfmap.OpenPerCPU[uint32, uint64](bpfmap.Spec{Name: "counts", Type: ebpf.PerCPUArray, MaxEntries: 2}, bpfmap.WithSystem(w.sys))
		ok(t, err)
		defer cpus.Close()
		for i := range uint32(2) {
			ok(t, cpus.Put(i, slices.Repeat([]uint64{3}, cpus.CPUs())))
		}
		_, err = cpus.Sync(t.Context(), slices.Values([]uint32{1}))
		ok(t, err)
		zeroed, err := bpfmap.Sum(cpus, 0)
		ok(t, err)
		kept, err := bpfmap.Sum(cpus, 1)
		ok(t, err)
		same(t, "counters", []uint64{zeroed, kept}, []uint64{0, 3 * uint64(cpus.CPUs())})
	})
}

func TestDesired(t *testing.T) {
	t.Parallel()
	w, _ := memory()
	m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "desired", MaxEntries: 8})
	twice := entries(bpfmap.Entry[uint32, uint32]{Key: 1, Value: 1}, bpfmap.Entry[uint32, uint32]{Key: 1, Value: 1})
	_, err := m.Sync(t.Context(), twice)
	ok(t, err)
	_, err = m.Sync(t.Context(), entries(bpfmap.Entry[uint32, uint32]{Key: 1, Value: 1}, bpfmap.Entry[uint32, uint32]{Key: 1, Value: 2}))
	same(t, "twice with different values", fmt.Sprint(err), "sync desired: 1 is wanted twice, with different values")
	other := open[uint32, uint32](t, w, bpfmap.Spec{Name: "other", MaxEntries: 8})
	p, err := m.Plan(t.Context(), sorted(numbers(0, 3)))
	ok(t, err)
	if _, err := other.Apply(t.Context(), p); err == nil {
		t.Error("applied the plan of another map")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := m.Apply(ctx, p)
	if !errors.Is(err, context.Canceled) || r.Written != 0 || len(r.Failures) != 3 {
		t.Errorf("applied under an ended context: %+v, %v", r, err)
	}
	if _, err := m.Sync(ctx, sorted(numbers(0, 3))); !errors.Is(err, context.Canceled) {
		t.Errorf("read under an ended context: %v", err)
	}
}

func TestAuditJitter(t *testing.T) {
	t.Parallel()
	w, faults := memory()
	now := time.Unix(1000, 0)
	waits := map[time.Duration]bool{}
	m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "audit", MaxEntries: 8}, bpfmap.WithAudit(100*time.Second), bpfmap.WithClock(func() time.Time { return now }))
	for range 20 {
		res, err := m.Sync(t.Context(), sorted(numbers(0, 3)))
		ok(t, err)
		if !res.Audited || res.RequeueAfter < 80*time.Second || res.RequeueAfter > 120*time.Second {
			t.Fatalf("audited %t, again after %v", res.Audited, res.RequeueAfter)
		}
		waits[res.RequeueAfter] = true
		now = now.Add(res.RequeueAfter - 1)
		res, err = m.Sync(t.Context(), sorted(numbers(0, 3)))
		ok(t, err)
		if res.Audited || res.RequeueAfter != 1 {
			t.Fatalf("audited %t early, again after %v", res.Audited, res.RequeueAfter)
		}
		now = now.Add(1)
	}
	if len(waits) < 15 {
		t.Errorf("%d different waits in 20: no jitter", len(waits))
	}
	faults.Reset()
	faults.Fail(1, syscall.EFAULT)
	if err := m.Put(1, 1); err == nil {
		t.Fatal("the fault did not show")
	}
	res, err := m.Sync(t.Context(), sorted(numbers(0, 3)))
	ok(t, err)
	same(t, "audited after an error", res.Audited, true)
}

func TestNotConverging(t *testing.T) {
	t.Parallel()
	w, _ := memory()
	m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "fight", MaxEntries: 8})
	var told []bool
	for range 6 {
		_, err := m.Sync(t.Context(), sorted(numbers(1, 3)))
		told = append(told, errors.Is(err, bpfmap.ErrNotConverging))
		ok(t, m.Put(1, 666)) // somebody else, every time
	}
	_, err := m.Sync(t.Context(), sorted(numbers(1, 3)))
	told = append(told, err != nil)
	_, err = m.Sync(t.Context(), sorted(numbers(1, 3)))
	told = append(told, err != nil)
	same(t, "told", told, []bool{false, false, false, true, true, true, true, false})
}

// TestLRUWithRoom: what is missing from an LRU that has room was deleted, not evicted, and comes back in every pass.
func TestLRUWithRoom(t *testing.T) {
	t.Parallel()
	worlds(t, func(t *testing.T, w world) {
		for name, flags := range map[string]uint32{"one list": 0, "a list per CPU": 1 << 1} {
			m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "lru", Type: ebpf.LRUHash, MaxEntries: 10_000, Flags: flags})
			for pass := range 6 {
				res, err := m.Sync(t.Context(), sorted(numbers(1, 100)))
				if errors.Is(err, bpfmap.ErrNotConverging) != (pass > 2) {
					t.Errorf("%s, pass %d: %v", name, pass, err)
				}
				if pass > 0 && res.Added != 1 || res.RequeueAfter != 0 {
					t.Errorf("%s, pass %d writes %d and waits %v", name, pass, res.Added, res.RequeueAfter)
				}
				_, err = m.Delete(1) // somebody else, every time
				ok(t, err)
			}
		}
	})
}

func TestObserver(t *testing.T) {
	t.Parallel()
	w, _ := memory()
	var events []bpfmap.Event
	m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "seen", MaxEntries: 4}, bpfmap.WithObserver(func(e bpfmap.Event) { events = append(events, e) }))
	for range 2 {
		_, err := m.Sync(t.Context(), sorted(numbers(0, 2)))
		ok(t, err)
	}
	_, err := m.Sync(t.Context(), sorted(numbers(0, 6)))
	if len(events) != 2 || events[0].Result.Added != 2 || !errors.Is(events[1].Err, bpfmap.ErrFull) || err == nil {
		t.Fatalf("observed %+v", events)
	}
	same(t, "log", events[0].LogValue().String(), "[map=seen added=2 changed=0 deleted=0 failed=0 drift=0 pressure=0.5]")
}

func TestPlanString(t *testing.T) {
	t.Parallel()
	w, _ := memory()
	m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "long", MaxEntries: 100}, bpfmap.WithMaxDelete(bpfmap.Budget{Max: 1}))
	_, err := m.PutAll(sorted(numbers(50, 2)))
	ok(t, err)
	p, err := m.Plan(t.Context(), sorted(numbers(0, 23)))
	ok(t, err)
	text := p.String()
	for _, want := range []string{
		"long: 23 to add, 0 to change, 2 to delete, 0 as wanted (2 of 100 used)\n", "too many deletions: 2 of 2, more than Budget.Max 1; nothing was deleted\n",
		"+ 19: 190 (missing)\n  … 3 more\n", "- 50: 500 (unknown)\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the plan does not say %q:\n%s", want, text)
		}
	}
	same(t, "nothing to do", bpfmap.Plan[uint32, uint32]{}.Empty(), true)
}

// TestFaults makes every call of a pass fail in turn: the report is true, and the next pass converges.
func TestFaults(t *testing.T) {
	t.Parallel()
	desired := numbers(5, 10)
	for n := 1; ; n++ {
		w, faults := memory()
		m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "faults", MaxEntries: 64})
		_, err := m.PutAll(sorted(numbers(0, 10)))
		ok(t, err)
		ok(t, m.Put(7, 1))
		faults.Reset()
		faults.Fail(n, syscall.EFAULT)
		res, err := m.Sync(t.Context(), sorted(desired))
		if len(faults.Calls()) < n {
			if n < 4 {
				t.Errorf("a pass makes %d calls only", n-1)
			}
			ok(t, err)
			break
		}
		if !errors.Is(err, syscall.EFAULT) {
			t.Fatalf("call %d failed, the pass says %v", n, err)
		}
		before := numbers(0, 10)
		before[7] = 1
		if got := all[uint32, uint32](t, m); len(got) != len(before)+res.Added-res.Deleted {
			t.Errorf("call %d failed: %d entries are there, the report says %+v", n, len(got), res)
		}
		_, err = m.Sync(t.Context(), sorted(desired))
		ok(t, err)
		same(t, fmt.Sprintf("after call %d had failed", n), all[uint32, uint32](t, m), desired)
	}
}

// TestGenerations goes through many times more keys than the map has room for: what is remembered about the dead goes.
func TestGenerations(t *testing.T) {
	t.Parallel()
	for _, audit := range []time.Duration{0, time.Hour} {
		w, _ := memory()
		m := open[uint32, uint32](t, w, bpfmap.Spec{Name: "generations", MaxEntries: 4096}, bpfmap.WithAudit(audit))
		for gen := range 12 {
			want := numbers(1500*gen, 2000) // a quarter stays
			res, err := m.Sync(t.Context(), sorted(want))
			ok(t, err)
			added := 1500
			if gen == 0 {
				added = 2000
			}
			same(t, fmt.Sprintf("audit %v, generation %d", audit, gen), []int{res.Added, res.Changed, res.Used}, []int{added, 0, 2000})
			if diff := cmp.Diff(want, all[uint32, uint32](t, m)); diff != "" {
				t.Fatalf("audit %v, generation %d:\n%s", audit, gen, diff)
			}
		}
	}
}
