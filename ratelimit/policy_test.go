// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/ratelimit"
	"github.com/ashlar-go/ashlar/ratelimit/ratelimittest"
)

var jitters = []ratelimit.Jitter{
	ratelimit.EqualJitter(), ratelimit.NoJitter(), ratelimit.FullJitter(),
	ratelimit.ProportionalJitter(0.1), ratelimit.ProportionalJitter(0.999), ratelimit.ProportionalJitter(math.SmallestNonzeroFloat64),
}

// FuzzPolicy: whatever the fields, New refuses them or every wait is in its bounds, which are above zero, ordered, not
// above the cap, and grow with the failures; and the range is as wide at the cap as its kind says.
func FuzzPolicy(f *testing.F) {
	f.Add(int64(5*time.Millisecond), int64(1000*time.Second), 2.0, 0, 0, 0.0)
	f.Add(int64(1), int64(math.MaxInt64), 2.0, 0, 1, 0.5)
	f.Add(int64(1<<20), int64(math.MaxInt64-1), 1.2, 7, 3, 0.5)
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), math.Inf(1), -1, 2, math.NaN())
	f.Add(int64(0), int64(-1), math.NaN(), 300, 4, -1.0)
	f.Fuzz(func(t *testing.T, base, longest int64, factor float64, fast, kind int, part float64) {
		j := ratelimit.ProportionalJitter(part)
		if kind >= 0 && kind < len(jitters) {
			j = jitters[kind]
		}
		policy(t, ratelimit.Policy{Base: time.Duration(base), Cap: time.Duration(longest), Factor: factor, Fast: fast, Jitter: j})
	})
}

// TestRandomPolicies is FuzzPolicy without a fuzzer: the same walk every time.
func TestRandomPolicies(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	accepted := 0
	for range 20_000 {
		p := ratelimit.Policy{
			Base: time.Duration(r.Int64() >> r.IntN(63)), Cap: time.Duration(r.Int64() >> r.IntN(63)),
			Factor: []float64{0, 1, 2, 1 + r.Float64(), r.Float64() * 100, math.MaxFloat64, -1, math.NaN(), math.Inf(1)}[r.IntN(9)],
			Fast:   r.IntN(40) - 2, Jitter: jitters[r.IntN(len(jitters))],
		}
		if policy(t, p) {
			accepted++
		}
	}
	if accepted < 5000 {
		t.Errorf("only %d of 20 000 policies were accepted: that shows little", accepted)
	}
}

func policy(t *testing.T, p ratelimit.Policy) bool {
	clock := ratelimittest.NewClock()
	n := uint64(0)
	b, err := ratelimit.New[int](p, ratelimit.WithClock(clock.Now), ratelimit.WithTTL(math.MaxInt64),
		ratelimit.WithHash(func(k int) uint64 { n++; return uint64(k)*0x9e3779b97f4a7c15 + 1 }))
	if err != nil {
		named := false
		for _, field := range []string{"Base: ", "Cap: ", "Factor: ", "Fast: ", "Jitter: "} {
			named = named || strings.Contains(err.Error(), field)
		}
		if low, high := p.Bounds(1); !named || low != 0 || high != 0 {
			t.Fatalf("%+v is refused with %q, and has bounds %v, %v", p, err, low, high)
		}
		return false
	}
	if !(p.Base > 0) || p.Cap < p.Base || p.Factor != 0 && !(p.Factor >= 1) || math.IsInf(p.Factor, 0) || p.Fast < 0 {
		t.Fatalf("%+v was accepted", p)
	}
	before := [2]time.Duration{}
	for i := 1; i < 300; i++ {
		low, high := p.Bounds(i)
		if low <= 0 || low > high || high > p.Cap || low < before[0] || high < before[1] {
			t.Fatalf("%+v: bounds of failure %d are %v, %v after %v", p, i, low, high, before)
		}
		before = [2]time.Duration{low, high}
		if i > 40 && i < 250 {
			continue
		}
		wait := b.When(i % 3)
		if count := b.NumRequeues(i % 3); count > 0 {
			low, high := p.Bounds(count)
			if wait < low || wait > high {
				t.Fatalf("%+v: wait %d is %v, its bounds are %v, %v", p, count, wait, low, high)
			}
		}
		clock.Sleep(min(wait, 1<<55))
		b.Forget(i % 3)
	}
	return true
}

