// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/ashlar-go/ashlar/ratelimit"
	"github.com/ashlar-go/ashlar/ratelimit/ratelimittest"
)

// plain is a policy without jitter, so that the examples print the same in every run.
func plain(base, longest time.Duration) ratelimit.Policy {
	p := ratelimit.Exp(base, longest)
	p.Jitter = ratelimit.NoJitter()
	return p
}

// A reconciler without a framework: every outcome has its own curve, and an event that comes too early is put off, not
// dropped.
func Example() {
	clock := ratelimittest.NewClock()
	b, err := ratelimit.New[string](plain(time.Second, time.Minute), ratelimit.WithClock(clock.Now),
		ratelimit.WithClass(ratelimit.Waiting, ratelimit.Policy{Base: 15 * time.Second, Cap: 15 * time.Second, Factor: 1, Jitter: ratelimit.NoJitter()}))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, outcome := range []error{
		errors.New("connection refused"),
		errors.New("connection refused"),
		&ratelimit.Error{Class: ratelimit.Waiting, Err: errors.New("2 of 3 pods are ready")},
		nil,
	} {
		d := b.Observe("orders", outcome)
		fmt.Printf("%v: %v, %d failures, again in %v\n", outcome, d.Class, d.Count, d.Delay)
		clock.Sleep(d.Delay)
	}
	// Output:
	// connection refused: Transient, 1 failures, again in 1s
	// connection refused: Transient, 2 failures, again in 2s
	// 2 of 3 pods are ready: Waiting, 2 failures, again in 15s
	// <nil>: None, 0 failures, again in 0s
}

func ExampleNew() {
	_, err := ratelimit.New[string](ratelimit.Policy{Base: time.Minute, Cap: time.Second, Factor: 0.5})
	fmt.Println(err)
	// Output:
	// new backoff: policy: Cap: 1s is below Base 1m0s
	// Factor: 0.5 is not a finite number of 1 or more
}

// The plain face is the limiter of a workqueue. Calls before the deadline count nothing.
func ExampleBackoff_When() {
	clock := ratelimittest.NewClock()
	b, _ := ratelimit.New[string](plain(time.Second, time.Minute), ratelimit.WithClock(clock.Now))
	fmt.Println(b.When("a"), b.NumRequeues("a"))
	clock.Sleep(400 * time.Millisecond)
	fmt.Println(b.When("a").Round(time.Millisecond), b.NumRequeues("a"))
	clock.Sleep(600 * time.Millisecond)
	fmt.Println(b.When("a"), b.NumRequeues("a"))
	b.Forget("a")
	fmt.Println(b.Remaining("a"), b.NumRequeues("a"), b.Len())
	// Output:
	// 1s 1
	// 600ms 1
	// 2s 2
	// 0s 0 0
}

func ExampleBackoff_Observe() {
	clock := ratelimittest.NewClock()
	b, _ := ratelimit.New[string](plain(time.Second, time.Minute), ratelimit.WithClock(clock.Now))
	show := func(d ratelimit.Decision) {
		fmt.Println(d.Class, "count", d.Count, "early", d.Early, "retry", d.Retry())
	}
	show(b.Observe("a", errors.New("boom")))
	show(b.Observe("a", errors.New("boom"))) // an event came before the deadline
	show(b.Observe("a", &ratelimit.Error{Class: ratelimit.Terminal, Err: errors.New("no such flavour")}))
	fmt.Println(b.Len(), "keys are remembered")
	// Output:
	// Transient count 1 early false retry true
	// Transient count 1 early true retry true
	// Terminal count 0 early false retry false
	// 0 keys are remembered
}

// The observed face is what a queue gets when outcomes are observed.
func ExampleBackoff_Observed() {
	clock := ratelimittest.NewClock()
	b, _ := ratelimit.New[string](plain(time.Second, time.Minute), ratelimit.WithClock(clock.Now))
	limiter := b.Observed()
	b.Observe("a", errors.New("boom"))
	limiter.Forget("a") // controller-runtime does for each RequeueAfter
	fmt.Println(limiter.When("a").Round(time.Millisecond), limiter.When("a").Round(time.Millisecond), limiter.NumRequeues("a"))
	// Output: 1s 1s 1
}

