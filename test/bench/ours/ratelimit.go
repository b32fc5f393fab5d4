// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/ashlar-go/ashlar/ratelimit"
	"github.com/ashlar-go/ashlar/test/bench/load"
	"github.com/ashlar-go/ashlar/test/bench/side"
)

type (
	limitKey = types.NamespacedName
	limiter  = workqueue.TypedRateLimiter[limitKey]
)

var ratelimitBenches = []side.Bench{
	{Name: "ratelimit.cycle1k", Prepare: func() (side.Work, error) { return cycle(ourLimiter, 1) }},
	{Name: "ratelimit.cycle1k_floor", Prepare: func() (side.Work, error) { return cycleFloor(), nil }},
	{Name: "workqueue.cycle1k", Prepare: func() (side.Work, error) { return cycle(itemExponential, 1) }},
	{Name: "ratelimit.cycle1k_8", Prepare: func() (side.Work, error) { return cycle(ourLimiter, 8) }},
	{Name: "workqueue.cycle1k_8", Prepare: func() (side.Work, error) { return cycle(itemExponential, 8) }},
	{Name: "ratelimit.backoff_bucket", Prepare: func() (side.Work, error) { return cycle(ourLimiterAndBucket, 1) }},
	{Name: "workqueue.default", Prepare: func() (side.Work, error) { return cycle(defaultLimiter, 1) }},
	{Name: "ratelimit.when1M", Prepare: func() (side.Work, error) { return whenMany(ourLimiter) }},
	{Name: "workqueue.when1M", Prepare: func() (side.Work, error) { return whenMany(itemExponential) }},
	{Name: "ratelimit.forget_unknown", Prepare: func() (side.Work, error) { return forgetUnknown(ourLimiter, 0) }},
	{Name: "workqueue.forget_unknown", Prepare: func() (side.Work, error) { return forgetUnknown(itemExponential, 0) }},
	{Name: "ratelimit.memory100k", Prepare: func() (side.Work, error) { return limiterMemory(100_000) }},
	{Name: "ratelimit.memory300k", Prepare: func() (side.Work, error) { return limiterMemory(300_000) }},
	{Name: "ratelimit.memory1M", Prepare: func() (side.Work, error) { return limiterMemory(load.ManyLimits) }},
}

// ourLimiter has everything on: curve, deadline, class, time to live and jitter. A base of a nanosecond makes every When
// count, as it does on the other side, where calls before the deadline are counted as well.
func ourLimiter() (limiter, error) {
	return ratelimit.New[limitKey](ratelimit.Exp(time.Nanosecond, 1000*time.Second))
}

func itemExponential() (limiter, error) {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[limitKey](5*time.Millisecond, 1000*time.Second), nil
}

func defaultLimiter() (limiter, error) {
	return workqueue.DefaultTypedControllerRateLimiter[limitKey](), nil
}

// gated asks a gate after each failure, as a worker does when the key comes again.
type gated struct {
	limiter
	gate ratelimit.Gate[limitKey]
}

func (g gated) When(k limitKey) time.Duration {
	wait := g.limiter.When(k)
	more, _ := g.gate.Admit(k)
	return max(wait, more)
}

func ourLimiterAndBucket() (limiter, error) {
	l, err := ourLimiter()
	if err != nil {
		return nil, err
	}
	g, err := ratelimit.Bucket[limitKey](10, 100)
	return gated{l, g}, err
}

func limitKeys(n int) []limitKey {
	keys := make([]limitKey, n)
	for i := range keys {
		keys[i].Namespace, keys[i].Name = load.LimitKey(i)
	}
	return keys
}

// cycle lets all keys fail [load.Attempts] times, asks for the count and forgets them. The keys are divided among the
// goroutines.
func cycle(build func() (limiter, error), goroutines int) (side.Work, error) {
	l, err := build()
	if err != nil {
		return side.Work{}, err
	}
	var visits [load.Attempts + 2][]limitKey
	for i := range visits {
		visits[i] = limitKeys(load.Limits)
	}
	part := func(from, to int) error {
		for _, keys := range visits[:load.Attempts] {
			for _, k := range keys[from:to] {
				l.When(k)
			}
		}
		counted := 0
		for _, k := range visits[load.Attempts][from:to] {
			counted += l.NumRequeues(k)
		}
		for _, k := range visits[load.Attempts+1][from:to] {
			l.Forget(k)
		}
		if want := (to - from) * load.Attempts; counted != want {
			return fmt.Errorf("%d failures are counted, want %d", counted, want)
		}
		return nil
	}
	if goroutines == 1 {
		return side.Work{Do: func() error { return part(0, load.Limits) }}, nil
	}
	errs := make([]error, goroutines)
	each := load.Limits / goroutines
	return side.Work{Do: func() error {
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() { errs[g] = part(g*each, (g+1)*each) })
		}
		wg.Wait()
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		return nil
	}}, nil
}

