// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/ashlar-go/ashlar/ratelimit"
)

// A Backoff and its observed face go wherever a limiter of a workqueue goes.
var (
	_ workqueue.TypedRateLimiter[string] = (*ratelimit.Backoff[string])(nil)
	_ workqueue.TypedRateLimiter[string] = (*ratelimit.Observed[string])(nil)
	_ ratelimit.Gate[string]             = (*ratelimit.Backoff[string])(nil)
)

// TestClientGoSteps walks both limiters through the same random steps. Every answer must be the same, except for the
// one that client-go overflows at.
func TestClientGoSteps(t *testing.T) {
	t.Parallel()
	steps := 0
	for _, base := range []time.Duration{
		time.Millisecond, 3 * time.Millisecond, 5 * time.Millisecond, 200 * time.Millisecond, time.Second, 7 * time.Second, 10 * time.Second,
	} {
		for _, longest := range []time.Duration{base, 30 * time.Second, 1000 * time.Second} {
			t.Run(fmt.Sprint(base, " ", longest), func(t *testing.T) {
				ours, err := ratelimit.ClientGo[int](base, longest)
				if err != nil {
					t.Fatal(err)
				}
				theirs := workqueue.NewTypedItemExponentialFailureRateLimiter[int](base, longest)
				r := rand.New(rand.NewPCG(uint64(base), uint64(longest)))
				for range 60_000 {
					steps++
					key := r.IntN(50)
					switch r.IntN(12) {
					case 0:
						ours.Forget(key)
						theirs.Forget(key)
					case 1:
						if a, b := ours.NumRequeues(key), theirs.NumRequeues(key); a != b {
							t.Fatalf("NumRequeues(%d) = %d, client-go says %d", key, a, b)
						}
					default:
						if a, b := ours.When(key), theirs.When(key); a != b {
							t.Fatalf("When(%d) = %v, client-go says %v", key, a, b)
						}
					}
				}
			})
		}
	}
	if steps < 1_000_000 {
		t.Errorf("%d steps, a million were meant", steps)
	}
	t.Logf("%d steps", steps)
}

// TestClientGoWithoutItsOverflow: a base that is a power of two in nanoseconds reaches 2^63 exactly, and the float then
// becomes the most negative duration, which a queue takes for "now". Case B8 of several public reports:
// https://github.com/sethvargo/go-retry/issues/12, https://github.com/qdrant/go-client/pull/153,
// https://github.com/jpillora/backoff/issues/11
func TestClientGoWithoutItsOverflow(t *testing.T) {
	t.Parallel()
	const longest = 1000 * time.Second
	differs := 0
	for _, base := range []time.Duration{1, 2, 3, 1 << 20, 5 * time.Millisecond, 999 * time.Second, longest} {
		ours, err := ratelimit.ClientGo[string](base, longest)
		if err != nil {
			t.Fatal(err)
		}
		theirs := workqueue.NewTypedItemExponentialFailureRateLimiter[string](base, longest)
		before := time.Duration(0)
		for i := range 10_000 {
			a, b := ours.When("a"), theirs.When("a")
			if a < base || a > longest || a < before {
				t.Fatalf("base %v: wait %d is %v after %v", base, i+1, a, before)
			}
			if a != b {
				differs++
				if b >= 0 {
					t.Fatalf("base %v: wait %d is %v, client-go says %v", base, i+1, a, b)
				}
			}
			before = a
		}
		if n := ours.NumRequeues("a"); n != 10_000 {
			t.Errorf("base %v: counted %d", base, n)
		}
	}
	if differs == 0 {
		t.Log("this client-go does not overflow on this machine")
	}
}

// TestClientGoObserves: the observed face is there as well, with a curve for every class of failure and the floor of a
// server; reconcilelimit tells it of conflicts and of whoever asks for patience.
func TestClientGoObserves(t *testing.T) {
	t.Parallel()
	const base, longest = 5 * time.Millisecond, 1000 * time.Second
	for class, limit := range map[ratelimit.Class]time.Duration{
		ratelimit.Transient: base, ratelimit.Throttled: time.Second, ratelimit.Conflict: 10 * time.Millisecond, ratelimit.Waiting: 11 * time.Second,
	} {
		b, err := ratelimit.ClientGo[string](base, longest)
		if err != nil {
			t.Fatal(err)
		}
		within(t, class.String(), b.Observe("a", &ratelimit.Error{Class: class}).Delay, 1, limit)
		within(t, class.String()+" with a floor", b.Observe("b", &ratelimit.Error{Class: class, After: time.Minute}).Delay, time.Minute, 72*time.Second)
		if _, ok := b.Admit("b"); !ok {
			t.Errorf("%v: no early run", class)
		}
	}
}

func TestClientGoRefuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		reason        string
		base, longest time.Duration
		want          string
	}{
		"zero base":     {"client-go answers NaN at call 1025", 0, time.Second, "new backoff: policy: Base: 0s is not above zero"},
		"negative base": {"every wait would mean now", -1, time.Second, "new backoff: policy: Base: -1ns is not above zero"},
		"cap below":     {"the curve would start above its end", time.Minute, time.Second, "new backoff: policy: Cap: 1s is below Base 1m0s"},
	} {
		if _, err := ratelimit.ClientGo[string](tt.base, tt.longest); err == nil || err.Error() != tt.want {
			t.Errorf("%s (%s): %v, want %s", name, tt.reason, err, tt.want)
		}
	}
}
