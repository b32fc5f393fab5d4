// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-go/ashlar/ratelimit"
	"github.com/ashlar-go/ashlar/ratelimit/ratelimittest"
)

// Each test is named after the public report of the defect that must not happen here.

var errBoom = errors.New("boom")

func mustNew[K comparable](t testing.TB, p ratelimit.Policy, opts ...ratelimit.Option) *ratelimit.Backoff[K] {
	t.Helper()
	b, err := ratelimit.New[K](p, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func within(t *testing.T, what string, got, low, high time.Duration) {
	t.Helper()
	if got < low || got > high {
		t.Errorf("%s = %v, want %v to %v", what, got, low, high)
	}
}

// A key that fails while events trigger it climbs to the cap within a second. https://github.com/kubernetes/kubernetes/issues/132805
func TestKubernetes132805CountsDeadlinesNotCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mustNew[string](t, ratelimit.Exp(time.Second, time.Hour))
		honoured := 0
		start := time.Now()
		for time.Since(start) < time.Minute {
			if b.Remaining("a") == 0 {
				honoured++
			}
			within(t, "When", b.When("a"), 1, time.Hour)
			time.Sleep(10 * time.Millisecond)
		}
		if n := b.NumRequeues("a"); n != honoured || n > 7 {
			t.Errorf("6000 calls in a minute count as %d failures, %d deadlines were honoured", n, honoured)
		}
	})
}

// What is reserved for a key when it is queued is lost when the queue drops the duplicate.
// https://github.com/kubernetes-sigs/controller-runtime/issues/1594, https://github.com/acorn-io/baaah/pull/61
func TestControllerRuntime1594NothingIsReservedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := ratelimit.Bucket[string](10, 1)
		if err != nil {
			t.Fatal(err)
		}
		g.Admit("first")
		for range 1000 { // one key asks again and again
			if wait, ok := g.Admit("busy"); ok || wait > 100*time.Millisecond {
				t.Fatalf("Admit = %v, %v: asking has moved the key away", wait, ok)
			}
		}
		if wait, ok := g.Admit("other"); ok || wait > 200*time.Millisecond {
			t.Errorf("Admit(other) = %v, %v: a thousand questions of another key are charged", wait, ok)
		}
	})
}

// Thousands of failures push the debt of a bucket to hours, or a clamp lets all of them go at the same instant.
// https://github.com/kubernetes/kubernetes/issues/104554, https://github.com/submariner-io/admiral/pull/898,
// https://github.com/kubeflow/spark-operator/pull/2186
func TestKubernetes104554NoDebtAndNoCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mustNew[int](t, ratelimit.Exp(5*time.Millisecond, 1000*time.Second))
		g, err := ratelimit.Bucket[int](100, 100)
		if err != nil {
			t.Fatal(err)
		}
		var c ratelimittest.Crowd[int]
		for i := range 10_000 {
			within(t, "the first wait", b.When(i), 1, 5*time.Millisecond)
			c.Arrivals = append(c.Arrivals, ratelimittest.Arrival[int]{Key: i})
		}
		r := ratelimittest.NoStarvation(t, g, c, 101*time.Second)
		if r.Asks > 2*len(c.Arrivals) {
			t.Errorf("%d questions of %d keys: they come back as a crowd", r.Asks, len(c.Arrivals))
		}
		second := map[int]int{}
		for _, a := range r.Admitted {
			second[int(a.At.Seconds())]++
		}
		for s, n := range second {
			if n > 201 || s > 0 && n > 102 {
				t.Errorf("second %d has %d runs, the rate is 100 with a burst of 100", s, n)
			}
		}
		time.Sleep(time.Hour)
		if wait, ok := g.Admit(-1); !ok {
			t.Errorf("a fresh key waits %v after an hour of peace", wait)
		}
		within(t, "the first wait of a fresh key", b.When(-1), 1, 5*time.Millisecond)
	})
}