// An early run gives the event that repairs an object its chance, and no more.
func ExampleBackoff_Admit() {
	clock := ratelimittest.NewClock()
	b, _ := ratelimit.New[string](plain(time.Hour, time.Hour), ratelimit.WithClock(clock.Now), ratelimit.WithEarlyRuns(2, 10*time.Second))
	b.Observe("a", errors.New("boom"))
	for range 3 {
		wait, ok := b.Admit("a")
		fmt.Println(ok, wait.Round(time.Second))
	}
	clock.Sleep(11 * time.Second)
	fmt.Println(b.Admit("a"))
	// Output:
	// true 0s
	// true 0s
	// false 10s
	// 0s true
}

func ExampleBackoff_Reset() {
	b, _ := ratelimit.New[string](ratelimit.Exp(time.Hour, time.Hour))
	b.Observe("a", errors.New("boom"))
	fmt.Println(b.Reset("a", 1), b.Remaining("a") > 0) // noted
	fmt.Println(b.Reset("a", 2), b.Remaining("a") > 0) // the spec has changed
	// Output:
	// false true
	// true false
}

func ExampleBackoff_Scope() {
	b, _ := ratelimit.New[string](ratelimit.Exp(time.Hour, time.Hour))
	pods, secrets := b.Scope("pods"), b.Scope("secrets")
	pods.When("default/a")
	secrets.Forget("default/a")
	fmt.Println(pods.NumRequeues("default/a"), secrets.NumRequeues("default/a"), b.Len())
	// Output: 1 0 1
}

func ExampleClientGo() {
	b, err := ratelimit.ClientGo[string](5*time.Millisecond, 1000*time.Second)
	fmt.Println(b.When("a"), b.When("a"), b.When("a"), err)
	// Output: 5ms 10ms 20ms <nil>
}

func ExamplePolicy_Bounds() {
	p := ratelimit.Exp(200*time.Millisecond, 5*time.Minute)
	for _, n := range []int{1, 2, 3, 12, 1000} {
		fmt.Println(p.Bounds(n))
	}
	// Output:
	// 100ms 200ms
	// 200ms 400ms
	// 400ms 800ms
	// 2m30s 5m0s
	// 2m30s 5m0s
}

func ExampleFastSlow() {
	p := ratelimit.FastSlow(time.Second, time.Minute, 2)
	p.Jitter = ratelimit.NoJitter()
	clock := ratelimittest.NewClock()
	b, _ := ratelimit.New[string](p, ratelimit.WithClock(clock.Now))
	fmt.Println(ratelimittest.Sequence(b, "a", 4, clock.Sleep))
	// Output: [1s 1s 1m0s 1m0s]
}

func ExampleWithGiveUpAfter() {
	clock := ratelimittest.NewClock()
	b, _ := ratelimit.New[string](plain(time.Second, time.Minute), ratelimit.WithClock(clock.Now), ratelimit.WithGiveUpAfter(3, 0),
		ratelimit.WithObserver(func(e ratelimit.Event) { fmt.Println(e.LogValue()) }))
	for range 3 {
		clock.Sleep(b.Observe("a", errors.New("boom")).Delay)
	}
	// Output:
	// [kind=Retry key=a class=Transient count=1 delay=1s error=boom]
	// [kind=Retry key=a class=Transient count=2 delay=2s error=boom]
	// [kind=GaveUp key=a class=Transient count=3 error=boom]
}

func ExampleParseRetryAfter() {
	now := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	fmt.Println(ratelimit.ParseRetryAfter("37", now))
	fmt.Println(ratelimit.ParseRetryAfter("Sun, 01 Mar 2026 10:01:30 GMT", now))
	fmt.Println(ratelimit.ParseRetryAfter("soon", now))
	// Output:
	// 37s true
	// 1m30s true
	// 0s false
}

