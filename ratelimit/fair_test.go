// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/ratelimit"
	"github.com/ashlar-go/ashlar/ratelimit/ratelimittest"
)

// item is a key of a tenant.
type item struct{ tenant, n int }

func tenantOf(i item) int { return i.tenant }

const noisy = 0

// TestFairOneNoisyTenant: one tenant with 100 000 keys at once against quiet ones, each of which asks at 45 % of its own
// share. A quiet key waits 2 / its rate at most, and what is let in altogether is the rate, no more and no less.
func TestFairOneNoisyTenant(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		reason  string
		tenants int
		rate    float64
		burst   int
		run     time.Duration
	}{
		"100 tenants":           {"the bar", 100, 1000, 100, time.Minute},
		"100 tenants, no burst": {"every token has to be there in time", 100, 1000, 1, time.Minute},
		"10 000 tenants":        {"the same with many", 10_000, 1000, 100, time.Minute},
		"2 tenants":             {"the smallest case", 2, 50, 5, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() {
				tt.run = 5 * time.Second // nothing here runs at the same time
			}
			clock := ratelimittest.NewClock()
			g, err := ratelimit.Fair(tenantOf, tt.rate, tt.burst, ratelimit.WithClock(clock.Now))
			if err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(1, uint64(tt.tenants)))
			c := ratelimittest.Crowd[item]{For: tt.run, Sleep: clock.Sleep}
			for n := range 100_000 {
				c.Arrivals = append(c.Arrivals, ratelimittest.Arrival[item]{Key: item{noisy, n}})
			}
			share := tt.rate / float64(tt.tenants)
			for tenant := 1; tenant < tt.tenants; tenant++ {
				at := time.Duration(r.Float64() / share * float64(time.Second))
				for n := 0; at < tt.run; n++ {
					c.Arrivals = append(c.Arrivals, ratelimittest.Arrival[item]{At: at, Key: item{tenant, n}})
					at += time.Duration(float64(time.Second) / share / 0.45)
				}
			}
			report := ratelimittest.Simulate(g, c)
			judgeFair(t, report, tt.rate, tt.burst, tt.run, func(item) float64 { return share })
			t.Logf("%d let in of %d, %.1f asks for each; longest quiet wait %v, 1/rate is %.3fs",
				len(report.Admitted), len(c.Arrivals), float64(report.Asks)/float64(len(report.Admitted)), longestQuiet(report).Wait(), 1/share)
		})
	}
}

func longestQuiet(r ratelimittest.Report[item]) (longest ratelimittest.Admission[item]) {
	for _, all := range [][]ratelimittest.Admission[item]{r.Admitted, r.Waiting} {
		for _, a := range all {
			if a.Key.tenant != noisy && (longest.Asks == 0 || a.Wait() > longest.Wait()) {
				longest = a
			}
		}
	}
	return longest
}

func judgeFair(t *testing.T, r ratelimittest.Report[item], rate float64, burst int, run time.Duration, share func(item) float64) {
	t.Helper()
	for _, fault := range r.Faults {
		t.Error(fault)
	}
	allowed := rate * run.Seconds()
	if n := float64(len(r.Admitted)); n < 0.99*allowed || n > 1.01*allowed+float64(burst) {
		t.Errorf("%v let in, %v were allowed, with a burst of %d", n, allowed, burst)
	}
	late := 0
	for _, all := range [][]ratelimittest.Admission[item]{r.Admitted, r.Waiting} {
		for _, a := range all {
			if bound := 2 / share(a.Key); a.Key.tenant != noisy && a.Wait().Seconds() > bound {
				if late++; late < 5 {
					t.Errorf("%v of a quiet tenant, there since %v, waits %v; %.3fs is the bound", a.Key, a.Arrived, a.Wait(), bound)
				}
			}
		}
	}
	if late > 0 {
		t.Errorf("%d quiet keys wait too long", late)
	}
}