// Keys that are never forgotten grow the memory for ever. https://github.com/kubernetes/kubernetes/pull/138743
func TestKubernetes138743Bounded(t *testing.T) {
	for name, most := range map[string]int{"one": 1, "few": 100, "many": 20_000} {
		t.Run(name, func(t *testing.T) {
			clock := ratelimittest.NewClock()
			evicted := 0
			b := mustNew[int](t, ratelimit.Exp(time.Second, time.Minute), ratelimit.WithMaxKeys(most), ratelimit.WithTTL(time.Minute),
				ratelimit.WithClock(clock.Now), ratelimit.WithObserver(func(e ratelimit.Event) {
					if e.Kind == ratelimit.EventEvicted {
						evicted++
					}
				}))
			const keys = 100_000
			for i := range keys {
				within(t, "the wait of a key when the store is full", b.When(i), 1, time.Second)
				if i%997 == 0 {
					if n := b.Len(); n > most || n < min(i+1, most)*9/10 {
						t.Fatalf("%d keys are remembered after %d, at most %d should be, and not many fewer", n, i+1, most)
					}
				}
			}
			if evicted != keys-most {
				t.Errorf("%d keys were evicted, want %d", evicted, keys-most)
			}
			clock.Sleep(time.Minute + 2*time.Second)
			if n := b.Len(); n != 0 {
				t.Errorf("%d keys are remembered after their time to live", n)
			}
		})
	}
}

// The key that is nearest to its expiry goes, not the one that waits longest.
func TestKubernetes138743EvictsWhoIsDue(t *testing.T) {
	clock := ratelimittest.NewClock()
	b := mustNew[int](t, ratelimit.Policy{Base: time.Minute, Cap: time.Minute, Jitter: ratelimit.NoJitter()},
		ratelimit.WithMaxKeys(1000), ratelimit.WithClock(clock.Now))
	for i := range 500 {
		b.When(i)
	}
	clock.Sleep(50 * time.Second)
	for i := 500; i < 1400; i++ {
		b.When(i)
	}
	old, young := 0, 0
	for i := range 1400 {
		switch {
		case b.Remaining(i) == 0:
		case i < 500:
			old++
		default:
			young++
		}
	}
	if old+young != 1000 || young < 780 {
		t.Errorf("%d of 500 keys that are nearly due and %d of 900 that are not have stayed", old, young)
	}
}

// A crowd of keys that fail once does not make it forget those that have failed for long.
func TestKubernetes138743CrowdOfNewKeys(t *testing.T) {
	clock := ratelimittest.NewClock()
	b := mustNew[int](t, ratelimit.Exp(time.Second, time.Hour), ratelimit.WithMaxKeys(2000), ratelimit.WithClock(clock.Now))
	const old = 500
	for range 12 {
		for i := range old {
			b.When(-1 - i)
		}
		clock.Sleep(time.Hour)
	}
	for i := range old {
		b.When(-1 - i)
	}
	for i := range 200_000 {
		b.When(i)
	}
	kept := 0
	for i := range old {
		if b.NumRequeues(-1-i) == 13 {
			kept++
		}
	}
	if kept < old*9/10 || b.Len() > 2000 {
		t.Errorf("%d of %d keys that have failed for long are remembered, %d keys altogether", kept, old, b.Len())
	}
}

// Memory stays after everything was forgotten, as a map never shrinks. https://github.com/golang/go/issues/20135
func TestGo20135MemoryIsReturned(t *testing.T) {
	const keys = 200_000
	heap := func() int64 {
		for range 3 {
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	b := mustNew[int](t, ratelimit.Exp(time.Second, time.Minute))
	for i := range keys {
		b.When(i)
	}
	peak := heap() - before
	for i := range keys {
		b.Forget(i)
	}
	after := heap() - before
	runtime.KeepAlive(b)
	if after*100 > peak || peak > keys*25 {
		t.Errorf("%d bytes for %d keys, %d after all of them were forgotten", peak, keys, after)
	}
}

// A success with RequeueAfter does not clear the count. https://github.com/kubernetes-sigs/controller-runtime/issues/392
func TestControllerRuntime392SuccessForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mustNew[string](t, ratelimit.Exp(time.Second, time.Hour))
		for range 8 {
			time.Sleep(b.Observe("a", errBoom).Delay)
		}
		if d := b.Observe("a", nil); d != (ratelimit.Decision{}) || b.NumRequeues("a") != 0 || b.Len() != 0 {
			t.Errorf("after a success: %+v, %d requeues, %d keys", d, b.NumRequeues("a"), b.Len())
		}
		within(t, "the next wait", b.Observe("a", errBoom).Delay, time.Second/2, time.Second)
	})
}