func ExampleClassify() {
	err := errors.Join(
		&ratelimit.Error{Class: ratelimit.Waiting, After: time.Minute, Err: errors.New("volume is being created")},
		fmt.Errorf("scale: %w", errors.New("connection refused")),
	)
	verdict := ratelimit.Classify(err)
	fmt.Println(verdict.Class, verdict.After)
	// Output: Transient 1m0s
}

// Ten runs a second: those that are sent away come back one after the other.
func ExampleBucket() {
	clock := ratelimittest.NewClock()
	g, _ := ratelimit.Bucket[string](10, 2, ratelimit.WithClock(clock.Now))
	for _, key := range []string{"a", "b", "c", "d", "c"} {
		wait, ok := g.Admit(key)
		fmt.Println(key, ok, wait)
	}
	clock.Sleep(100 * time.Millisecond)
	fmt.Println(g.Admit("c"))
	// Output:
	// a true 0s
	// b true 0s
	// c false 100ms
	// d false 200ms
	// c false 100ms
	// 0s true
}

// One namespace with a thousand objects, another one with a single one.
func ExampleFair() {
	clock := ratelimittest.NewClock()
	g, _ := ratelimit.Fair(func(key [2]string) string { return key[0] }, 10, 1, ratelimit.WithClock(clock.Now), ratelimit.WithWeight("gold", 4))
	for i := range 1000 {
		g.Admit([2]string{"noisy", fmt.Sprint(i)})
	}
	wait, ok := g.Admit([2]string{"quiet", "only"})
	fmt.Println(ok, wait)
	// Output: false 200ms
}

func ExampleRemotes() {
	clock := ratelimittest.NewClock()
	r, _ := ratelimit.NewRemotes[string](100, 10, ratelimit.WithClock(clock.Now),
		ratelimit.WithBreaker(2, ratelimit.Policy{Base: 10 * time.Second, Cap: time.Minute, Jitter: ratelimit.NoJitter()}))
	r.Report("eu", errors.New("timeout"))
	r.Report("eu", errors.New("timeout"))
	fmt.Printf("%+v\n", r.State("eu"))
	_, eu := r.Admit("eu")
	_, us := r.Admit("us")
	fmt.Println("eu", eu, "us", us)

	clock.Sleep(10 * time.Second)
	_, probe := r.Admit("eu")
	_, other := r.Admit("eu")
	fmt.Println("probe", probe, "another", other)
	r.Report("eu", &ratelimit.Error{Class: ratelimit.Throttled, After: 5 * time.Second})
	fmt.Printf("%+v\n", r.State("eu"))
	// Output:
	// {Rate:100 Open:true Pause:10s}
	// eu false us true
	// probe true another false
	// {Rate:50 Open:false Pause:5s}
}

func ExamplePerRemote() {
	r, _ := ratelimit.NewRemotes[string](100, 10)
	gate := ratelimit.PerRemote(r, func(key [2]string) string { return key[0] })
	r.Report("eu", &ratelimit.Error{Class: ratelimit.Throttled, After: time.Minute})
	_, eu := gate.Admit([2]string{"eu", "a"})
	_, us := gate.Admit([2]string{"us", "a"})
	fmt.Println(eu, us)
	// Output: false true
}

func ExampleSmear() {
	started := time.Now()
	fresh := func(created time.Time) bool { return created.After(started) } // the keys of this example are creation times
	gate := ratelimit.Smear(time.Hour, fresh)
	_, old := gate.Admit(started.Add(-time.Hour))
	_, created := gate.Admit(started.Add(time.Minute))
	fmt.Println("from before the start:", old, "created since:", created)
	// Output: from before the start: false created since: true
}

func ExampleSpread() {
	fmt.Println(ratelimit.Spread(10*time.Minute, "default/orders").Round(time.Second))
	fmt.Println(ratelimit.Spread(10*time.Minute, "default/invoices").Round(time.Second))
	// Output:
	// 9m16s
	// 9m3s
}
