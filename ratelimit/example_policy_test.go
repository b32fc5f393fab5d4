// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit_test

import (
	"fmt"
	"time"

	"github.com/ashlar-go/ashlar/ratelimit"
)

// Bounds says between which waits the n-th failure has to choose.
func ExamplePolicy() {
	exp := ratelimit.Exp(time.Second, time.Minute)
	exp.Jitter = ratelimit.NoJitter()
	for _, n := range []int{1, 2, 7, 8} {
		fmt.Println(exp.Bounds(n))
	}
	flat := ratelimit.Flat(10 * time.Second)
	flat.Jitter = ratelimit.NoJitter()
	fmt.Println(flat.Bounds(100))
	// Output:
	// 1s 1s
	// 2s 2s
	// 1m0s 1m0s
	// 1m0s 1m0s
	// 10s 10s
}

func ExampleJitter() {
	p := ratelimit.Exp(10*time.Second, time.Minute)
	for _, j := range []ratelimit.Jitter{ratelimit.NoJitter(), ratelimit.EqualJitter(), ratelimit.FullJitter(), ratelimit.ProportionalJitter(0.1)} {
		p.Jitter = j
		low, high := p.Bounds(1)
		fmt.Println(j, low, high)
	}
	// Output:
	// none 10s 10s
	// equal 5s 10s
	// full 1ns 10s
	// ±0.1 9s 11s
}