// "Not ready yet" climbs the error curve to 16m40s. https://github.com/kubernetes-sigs/cluster-api/issues/9775
func TestClusterAPI9775WaitingIsFlat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mustNew[string](t, ratelimit.Exp(time.Second, time.Hour))
		time.Sleep(b.Observe("a", errBoom).Delay)
		for range 50 {
			d := b.Observe("a", &ratelimit.Error{Class: ratelimit.Waiting, Err: errBoom})
			within(t, "waiting", d.Delay, 9*time.Second, 11*time.Second)
			if d.Count != 1 {
				t.Fatalf("waiting counts as a failure: %d", d.Count)
			}
			time.Sleep(d.Delay)
		}
		within(t, "the second error", b.Observe("a", errBoom).Delay, time.Second, 2*time.Second)
	})
}

// A shared random generator breaks under concurrent use. https://github.com/camunda-community-hub/zeebe-client-go/issues/59
func TestZeebeClientGo59SixtyFourGoroutines(t *testing.T) {
	t.Parallel()
	b := mustNew[int](t, ratelimit.Exp(time.Microsecond, time.Millisecond), ratelimit.WithMaxKeys(400), ratelimit.WithTTL(time.Millisecond),
		ratelimit.WithGiveUpAfter(50, time.Second), ratelimit.WithObserver(func(ratelimit.Event) {}))
	scope := b.Scope("other")
	bucket, err := ratelimit.Bucket[int](1e6, 10)
	if err != nil {
		t.Fatal(err)
	}
	fair, err := ratelimit.Fair(func(k int) int { return k % 7 }, 1e5, 10, ratelimit.WithMaxKeys(300))
	if err != nil {
		t.Fatal(err)
	}
	remotes, err := ratelimit.NewRemotes[int](1e5, 10, ratelimit.WithMaxKeys(5))
	if err != nil {
		t.Fatal(err)
	}
	remote := ratelimit.PerRemote(remotes, func(k int) int { return k % 9 })
	gates := []ratelimit.Gate[int]{b, bucket, fair, remote, ratelimit.Smear[int](10*time.Millisecond, nil)}
	steps := 20_000
	if testing.Short() {
		steps = 2_000
	}
	var wg sync.WaitGroup
	for g := range 64 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for range steps {
				k := r.IntN(600)
				switch r.IntN(12) {
				case 0:
					b.Forget(k)
				case 1:
					if b.NumRequeues(k) < 0 || b.Remaining(k) < 0 {
						t.Error("below zero")
					}
				case 2:
					if n := b.Len(); n > 400 {
						t.Errorf("%d keys, 400 is the bound", n)
					}
				case 3:
					b.Reset(k, int64(r.IntN(3)))
				case 4:
					scope.Observe(k, errBoom)
				case 5, 6, 7:
					for i, gate := range gates {
						if wait, ok := gate.Admit(k); !ok && wait <= 0 {
							t.Errorf("gate %d says no for %v", i, wait)
						} else if r, refunds := gate.(interface{ Refund(int) }); ok && refunds && k%3 == 0 {
							r.Refund(k)
						}
					}
				case 8:
					remotes.Report(k%9, []error{nil, errBoom, &ratelimit.Error{Class: ratelimit.Throttled, After: time.Microsecond}}[r.IntN(3)])
				case 9:
					if s := remotes.State(k % 9); s.Rate <= 0 || s.Pause < 0 {
						t.Errorf("%+v", s)
					}
				case 10:
					b.Observe(k, &ratelimit.Error{Class: ratelimit.Class(r.IntN(6))})
				default:
					if d := b.When(k); d < 0 || d > 11*time.Second { // the longest wait of any class
						t.Errorf("When = %v", d)
					}
				}
			}
		})
	}
	wg.Wait()
	if n := remotes.Len(); n > 5 {
		t.Errorf("%d remotes, 5 is the bound", n)
	}
}