// TestFairDividesByWeight: tenants that all want more than there is get what their weights say, while what one does not
// want goes to the others in the same proportion.
func TestFairDividesByWeight(t *testing.T) {
	t.Parallel()
	clock := ratelimittest.NewClock()
	const rate, run = 200.0, 50 * time.Second
	g, err := ratelimit.Fair(tenantOf, rate, 1, ratelimit.WithClock(clock.Now), ratelimit.WithWeight(1, 3), ratelimit.WithWeight(2, 0.5))
	if err != nil {
		t.Fatal(err)
	}
	c := ratelimittest.Crowd[item]{For: run, Sleep: clock.Sleep}
	for n := range 20_000 {
		for tenant := range 3 {
			c.Arrivals = append(c.Arrivals, ratelimittest.Arrival[item]{Key: item{tenant, n}})
		}
	}
	for n := range 250 { // tenant 3 wants 5 a second, far below its share
		c.Arrivals = append(c.Arrivals, ratelimittest.Arrival[item]{At: time.Duration(n) * run / 250, Key: item{3, n}})
	}
	r := ratelimittest.Simulate(g, c)
	got := map[int]float64{}
	for _, a := range r.Admitted {
		got[a.Key.tenant]++
	}
	rest := rate*run.Seconds() - 250
	for tenant, want := range map[int]float64{0: rest / 4.5, 1: rest * 3 / 4.5, 2: rest * 0.5 / 4.5, 3: 250} {
		if math.Abs(got[tenant]-want) > 0.02*want+2 {
			t.Errorf("tenant %d got %v runs, %.0f are its share: %v", tenant, got[tenant], want, got)
		}
	}
}

// TestFairLendsEverything: when the others leave, the one that is left has the whole rate at once, although its keys were
// sent away for the time they would have needed with company.
func TestFairLendsEverything(t *testing.T) {
	t.Parallel()
	clock := ratelimittest.NewClock()
	const rate = 100.0
	g, err := ratelimit.Fair(tenantOf, rate, 2, ratelimit.WithClock(clock.Now))
	if err != nil {
		t.Fatal(err)
	}
	c := ratelimittest.Crowd[item]{For: 60 * time.Second, Sleep: clock.Sleep}
	for tenant := 1; tenant < 50; tenant++ {
		for n := range 20 {
			c.Arrivals = append(c.Arrivals, ratelimittest.Arrival[item]{Key: item{tenant, n}})
		}
	}
	for n := range 8000 {
		c.Arrivals = append(c.Arrivals, ratelimittest.Arrival[item]{Key: item{noisy, n}})
	}
	r := ratelimittest.Simulate(g, c)
	if n := float64(len(r.Admitted)); n < 0.99*rate*60 || n > 1.01*rate*60+2 {
		t.Errorf("%v let in, %v were allowed", n, rate*60)
	}
	second := map[int]int{}
	for _, a := range r.Admitted {
		second[int(a.At.Seconds())]++
	}
	for s := range 59 {
		if second[s] < 80 { // a moment of transition is allowed
			t.Errorf("second %d has %d runs, the rate is %v", s, second[s], rate)
		}
	}
}

// TestFairKeepsOrder: within a tenant who comes first runs first, with and without the company of others that also want
// more than there is.
func TestFairKeepsOrder(t *testing.T) {
	t.Parallel()
	for name, tenants := range map[string]int{"alone": 1, "in company": 20} {
		t.Run(name, func(t *testing.T) {
			clock := ratelimittest.NewClock()
			g, err := ratelimit.Fair(tenantOf, 100, 5, ratelimit.WithClock(clock.Now))
			if err != nil {
				t.Fatal(err)
			}
			c := ratelimittest.Crowd[item]{Sleep: clock.Sleep}
			const keys = 300
			for n := range keys {
				for tenant := range tenants {
					c.Arrivals = append(c.Arrivals, ratelimittest.Arrival[item]{At: time.Duration(n) * time.Microsecond, Key: item{tenant, n}})
				}
			}
			r := ratelimittest.Simulate(g, c)
			next := make([]int, tenants)
			for _, a := range r.Admitted {
				if off := a.Key.n - next[a.Key.tenant]; off < -12 || off > 12 {
					t.Errorf("key %d of tenant %d runs as number %d", a.Key.n, a.Key.tenant, next[a.Key.tenant])
				}
				next[a.Key.tenant]++
			}
			if n := len(r.Admitted); n != keys*tenants {
				t.Errorf("%d of %d were let in", n, keys*tenants)
			}
		})
	}
}

