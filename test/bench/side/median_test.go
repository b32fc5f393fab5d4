// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package side_test

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-go/ashlar/test/bench"
	"github.com/ashlar-go/ashlar/test/bench/side"
)

func TestMedianIsNotMovedByAFewSlowOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		b := side.Bench{Name: "a", Prepare: func() (side.Work, error) {
			return side.Median(side.Work{Do: func() error {
				if n++; n == 1 || n > 8 { // the one that warms up, and three of ten
					time.Sleep(time.Second)
				}
				time.Sleep(time.Millisecond)
				return nil
			}}), nil
		}}
		var out bytes.Buffer
		if err := side.Answer([]string{"-bench", "a", "-n", "10"}, &out, b); err != nil {
			t.Fatal(err)
		}
		r, err := bench.ParseReport(out.Bytes(), "a", 10)
		if err != nil {
			t.Fatal(err)
		}
		if got := time.Duration(r.Counts["p50"] / 10); got != time.Millisecond {
			t.Errorf("the median is %v, want 1ms", got)
		}
	})
}
