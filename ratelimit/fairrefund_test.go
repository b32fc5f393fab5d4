// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit_test

import (
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/ratelimit"
	"github.com/ashlar-go/ashlar/ratelimit/ratelimittest"
)

// then asks a fair gate and then another one, which refuses a tenant until a time: what reconcilelimit does with gates.
type then struct {
	fair    ratelimit.Gate[item]
	refused int // the tenant
	until   time.Time
	clock   *ratelimittest.Clock
	refunds int
}

func (g *then) Admit(key item) (time.Duration, bool) {
	wait, ok := g.fair.Admit(key)
	if ok && key.tenant == g.refused && g.clock.Now().Before(g.until) {
		g.fair.(interface{ Refund(item) }).Refund(key)
		g.refunds++
		return time.Second, false
	}
	return wait, ok
}

// TestFairLaterGateSaysNo: a tenant whose runs are all refused by a later gate for a minute asks again and again, and its
// charges are given back. That is no right to run before others: a quiet tenant waits no longer for it, the rate is there
// for the one that can use it, and when the tenant may run again it has its share and no more.
func TestFairLaterGateSaysNo(t *testing.T) {
	t.Parallel()
	const rate, refused, busy, quiet = 100, 0, 1, 2
	for _, burst := range []int{1, 10} {
		clock := ratelimittest.NewClock()
		fair, err := ratelimit.Fair(tenantOf, rate, burst, ratelimit.WithClock(clock.Now))
		if err != nil {
			t.Fatal(err)
		}
		g := &then{fair: fair, refused: refused, clock: clock, until: clock.Now().Add(time.Minute)}
		c := ratelimittest.Crowd[item]{Sleep: clock.Sleep, For: 2 * time.Minute}
		for n := range 10_000 {
			c.Arrivals = append(c.Arrivals, ratelimittest.Arrival[item]{Key: item{refused, n}}, ratelimittest.Arrival[item]{Key: item{busy, n}})
		}
		for n := range 1150 {
			c.Arrivals = append(c.Arrivals, ratelimittest.Arrival[item]{At: time.Duration(n) * 100 * time.Millisecond, Key: item{quiet, n}})
		}
		report := ratelimittest.Simulate[item](g, c)
		var runs [3][2]int
		var longest time.Duration
		for _, a := range report.Admitted {
			runs[a.Key.tenant][a.At/(time.Minute+1)]++
			if a.Key.tenant == quiet {
				longest = max(longest, a.Wait())
			}
		}
		if runs[quiet][0]+runs[quiet][1] != 1150 || longest > 100*time.Millisecond {
			t.Errorf("burst %d: %v of the quiet tenant have run, and waited up to %v", burst, runs[quiet], longest)
		}
		if least := []int{1: 4200, 10: 5300}[burst]; runs[busy][0] < least || g.refunds < 1000 {
			t.Errorf("burst %d: %d runs in the minute when nobody else wanted more than 10 a second, %d refunds", burst, runs[busy][0], g.refunds)
		}
		if runs[busy][1] < 2600 || runs[refused][1] > 2800 {
			t.Errorf("burst %d: %d runs a minute later, %d of the tenant that was refused", burst, runs[busy][1], runs[refused][1])
		}
	}
}