// TestJitterAtTheCap: where the curve has ended, waits are still spread, and none is above it.
// https://github.com/ferd/backoff/issues/8, https://github.com/kubernetes/client-go/issues/739
func TestFerdBackoff8JitterAtTheCap(t *testing.T) {
	t.Parallel()
	const longest = time.Minute
	for _, j := range jitters {
		b := mustNew[int](t, ratelimit.Policy{Base: longest, Cap: longest, Jitter: j})
		different := map[time.Duration]bool{}
		for i := range 1000 {
			d := b.When(i)
			if d <= 0 || d > longest {
				t.Fatalf("jitter %v: %v is not below the cap", j, d)
			}
			different[d] = true
		}
		switch want := 990; {
		case j == ratelimit.NoJitter() || j == ratelimit.ProportionalJitter(math.SmallestNonzeroFloat64):
			if len(different) != 1 {
				t.Errorf("jitter %v: %d different waits at the cap", j, len(different))
			}
		case len(different) < want:
			t.Errorf("jitter %v: %d of 1000 waits at the cap differ", j, len(different))
		}
	}
}

// TestFerdBackoff8MovedDown: at the cap the whole range of a proportional jitter is there, moved down, not half of it.
func TestFerdBackoff8MovedDown(t *testing.T) {
	t.Parallel()
	p := ratelimit.Exp(time.Second, 110*time.Second)
	p.Jitter = ratelimit.ProportionalJitter(0.1)
	if low, high := p.Bounds(100); low.Round(time.Microsecond) != 90*time.Second || high.Round(time.Microsecond) != 110*time.Second {
		t.Errorf("bounds at the cap are %v, %v", low, high)
	}
}

// TestJitterDoesNotFreeze: a count that is as high as it can get still gives different waits; a key whose wait froze near
// zero would be a hot loop.
func TestJitterDoesNotFreeze(t *testing.T) {
	t.Parallel()
	clock := ratelimittest.NewClock()
	b := mustNew[string](t, ratelimit.Exp(time.Second, time.Minute), ratelimit.WithClock(clock.Now))
	different := map[time.Duration]bool{}
	for i := range 500 {
		d := b.Observe("a", &ratelimit.Error{Class: ratelimit.Conflict}).Delay
		if i >= 300 {
			different[d] = true
		}
		clock.Sleep(d)
	}
	if len(different) < 190 {
		t.Errorf("%d different waits in 200 conflicts", len(different))
	}
}

// TestJitterIsEven: every tenth of the range is hit as often as every other.
func TestJitterIsEven(t *testing.T) {
	t.Parallel()
	const longest = time.Minute
	for _, j := range []ratelimit.Jitter{ratelimit.EqualJitter(), ratelimit.FullJitter(), ratelimit.ProportionalJitter(0.3)} {
		p := ratelimit.Policy{Base: longest, Cap: longest, Jitter: j}
		low, high := p.Bounds(1)
		b := mustNew[string](t, p)
		bins := [10]int{}
		for i := range 20_000 {
			bins[int(float64(b.When(fmt.Sprint(i))-low)/float64(high-low+1)*10)]++
		}
		for i, n := range bins {
			if n < 1800 || n > 2200 {
				t.Errorf("jitter %v: tenth %d has %d of 20 000", j, i, n)
			}
		}
	}
}