// cycleFloor is what no limiter with deadlines can do without in a cycle: a hash of the key and a lock in each call, and a
// look at the clock in each When. It remembers nothing.
func cycleFloor() side.Work {
	var visits [load.Attempts + 2][]limitKey
	for i := range visits {
		visits[i] = limitKeys(load.Limits)
	}
	var (
		mu    sync.Mutex
		seed  = maphash.MakeSeed()
		start = time.Now()
		sum   uint64
	)
	return side.Work{Do: func() error {
		for i, keys := range visits {
			for _, k := range keys {
				h := maphash.Comparable(seed, k)
				mu.Lock()
				if sum += h; i < load.Attempts {
					sum += uint64(time.Since(start))
				}
				mu.Unlock()
			}
		}
		if sum == 0 {
			return errors.New("nothing was done")
		}
		return nil
	}}
}

// whenMany lets keys fail that have failed before, in an order that no cache knows.
func whenMany(build func() (limiter, error)) (side.Work, error) {
	l, err := build()
	if err != nil {
		return side.Work{}, err
	}
	keys := limitKeys(load.ManyLimits)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	for _, k := range keys {
		l.When(k)
	}
	next := 0
	return side.Work{Do: func() error {
		k := keys[next%len(keys)]
		next++
		if wait := l.When(k); wait <= 0 {
			return fmt.Errorf("the wait of %v is %v", k, wait)
		}
		return nil
	}}, nil
}

// forgetUnknown is what every success of a key that has never failed costs, while others fail.
func forgetUnknown(build func() (limiter, error), failing int) (side.Work, error) {
	l, err := build()
	if err != nil {
		return side.Work{}, err
	}
	keys := limitKeys(2 * load.Limits)
	for _, k := range keys[:failing] {
		l.When(k)
	}
	return side.Work{Do: func() error {
		for _, k := range keys[load.Limits:] {
			l.Forget(k)
		}
		if failing > 0 && l.NumRequeues(keys[0]) != 1 {
			return fmt.Errorf("%v was forgotten", keys[0])
		}
		return nil
	}}, nil
}

// limiterMemory measures the heap of a Backoff with n keys that have failed. The keys themselves are not its own.
func limiterMemory(n int) (side.Work, error) {
	keys := limitKeys(n)
	sums := map[string]float64{}
	heap := func() float64 {
		for range 3 {
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	do := func() error {
		measure := func(name string, opts []ratelimit.Option, each ...func(*ratelimit.Backoff[limitKey], limitKey)) error {
			before := heap()
			b, err := ratelimit.New[limitKey](ratelimit.Exp(time.Hour, time.Hour), opts...)
			if err != nil {
				return err
			}
			for _, do := range each {
				for _, k := range keys {
					do(b, k)
				}
			}
			if b.Len() != n {
				return fmt.Errorf("%d keys are remembered, want %d", b.Len(), n)
			}
			peak := heap() - before
			sums[name] += peak / float64(n)
			for _, k := range keys {
				b.Forget(k)
			}
			sums[name+"_left"] += 100 * (heap() - before) / peak
			runtime.KeepAlive(b)
			return nil
		}
		fail := func(b *ratelimit.Backoff[limitKey], k limitKey) { b.Observe(k, fmt.Errorf("boom")) }
		early := func(b *ratelimit.Backoff[limitKey], k limitKey) { b.Admit(k) }
		generation := func(b *ratelimit.Backoff[limitKey], k limitKey) { b.Reset(k, 1) }
		for _, err := range []error{
			measure("bytes", nil, fail),
			measure("early", nil, fail, early),
			measure("generation", nil, fail, generation),
			measure("age", []ratelimit.Option{ratelimit.WithGiveUpAfter(0, time.Hour)}, fail),
		} {
			if err != nil {
				return err
			}
		}
		return nil
	}
	return side.Work{Do: do, Counts: func() map[string]int64 {
		// Counts are whole, so these are hundredths.
		return map[string]int64{
			"centibytes":            int64(100 * sums["bytes"]),
			"centibytes_early":      int64(100 * (sums["early"] - sums["bytes"])),
			"centibytes_generation": int64(100 * (sums["generation"] - sums["bytes"])),
			"centibytes_age":        int64(100 * (sums["age"] - sums["bytes"])),
			"centipercent_left":     int64(100 * sums["bytes_left"]),
		}
	}}, nil
}