// TestFairNewcomersWait: who comes while others wait goes behind them, also when those are late.
func TestFairNewcomersWait(t *testing.T) {
	t.Parallel()
	clock := ratelimittest.NewClock()
	g, err := ratelimit.Fair(func(string) string { return "all" }, 10, 2, ratelimit.WithClock(clock.Now))
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]bool{"first": true, "second": true} {
		if _, ok := g.Admit(key); ok != want {
			t.Errorf("%s: %t", key, ok)
		}
	}
	for _, key := range []string{"a", "b", "c"} {
		if wait, ok := g.Admit(key); ok || wait > 300*time.Millisecond {
			t.Errorf("%s: %v, %t; both tokens are gone", key, wait, ok)
		}
	}
	clock.Sleep(190 * time.Millisecond) // there is one token, and nobody has come for it
	if _, ok := g.Admit("newcomer"); ok {
		t.Error("a newcomer overtakes those who wait")
	}
	if wait, ok := g.Admit("b"); !ok {
		t.Errorf("who waits is sent away for %v", wait)
	}
}

// TestFairRounds: keys that want to run again and again take turns, also while other tenants come and go.
func TestFairRounds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		quiet  int
		rounds time.Duration // the longest wait, in rounds of all keys
		spread float64       // of the runs of a key, as a part of their mean
	}{
		"alone":      {0, 1, 0.02},
		"in company": {10, 12, 0.6}, // what is told is only right until somebody comes or goes
	} {
		t.Run(name, func(t *testing.T) {
			const rate, keys = 100, 500
			run := 5 * time.Minute
			if testing.Short() && tt.quiet == 0 {
				run = 30 * time.Second // nothing here runs at the same time
			}
			clock := ratelimittest.NewClock()
			g, err := ratelimit.Fair(tenantOf, rate, 5, ratelimit.WithClock(clock.Now))
			if err != nil {
				t.Fatal(err)
			}
			type visit struct {
				key       item
				at, since time.Duration
			}
			visits := []visit{}
			for n := range keys {
				visits = append(visits, visit{key: item{noisy, n}})
			}
			for n := range tt.quiet {
				visits = append(visits, visit{key: item{1 + n, 0}})
			}
			r := rand.New(rand.NewPCG(9, 9))
			runs, all, longest, now := [keys]float64{}, 0.0, time.Duration(0), time.Duration(0)
			for now < run {
				v := &visits[0]
				for i := range visits {
					if visits[i].at < v.at {
						v = &visits[i]
					}
				}
				clock.Sleep(v.at - now)
				now = v.at
				wait, ok := g.Admit(v.key)
				v.at += wait
				if !ok {
					continue
				}
				if v.key.tenant != noisy { // half of the rate, altogether
					v.at += time.Duration(r.ExpFloat64() * float64(tt.quiet) * float64(2*time.Second) / rate)
					continue
				}
				longest = max(longest, v.at-v.since)
				v.at += 50 * time.Millisecond
				v.since = v.at
				runs[v.key.n]++
				all++
			}
			for _, v := range visits {
				if v.key.tenant == noisy {
					longest = max(longest, now-v.since)
				}
			}
			round := time.Duration(keys / (all / now.Seconds()) * float64(time.Second))
			mean := all / keys
			t.Logf("%v longest, a round is %v; %v runs each, %v to %v", longest, round, mean, slices.Min(runs[:]), slices.Max(runs[:]))
			if longest > round*tt.rounds+round/10 {
				t.Errorf("a key waits for %v, a round takes %v", longest, round)
			}
			if low, high := slices.Min(runs[:]), slices.Max(runs[:]); low < mean*(1-tt.spread)-1 || high > mean*(1+tt.spread)+1 {
				t.Errorf("keys ran %v to %v times, %.1f on average", low, high, mean)
			}
		})
	}
}

// TestFairExtremes: whatever the numbers, a wait is above zero and the gate answers.
func TestFairExtremes(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{math.SmallestNonzeroFloat64, 1e-30, 1e-9, 1, 1e9, 1e30, math.MaxFloat64} {
		for _, weight := range []float64{1e-6, 1, 1e6} {
			for _, burst := range []int{1, 2, math.MaxInt} {
				clock := ratelimittest.NewClock()
				g, err := ratelimit.Fair(tenantOf, rate, burst, ratelimit.WithClock(clock.Now), ratelimit.WithWeight(1, weight), ratelimit.WithWeight(2, weight))
				if err != nil {
					t.Fatal(err)
				}
				for i := range 1000 {
					if wait, ok := g.Admit(item{i % 4, i % 250}); !ok && wait <= 0 {
						t.Fatalf("rate %v, weight %v, burst %d: sent away for %v", rate, weight, burst, wait)
					}
					clock.Sleep([]time.Duration{0, 1, time.Millisecond, time.Hour, math.MaxInt64}[i%5])
				}
			}
		}
	}
}