// TestJitterHoldsNoState: the same hash gives the same waits in every Backoff, another one gives others.
func TestJitterHoldsNoState(t *testing.T) {
	t.Parallel()
	sequence := func(seed uint64) string {
		clock := ratelimittest.NewClock()
		b := mustNew[string](t, ratelimit.Exp(time.Second, time.Hour), ratelimit.WithClock(clock.Now),
			ratelimit.WithHash(func(k string) uint64 { return seed + uint64(len(k)) }))
		return fmt.Sprint(ratelimittest.Sequence(b, "key", 20, clock.Sleep))
	}
	if a, b := sequence(1), sequence(1); a != b {
		t.Error("the same hash gives different waits")
	}
	if sequence(1) == sequence(2) {
		t.Error("another hash gives the same waits")
	}
}

// TestJitterOfAScopeHoldsNoState: the same goes for the keys of a scope, whose name is part of the hash.
func TestJitterOfAScopeHoldsNoState(t *testing.T) {
	t.Parallel()
	sequence := func(scopes ...string) string {
		clock := ratelimittest.NewClock()
		b := mustNew[string](t, ratelimit.Exp(time.Second, time.Hour), ratelimit.WithClock(clock.Now),
			ratelimit.WithHash(func(k string) uint64 { return uint64(len(k)) }))
		for _, name := range scopes {
			b = b.Scope(name)
		}
		return fmt.Sprint(ratelimittest.Sequence(b, "key", 20, clock.Sleep))
	}
	seen := map[string][]string{}
	for _, scopes := range [][]string{nil, {""}, {"pods"}, {"secrets"}, {"pods", "secrets"}, {"secrets", "pods"}} {
		a := sequence(scopes...)
		if b := sequence(scopes...); a != b {
			t.Errorf("scope %q: the same hash gives different waits", scopes)
		}
		if other, ok := seen[a]; ok {
			t.Errorf("scopes %q and %q have the same waits", scopes, other)
		}
		seen[a] = scopes
	}
}

