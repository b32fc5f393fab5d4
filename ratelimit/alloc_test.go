// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package ratelimit_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/ratelimit"
	"github.com/ashlar-go/ashlar/ratelimit/ratelimittest"
)

// object is a key as reconcilers have it.
type object struct{ namespace, name string }

func objects(n int) []object {
	out := make([]object, n)
	for i := range out {
		out[i] = object{fmt.Sprintf("namespace-%d", i%100), fmt.Sprintf("object-%d", i)}
	}
	return out
}

// TestNothingAllocates: what the package documentation promises.
func TestNothingAllocates(t *testing.T) {
	clock := ratelimittest.NewClock()
	b := mustNew[object](t, ratelimit.Exp(time.Nanosecond, time.Minute), ratelimit.WithClock(clock.Now))
	keys := objects(1000)
	boom := errors.New("boom")
	var throttled error = &ratelimit.Error{Class: ratelimit.Throttled, After: time.Second, Err: boom}
	bucket, err := ratelimit.Bucket[object](1, 1, ratelimit.WithClock(clock.Now))
	if err != nil {
		t.Fatal(err)
	}
	fair, err := ratelimit.Fair(func(o object) string { return o.namespace }, 1, 1, ratelimit.WithClock(clock.Now))
	if err != nil {
		t.Fatal(err)
	}
	remotes, err := ratelimit.NewRemotes[string](1, 1, ratelimit.WithClock(clock.Now))
	if err != nil {
		t.Fatal(err)
	}
	remote := ratelimit.PerRemote(remotes, func(o object) string { return o.namespace })
	for name, do := range map[string]func(object){
		"cycle": func(k object) {
			for range 8 {
				b.When(k)
			}
			b.NumRequeues(k)
			b.Forget(k)
		},
		"observed": func(k object) {
			b.Observe(k, boom)
			b.Observe(k, throttled)
			b.Reset(k, 1)
			b.Admit(k)
			b.Observed().When(k)
			b.Remaining(k)
			b.Observe(k, nil)
		},
		"unknown": func(k object) { b.Forget(k); b.Admit(k) },
		"bucket":  func(k object) { bucket.Admit(k) },
		"fair":    func(k object) { fair.Admit(k) },
		"remotes": func(k object) { remote.Admit(k); remotes.Report(k.namespace, throttled) },
	} {
		for _, k := range keys {
			do(k) // tables grow
		}
		i := 0
		if n := testing.AllocsPerRun(5000, func() {
			do(keys[i%len(keys)])
			if i++; i%10 == 0 {
				clock.Sleep(time.Millisecond)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
}

func heap() float64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// TestBytesPerKey measures what the package documentation says about memory, at six sizes, because a table is fuller at
// some than at others.
func TestBytesPerKey(t *testing.T) {
	keys := objects(1_000_000)
	worst := 0.0
	for n := 100_000; n <= len(keys); n += 180_000 {
		before := heap()
		b := mustNew[object](t, ratelimit.Exp(time.Hour, time.Hour))
		for _, k := range keys[:n] {
			b.When(k)
		}
		peak := heap() - before
		if n == 100_000 || n == 1_000_000 {
			core := peak
			for name, add := range map[string]func(object){
				"early runs": func(k object) { b.Admit(k) }, "generation": func(k object) { b.Reset(k, 1) },
			} {
				for _, k := range keys[:n] {
					add(k)
				}
				each := (heap() - before - core) / float64(n)
				core += each * float64(n)
				t.Logf("%d keys: %s add %.1f bytes a key", n, name, each)
				if each > 6.5 {
					t.Errorf("%d keys: %s add %.1f bytes a key, 6.5 are the most", n, name, each)
				}
			}
			aged := mustNew[object](t, ratelimit.Exp(time.Second, time.Hour), ratelimit.WithGiveUpAfter(0, time.Hour))
			with := heap()
			for _, k := range keys[:n] {
				aged.Observe(k, errBoom)
			}
			with = (heap() - with) / float64(n)
			t.Logf("%d keys: %.1f bytes a key, with an age for giving up %.1f", n, peak/float64(n), with)
			if with > 31.5 {
				t.Errorf("%d keys: %.1f bytes a key with an age for giving up", n, with)
			}
			runtime.KeepAlive(aged)
		}
		if per := peak / float64(n); per > worst {
			worst = per
		}
		for _, k := range keys[:n] {
			b.Forget(k)
		}
		if after := heap() - before; after > peak/100 {
			t.Errorf("%d keys: %.0f bytes, %.0f after all were forgotten", n, peak, after)
		}
		runtime.KeepAlive(b)
	}
	t.Logf("%.1f bytes a key at the worst", worst)
	if worst > 25 {
		t.Errorf("%.1f bytes a key, 25 are the most", worst)
	}
	runtime.KeepAlive(keys)
}

// TestFairMemory: tenants and keys cost what the documentation says, and nothing when they are gone.
func TestFairMemory(t *testing.T) {
	clock := ratelimittest.NewClock()
	g, err := ratelimit.Fair(func(k int) int { return k % 10_000 }, 1000, 1, ratelimit.WithClock(clock.Now))
	if err != nil {
		t.Fatal(err)
	}
	before := heap()
	for k := range 100_000 {
		g.Admit(k)
	}
	peak := heap() - before
	if most := 100_000*25. + 10_000*150; peak > most {
		t.Errorf("%.0f bytes for 100 000 keys of 10 000 tenants, %.0f are the most", peak, most)
	}
	clock.Sleep(time.Hour)
	for k := range 60_000 { // most of them never came back
		g.Admit(k % 100)
		clock.Sleep(10 * time.Millisecond)
	}
	if after := heap() - before; after > peak/20 {
		t.Errorf("%.0f bytes when nobody waits, %.0f at the peak", after, peak)
	}
	t.Logf("%.0f bytes for 100 000 keys of 10 000 tenants", peak)
	runtime.KeepAlive(g)
}

// TestFairMemoryUnderLoad: one tenant with a backlog and 9999 that come and go, for a minute; see TestFairOneNoisyTenant.
func TestFairMemoryUnderLoad(t *testing.T) {
	const tenants, backlog, rate, run = 10_000, 100_000, 1000, time.Minute
	clock := ratelimittest.NewClock()
	g, err := ratelimit.Fair(tenantOf, rate, 100, ratelimit.WithClock(clock.Now))
	if err != nil {
		t.Fatal(err)
	}
	before := heap()
	waiting := 0
	func() { // what the simulation needs is garbage afterwards
		c := ratelimittest.Crowd[item]{For: run, Sleep: clock.Sleep}
		for n := range backlog {
			c.Arrivals = append(c.Arrivals, ratelimittest.Arrival[item]{Key: item{noisy, n}})
		}
		for n := range int(run.Seconds() * rate / 2) {
			c.Arrivals = append(c.Arrivals, ratelimittest.Arrival[item]{At: time.Duration(n) * 2 * time.Millisecond, Key: item{1 + n%(tenants-1), n}})
		}
		waiting = len(ratelimittest.Simulate(g, c).Waiting)
	}()
	bytes := heap() - before
	t.Logf("%.0f bytes while %d keys wait", bytes, waiting)
	// The table was made for all of the backlog, and few of the tenants wait at the same time.
	if most := backlog*25. + tenants*150/10; waiting < backlog/2 || bytes > most {
		t.Errorf("%.0f bytes while %d keys wait, %.0f are the most", bytes, waiting, most)
	}
	runtime.KeepAlive(g)
}