// Two queues share a limiter, and success in one clears the backoff of the other.
// https://github.com/virtual-kubelet/virtual-kubelet/pull/953
func TestVirtualKubelet953ScopesAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mustNew[string](t, ratelimit.Exp(time.Second, time.Hour))
		pods, secrets, nested := b.Scope("pods"), b.Scope("secrets"), b.Scope("pods").Scope("secrets")
		for range 4 {
			time.Sleep(pods.When("x"))
		}
		secrets.When("x")
		nested.When("x")
		secrets.Forget("x")
		b.Forget("x")
		for name, n := range map[string]int{"pods": pods.NumRequeues("x"), "pods again": b.Scope("pods").NumRequeues("x")} {
			if n != 4 {
				t.Errorf("%s counts %d failures, want 4", name, n)
			}
		}
		if n := nested.NumRequeues("x"); n != 1 || secrets.NumRequeues("x") != 0 || b.Len() != 2 {
			t.Errorf("nested counts %d, secrets %d, %d keys", n, secrets.NumRequeues("x"), b.Len())
		}
	})
}

// "Stop" is a negative duration, which somebody sleeps for. https://github.com/authzed/spicedb/pull/1445
func TestSpicedb1445GivingUpIsNoDuration(t *testing.T) {
	for name, tt := range map[string]struct {
		reason string
		n      int
		age    time.Duration
		want   int // failures until it is given up
	}{
		"count": {"n failures in a row", 5, 0, 5},
		"age":   {"1+2+4+8 s have passed at the fifth", 0, 14 * time.Second, 5},
		"both":  {"whichever comes first", 3, time.Hour, 3},
		"first": {"no retry at all", 1, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := mustNew[string](t, ratelimit.Policy{Base: time.Second, Cap: time.Hour, Jitter: ratelimit.NoJitter()}, ratelimit.WithGiveUpAfter(tt.n, tt.age))
				for range 2 { // a key that was given up has a fresh budget
					for i := 1; ; i++ {
						// What is not a failure of the key does not count.
						for _, class := range []ratelimit.Class{ratelimit.Waiting, ratelimit.Throttled, ratelimit.Conflict} {
							if tt.age == 0 {
								time.Sleep(b.Observe("a", &ratelimit.Error{Class: class}).Delay)
							}
						}
						d := b.Observe("a", errBoom)
						if d.Delay < 0 || d.GaveUp == d.Retry() {
							t.Fatalf("decision %+v", d)
						}
						if d.GaveUp {
							if i != tt.want || b.Len() != 0 || b.Remaining("a") != 0 || d.Count != tt.want {
								t.Errorf("%s: given up at failure %d with %+v, %d keys left", tt.reason, i, d, b.Len())
							}
							break
						}
						if i > tt.want {
							t.Fatalf("%s: not given up after %d failures", tt.reason, i)
						}
						time.Sleep(d.Delay)
					}
				}
			})
		})
	}
}