func TestCurves(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for name, tt := range map[string]struct {
		reason string
		policy ratelimit.Policy
		want   []time.Duration
	}{
		"exp":         {"doubling to the cap", ratelimit.Exp(s, 10*s), []time.Duration{s, 2 * s, 4 * s, 8 * s, 10 * s, 10 * s}},
		"flat":        {"", ratelimit.Flat(s), []time.Duration{s, s, s}},
		"fast slow":   {"as client-go's limiter of that name", ratelimit.FastSlow(s, 60*s, 3), []time.Duration{s, s, s, 60 * s, 60 * s}},
		"always slow": {"no fast attempt", ratelimit.FastSlow(s, 60*s, 0), []time.Duration{60 * s, 60 * s}},
		"fast, exp":   {"some at once, then climbing", ratelimit.Policy{Base: s, Cap: 100 * s, Factor: 3, Fast: 2}, []time.Duration{s, s, 3 * s, 9 * s, 27 * s, 81 * s, 100 * s}},
		"base is cap": {"", ratelimit.Exp(s, s), []time.Duration{s, s}},
	} {
		tt.policy.Jitter = ratelimit.NoJitter()
		clock := ratelimittest.NewClock()
		b := mustNew[string](t, tt.policy, ratelimit.WithClock(clock.Now))
		if got := ratelimittest.Sequence(b, "a", len(tt.want), clock.Sleep); fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("%s (%s): %v, want %v", name, tt.reason, got, tt.want)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	good := ratelimit.Exp(time.Second, time.Minute)
	for name, tt := range map[string]struct {
		reason string
		policy ratelimit.Policy
		opts   []ratelimit.Option
		want   string
	}{
		"zero policy":     {"waits of zero are a hot loop", ratelimit.Policy{}, nil, "policy: Base: 0s is not above zero"},
		"negative base":   {"", ratelimit.Exp(-time.Second, time.Minute), nil, "policy: Base: -1s is not above zero"},
		"cap below base":  {"", ratelimit.Exp(time.Minute, time.Second), nil, "policy: Cap: 1s is below Base 1m0s"},
		"factor NaN":      {"", ratelimit.Policy{Base: 1, Cap: 2, Factor: math.NaN()}, nil, "policy: Factor: NaN is not a finite number of 1 or more"},
		"factor Inf":      {"", ratelimit.Policy{Base: 1, Cap: 2, Factor: math.Inf(1)}, nil, "policy: Factor: +Inf is not"},
		"factor below 1":  {"waits would shrink", ratelimit.Policy{Base: 1, Cap: 2, Factor: 0.5}, nil, "policy: Factor: 0.5 is not"},
		"factor too near": {"the streak is one byte", ratelimit.Policy{Base: 1, Cap: time.Hour, Factor: 1.01}, nil, "policy: Factor: with Factor 1.01 and Fast 0 the curve does not reach Cap within 255 failures"},
		"fast negative":   {"", ratelimit.Policy{Base: 1, Cap: 2, Fast: -1}, nil, "policy: Fast: -1 is negative"},
		"fast slow zero":  {"", ratelimit.FastSlow(0, time.Second, 3), nil, "policy: Base: 0s is not above zero"},
		"part zero":       {"", ratelimit.Policy{Base: 1, Cap: 2, Jitter: ratelimit.ProportionalJitter(0)}, nil, "policy: Jitter: the part 0 of ProportionalJitter is not between 0 and 1"},
		"part NaN":        {"", ratelimit.Policy{Base: 1, Cap: 2, Jitter: ratelimit.ProportionalJitter(math.NaN())}, nil, "policy: Jitter: the part NaN"},
		"class":           {"terminal failures have no curve", good, []ratelimit.Option{ratelimit.WithClass(ratelimit.Terminal, good)}, "WithClass: class Terminal takes no policy here"},
		"class transient": {"New has it", good, []ratelimit.Option{ratelimit.WithClass(ratelimit.Transient, good)}, "WithClass: class Transient takes no policy here"},
		"class policy":    {"", good, []ratelimit.Option{ratelimit.WithClass(ratelimit.Waiting, ratelimit.Flat(0))}, "WithClass: class Waiting: Base: 0s is not above zero"},
		"ttl":             {"", good, []ratelimit.Option{ratelimit.WithTTL(0)}, "WithTTL: 0s is not above zero"},
		"max after":       {"", good, []ratelimit.Option{ratelimit.WithMaxAfter(-1)}, "WithMaxAfter: -1ns is below a millisecond"},
		"max keys":        {"", good, []ratelimit.Option{ratelimit.WithMaxKeys(0)}, "WithMaxKeys: 0 is not above zero"},
		"give up":         {"", good, []ratelimit.Option{ratelimit.WithGiveUpAfter(0, 0)}, "WithGiveUpAfter: n, age: neither is set"},
		"give up n":       {"", good, []ratelimit.Option{ratelimit.WithGiveUpAfter(-1, 1)}, "WithGiveUpAfter: n: -1 is negative"},
		"give up many":    {"the count is 16 bits", good, []ratelimit.Option{ratelimit.WithGiveUpAfter(1<<16, 0)}, "WithGiveUpAfter: n: failures are counted up to 65535"},
		"give up age":     {"", good, []ratelimit.Option{ratelimit.WithGiveUpAfter(1, -1)}, "WithGiveUpAfter: age: -1ns is negative"},
		"early n":         {"", good, []ratelimit.Option{ratelimit.WithEarlyRuns(-1, 1)}, "WithEarlyRuns: n: -1 is not between 0 and 65535"},
		"early every":     {"", good, []ratelimit.Option{ratelimit.WithEarlyRuns(1, 0)}, "WithEarlyRuns: every: 0s is not above zero"},
		"early long":      {"", good, []ratelimit.Option{ratelimit.WithEarlyRuns(1, math.MaxInt64)}, "WithEarlyRuns: every: 2562047h47m16.854775807s is too long"},
		"clock":           {"", good, []ratelimit.Option{ratelimit.WithClock(nil)}, "WithClock: the clock is nil"},
		"hash":            {"", good, []ratelimit.Option{ratelimit.WithHash[string](nil)}, "WithHash: the hash is nil"},
		"hash of others":  {"", good, []ratelimit.Option{ratelimit.WithHash(func(int) uint64 { return 0 })}, "WithHash: a func(int) uint64 cannot hash keys of type string"},
		"nil":             {"", good, []ratelimit.Option{nil}, "option: nil"},
		"elsewhere":       {"it would do nothing", good, []ratelimit.Option{ratelimit.WithWeight("a", 1)}, "WithWeight: means nothing here"},
	} {
		_, err := ratelimit.New[string](tt.policy, tt.opts...)
		if err == nil || !strings.HasPrefix(err.Error(), "new backoff: "+tt.want) {
			t.Errorf("%s (%s): %v, want %s", name, tt.reason, err, tt.want)
		}
	}
	for name, tt := range map[string]struct {
		build func() error
		want  string
	}{
		"bucket":        {func() error { _, err := ratelimit.Bucket[string](0, 0); return err }, "new bucket: rate: 0 is not a finite number above zero\nburst: 0 is not above zero"},
		"bucket option": {func() error { _, err := ratelimit.Bucket[string](1, 1, ratelimit.WithTTL(1)); return err }, "new bucket: WithTTL: means nothing here"},
		"remotes":       {func() error { _, err := ratelimit.NewRemotes[string](math.NaN(), 1); return err }, "new remotes: rate: NaN is not a finite number above zero"},
		"min rate":      {func() error { _, err := ratelimit.NewRemotes[string](1, 1, ratelimit.WithMinRate(2)); return err }, "new remotes: WithMinRate: rate: 2 is above the rate 1"},
		"min rate zero": {func() error { _, err := ratelimit.NewRemotes[string](1, 1, ratelimit.WithMinRate(0)); return err }, "new remotes: WithMinRate: rate: 0 is not a finite number above zero"},
		"breaker": {func() error {
			_, err := ratelimit.NewRemotes[string](1, 1, ratelimit.WithBreaker(0, ratelimit.Flat(1)))
			return err
		}, "new remotes: WithBreaker: failures: 0 is not above zero"},
		"breaker curve": {func() error {
			_, err := ratelimit.NewRemotes[string](1, 1, ratelimit.WithBreaker(1, ratelimit.Policy{}))
			return err
		}, "new remotes: WithBreaker: open: Base: 0s is not above zero"},
	} {
		if err := tt.build(); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
	}
}

// TestBadNumbers: what is no number of anything is an error that names the field, wherever it is given.
func TestBadNumbers(t *testing.T) {
	t.Parallel()
	good := ratelimit.Exp(time.Second, time.Minute)
	refused := func(what, field string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), field+": ") {
			t.Errorf("%s: %v, want an error about %q", what, err, field)
		}
	}
	second := func(_ any, err error) error { return err }
	for _, bad := range []float64{0, -1, math.NaN(), math.Inf(1), math.Inf(-1)} {
		what := fmt.Sprint(bad)
		refused(what, "new bucket: rate", second(ratelimit.Bucket[int](bad, 1)))
		refused(what, "new fair gate: rate", second(ratelimit.Fair(tenantOf, bad, 1)))
		refused(what, "new remotes: rate", second(ratelimit.NewRemotes[int](bad, 1)))
		refused(what, "new remotes: WithMinRate: rate", second(ratelimit.NewRemotes[int](1, 1, ratelimit.WithMinRate(bad))))
		refused(what, "new fair gate: WithWeight: weight", second(ratelimit.Fair(tenantOf, 1, 1, ratelimit.WithWeight(1, bad))))
		refused(what, "new backoff: policy: Jitter", second(ratelimit.New[int](ratelimit.Policy{Base: 1, Cap: 2, Jitter: ratelimit.ProportionalJitter(bad)})))
		if bad != 0 { // the factor of a zero Policy is 2
			refused(what, "Factor", second(ratelimit.New[int](ratelimit.Policy{Base: 1, Cap: 2, Factor: bad})))
			refused(what, "Factor", second(ratelimit.New[int](good, ratelimit.WithClass(ratelimit.Conflict, ratelimit.Policy{Base: 1, Cap: 2, Factor: bad}))))
			refused(what, "Factor", second(ratelimit.NewRemotes[int](1, 1, ratelimit.WithBreaker(1, ratelimit.Policy{Base: 1, Cap: 2, Factor: bad}))))
		}
	}
	for _, bad := range []int{0, -1, math.MinInt} {
		what := fmt.Sprint(bad)
		refused(what, "new bucket: burst", second(ratelimit.Bucket[int](1, bad)))
		refused(what, "new fair gate: burst", second(ratelimit.Fair(tenantOf, 1, bad)))
		refused(what, "new remotes: burst", second(ratelimit.NewRemotes[int](1, bad)))
		refused(what, "failures", second(ratelimit.NewRemotes[int](1, 1, ratelimit.WithBreaker(bad, good))))
		refused(what, "new backoff: WithMaxKeys", second(ratelimit.New[int](good, ratelimit.WithMaxKeys(bad))))
		refused(what, "new bucket: WithMaxKeys", second(ratelimit.Bucket[int](1, 1, ratelimit.WithMaxKeys(bad))))
		refused(what, "new fair gate: WithMaxKeys", second(ratelimit.Fair(tenantOf, 1, 1, ratelimit.WithMaxKeys(bad))))
		refused(what, "new remotes: WithMaxKeys", second(ratelimit.NewRemotes[int](1, 1, ratelimit.WithMaxKeys(bad))))
		refused(what, "Base", second(ratelimit.ClientGo[int](time.Duration(bad), time.Second)))
		for _, p := range []ratelimit.Policy{ratelimit.Exp(time.Duration(bad), time.Second), ratelimit.Flat(time.Duration(bad)), ratelimit.FastSlow(time.Duration(bad), time.Second, 1)} {
			refused(what, "Base", second(ratelimit.New[int](p)))
			refused(what, "Base", second(ratelimit.New[int](good, ratelimit.WithClass(ratelimit.Waiting, p))))
			refused(what, "Base", second(ratelimit.NewRemotes[int](1, 1, ratelimit.WithBreaker(1, p))))
		}
		refused(what, "Cap", second(ratelimit.New[int](ratelimit.Exp(1, time.Duration(bad)))))
		refused(what, "WithTTL", second(ratelimit.New[int](good, ratelimit.WithTTL(time.Duration(bad)))))
		refused(what, "WithMaxAfter", second(ratelimit.New[int](good, ratelimit.WithMaxAfter(time.Duration(bad)))))
		refused(what, "WithMaxAfter", second(ratelimit.NewRemotes[int](1, 1, ratelimit.WithMaxAfter(time.Duration(bad)))))
		refused(what, "WithGiveUpAfter", second(ratelimit.New[int](good, ratelimit.WithGiveUpAfter(bad, 0))))
		refused(what, "WithGiveUpAfter", second(ratelimit.New[int](good, ratelimit.WithGiveUpAfter(0, time.Duration(bad)))))
		refused(what, "WithEarlyRuns: every", second(ratelimit.New[int](good, ratelimit.WithEarlyRuns(1, time.Duration(bad)))))
		// These have no error: nothing is held, and there is no interval.
		if _, ok := ratelimit.Smear[int](time.Duration(bad), nil).Admit(1); !ok {
			t.Errorf("a window of %d holds a key", bad)
		}
		if d := ratelimit.Spread(time.Duration(bad), "a"); d != 0 {
			t.Errorf("Spread(%d) = %v", bad, d)
		}
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	throttled := &ratelimit.Error{Class: ratelimit.Throttled, After: time.Second}
	terminal := &ratelimit.Error{Class: ratelimit.Terminal}
	waiting := &ratelimit.Error{Class: ratelimit.Waiting, After: time.Minute}
	for name, tt := range map[string]struct {
		reason string
		err    error
		class  ratelimit.Class
		after  time.Duration
	}{
		"nil":           {"a success has no class", nil, 0, 0},
		"plain":         {"", errBoom, ratelimit.Transient, 0},
		"said":          {"", throttled, ratelimit.Throttled, time.Second},
		"wrapped":       {"", fmt.Errorf("a: %w", fmt.Errorf("b: %w", throttled)), ratelimit.Throttled, time.Second},
		"outermost":     {"who wraps knows more", &ratelimit.Error{Class: ratelimit.Waiting, Err: throttled}, ratelimit.Waiting, 0},
		"joined":        {"the most patient class and the longest floor", errors.Join(waiting, errBoom, throttled), ratelimit.Throttled, time.Minute},
		"one of two":    {"a retry may still help the other", errors.Join(terminal, errBoom), ratelimit.Transient, 0},
		"all terminal":  {"nothing can be helped", errors.Join(terminal, fmt.Errorf("x: %w", terminal)), ratelimit.Terminal, 0},
		"conflict":      {"", errors.Join(&ratelimit.Error{Class: ratelimit.Conflict}, waiting), ratelimit.Conflict, time.Minute},
		"zero class":    {"", &ratelimit.Error{}, ratelimit.Transient, 0},
		"unknown class": {"", &ratelimit.Error{Class: 99, After: -time.Second}, ratelimit.Transient, 0},
		"nil pointer":   {"", (*ratelimit.Error)(nil), ratelimit.Transient, 0},
	} {
		got := ratelimit.Classify(tt.err)
		if got.Class != tt.class || got.After != tt.after || !errors.Is(got.Err, tt.err) {
			t.Errorf("%s (%s): %v", name, tt.reason, got)
		}
	}
	known := func(err error) (ratelimit.Error, bool) {
		return ratelimit.Error{Class: ratelimit.Conflict}, err == errBoom
	}
	if got := ratelimit.Classify(errors.Join(errBoom, waiting), known); got.Class != ratelimit.Conflict {
		t.Errorf("a known error is %v", got.Class)
	}
}

func TestParseRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		reason string
		value  string
		want   time.Duration
		ok     bool
	}{
		"seconds":       {"the usual form", "37", 37 * time.Second, true},
		"zero":          {"now is an answer", "0", 0, true},
		"spaces":        {"headers may have them", " 5 ", 5 * time.Second, true},
		"date":          {"the other form, RFC 9110", "Sun, 01 Mar 2026 10:01:30 GMT", 90 * time.Second, true},
		"past":          {"that time is over", "Sun, 01 Mar 2026 09:00:00 GMT", 0, true},
		"rfc 850":       {"recipients must accept it", "Sunday, 01-Mar-26 10:00:10 GMT", 10 * time.Second, true},
		"rfc 850, 1994": {"a year that looks 50 years ahead is past", "Sunday, 06-Nov-94 08:49:37 GMT", 0, true},
		"asctime":       {"this one, too", "Sun Mar  1 10:00:20 2026", 20 * time.Second, true},
		"huge":          {"not zero, not negative", "99999999999999999999", math.MaxInt64, true},
		"overflow":      {"a duration does not hold it", "9223372037", math.MaxInt64, true},
		"empty":         {"", "", 0, false},
		"negative":      {"the grammar has no sign", "-1", 0, false},
		"fraction":      {"nor a point", "1.5", 0, false},
		"nonsense":      {"", "soon", 0, false},
	} {
		if got, ok := ratelimit.ParseRetryAfter(tt.value, now); got != tt.want || ok != tt.ok {
			t.Errorf("%s (%s): %v, %v", name, tt.reason, got, ok)
		}
	}
}

// FuzzParseRetryAfter: never negative, and nothing but a number or a date is accepted.
func FuzzParseRetryAfter(f *testing.F) {
	for _, s := range []string{"37", "Sun, 01 Mar 2026 10:01:30 GMT", "Sunday, 01-Mar-26 10:00:10 GMT", "Sun Mar  1 10:00:20 2026", "-1", "1e9", "٣"} {
		f.Add(s)
	}
	now := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, value string) {
		d, ok := ratelimit.ParseRetryAfter(value, now)
		if d < 0 || !ok && d != 0 {
			t.Errorf("%q gives %v, %v", value, d, ok)
		}
	})
}