// TestFairGhosts: keys that never come back hold up their own tenant and nobody else, and it only for so long.
func TestFairGhosts(t *testing.T) {
	t.Parallel()
	clock := ratelimittest.NewClock()
	g, err := ratelimit.Fair(tenantOf, 10, 1, ratelimit.WithClock(clock.Now))
	if err != nil {
		t.Fatal(err)
	}
	for n := range 10_000 {
		g.Admit(item{noisy, n}) // and never again
	}
	var c ratelimittest.Crowd[item]
	c.Sleep = clock.Sleep
	for n := range 50 {
		c.Arrivals = append(c.Arrivals, ratelimittest.Arrival[item]{At: time.Duration(n) * time.Second, Key: item{1, n}})
		c.Arrivals = append(c.Arrivals, ratelimittest.Arrival[item]{At: time.Duration(n) * time.Second, Key: item{noisy, 100_000 + n}})
	}
	r := ratelimittest.NoStarvation(t, g, c, time.Minute)
	if quiet := longestQuiet(r); quiet.Wait() > time.Second {
		t.Errorf("%v waits %v behind keys that do not exist", quiet.Key, quiet.Wait())
	}
}

func TestFairRefuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		reason string
		tenant func(item) int
		rate   float64
		burst  int
		opts   []ratelimit.Option
		want   string
	}{
		"rate zero":      {"nothing would ever run", tenantOf, 0, 1, nil, "new fair gate: rate: 0 is not a finite number above zero"},
		"rate NaN":       {"comparisons with NaN are false", tenantOf, math.NaN(), 1, nil, "new fair gate: rate: NaN is not a finite number above zero"},
		"rate Inf":       {"that is no limit", tenantOf, math.Inf(1), 1, nil, "new fair gate: rate: +Inf is not a finite number above zero"},
		"rate negative":  {"", tenantOf, -1, 1, nil, "new fair gate: rate: -1 is not a finite number above zero"},
		"burst zero":     {"nothing would ever run", tenantOf, 1, 0, nil, "new fair gate: burst: 0 is not above zero"},
		"no tenant":      {"", nil, 1, 1, nil, "new fair gate: tenant: the function is nil"},
		"weight zero":    {"the tenant would starve", tenantOf, 1, 1, []ratelimit.Option{ratelimit.WithWeight(1, 0)}, "new fair gate: WithWeight: weight: 0 of tenant 1 is not between 1e-06 and 1e+06"},
		"weight NaN":     {"", tenantOf, 1, 1, []ratelimit.Option{ratelimit.WithWeight(1, math.NaN())}, "new fair gate: WithWeight: weight: NaN of tenant 1 is not between 1e-06 and 1e+06"},
		"weight Inf":     {"the others would starve", tenantOf, 1, 1, []ratelimit.Option{ratelimit.WithWeight(1, math.Inf(1))}, "new fair gate: WithWeight: weight: +Inf of tenant 1 is not between 1e-06 and 1e+06"},
		"weight huge":    {"the others would starve", tenantOf, 1, 1, []ratelimit.Option{ratelimit.WithWeight(1, 1e7)}, "new fair gate: WithWeight: weight: 1e+07 of tenant 1 is not between 1e-06 and 1e+06"},
		"max keys":       {"", tenantOf, 1, 1, []ratelimit.Option{ratelimit.WithMaxKeys(-1)}, "new fair gate: WithMaxKeys: -1 is not above zero"},
		"another type":   {"it would never match", tenantOf, 1, 1, []ratelimit.Option{ratelimit.WithWeight("a", 2)}, "new fair gate: WithWeight: the tenant a is a string, this gate has tenants of type int"},
		"another option": {"it would do nothing", tenantOf, 1, 1, []ratelimit.Option{ratelimit.WithTTL(time.Second)}, "new fair gate: WithTTL: means nothing here"},
	} {
		if _, err := ratelimit.Fair(tt.tenant, tt.rate, tt.burst, tt.opts...); err == nil || err.Error() != tt.want {
			t.Errorf("%s (%s): %v, want %s", name, tt.reason, err, tt.want)
		}
	}
}