// The limiter ignores the Retry-After of a 429. https://github.com/kubernetes-sigs/controller-runtime/issues/2040
func TestControllerRuntime2040RetryAfterIsAFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mustNew[string](t, ratelimit.Exp(time.Second, 10*time.Second), ratelimit.WithMaxAfter(5*time.Minute))
		throttled := fmt.Errorf("call: %w", &ratelimit.Error{Class: ratelimit.Throttled, After: 37 * time.Second, Err: errBoom})
		within(t, "the wait", b.Observe("k", throttled).Delay, 37*time.Second, 45*time.Second)
		within(t, "the limiter", b.Observed().When("k"), 37*time.Second, 45*time.Second)
		time.Sleep(b.Remaining("k"))
		d := b.Observe("k", errBoom)
		within(t, "the next ordinary failure", d.Delay, time.Second/2, time.Second)

		// An early failure does not move the deadline, but a server's word does.
		d = b.Observe("k", &ratelimit.Error{After: time.Minute})
		if !d.Early {
			t.Errorf("%+v is no early failure", d)
		}
		within(t, "the floor of an early failure", d.Delay, time.Minute, 72*time.Second)
		within(t, "a shorter floor later", b.Observe("k", &ratelimit.Error{After: time.Second}).Delay, time.Minute, 72*time.Second)

		// A floor has a cap of its own.
		b.Forget("k")
		within(t, "a floor of a day", b.Observe("k", &ratelimit.Error{Class: ratelimit.Waiting, After: 24 * time.Hour}).Delay, 5*time.Minute-time.Millisecond, 5*time.Minute)

		// Those who were sent away together do not come back together.
		waits := map[time.Duration]bool{}
		for i := range 100 {
			waits[b.Observe(fmt.Sprint(i), throttled).Delay] = true
		}
		if len(waits) < 90 {
			t.Errorf("100 keys have %d different floors", len(waits))
		}
	})
}

// The deletion of an object that has failed for long waits for the old backoff. https://github.com/gardener/gardener/pull/3144
func TestGardener3144NewGenerationRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mustNew[string](t, ratelimit.Exp(time.Second, time.Hour))
		if b.Reset("shoot", 1) {
			t.Error("nothing was remembered, and it was cleared")
		}
		for range 12 {
			time.Sleep(b.Remaining("shoot"))
			b.Observe("shoot", errBoom)
			b.Reset("shoot", 1)
		}
		if b.Reset("shoot", 1) || b.Remaining("shoot") == 0 || b.NumRequeues("shoot") != 12 {
			t.Errorf("the same generation has cleared %v, %d", b.Remaining("shoot"), b.NumRequeues("shoot"))
		}
		if !b.Reset("shoot", 2) || b.Remaining("shoot") != 0 || b.Len() != 0 {
			t.Errorf("the new generation waits %v", b.Remaining("shoot"))
		}
		within(t, "the next wait", b.Observe("shoot", errBoom).Delay, time.Second/2, time.Second)
	})
}

// Delays in the far future leak timers or panic. https://github.com/elastic/cloud-on-k8s/issues/1984,
// https://github.com/kube-rs/kube/issues/1772
func TestCloudOnK8s1984NothingIsForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mustNew[string](t, ratelimit.Exp(time.Second, time.Minute))
		within(t, "a floor of 292 years", b.Observe("a", &ratelimit.Error{After: 1<<63 - 1}).Delay, 50*time.Minute, time.Hour)
		within(t, "the limiter", b.Observed().When("a"), 50*time.Minute, time.Hour)

		// A cap that no clock reaches is accepted, and still cannot wrap.
		b = mustNew[string](t, ratelimit.Policy{Base: 1 << 61, Cap: 1<<63 - 1, Jitter: ratelimit.NoJitter()})
		for range 5 {
			if d := b.When("a"); d <= 0 {
				t.Errorf("When = %v", d)
			}
		}
		if d := b.Remaining("a"); d <= 0 {
			t.Errorf("Remaining = %v", d)
		}
		b = mustNew[string](t, ratelimit.Policy{Base: 1<<63 - 1, Cap: 1<<63 - 1, Jitter: ratelimit.NoJitter()})
		time.Sleep(time.Second) // now and the wait do not fit in a Duration together
		b.When("a")
		if d, n := b.Remaining("a"), b.NumRequeues("a"); d <= 0 || n != 1 {
			t.Errorf("Remaining = %v after %d failures", d, n)
		}
		g, err := ratelimit.Bucket[int](1e-30, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3000 {
			if wait, ok := g.Admit(i); !ok && wait <= 0 {
				t.Fatalf("Admit(%d) = %v", i, wait)
			}
		}
	})
}
