// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"math"
	"time"
)

// ClientGo returns a Backoff whose When gives the same sequence as client-go's item exponential failure limiter: base,
// 2·base, 4·base, … longest, counting every call, without jitter, time to live and bound. Only its overflow is missing:
// where the doubling reaches 2^63 ns client-go returns a negative wait once, which a queue takes for "now". For the rest,
// such as the curves of the other classes, it is what [New] makes without options.
func ClientGo[K comparable](base, longest time.Duration) (*Backoff[K], error) {
	p := Exp(base, longest)
	p.Jitter = NoJitter()
	c := defaults(p)
	c.maxKeys = math.MaxInt
	b, err := build[K](c, nil)
	if err != nil {
		return nil, err
	}
	b.everyCall = true
	b.store.ttl = 0
	return b, nil
}
