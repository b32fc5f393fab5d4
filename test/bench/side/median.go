// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package side

import (
	"slices"
	"time"
)

// Median also takes the time of each operation of w, and counts the median as p50, in nanoseconds. What delays a few
// operations on a busy machine does not move it.
func Median(w Work) Work {
	do := w.Do
	var took []time.Duration
	w.Do = func() error {
		start := time.Now()
		err := do()
		took = append(took, time.Since(start))
		return err
	}
	started := false
	w.Counts = func() map[string]int64 {
		if !started { // what came before warmed up
			started, took = true, took[:0]
		}
		if len(took) == 0 {
			return map[string]int64{"p50": 0}
		}
		slices.Sort(took)
		// A figure is a count divided by the operations.
		return map[string]int64{"p50": int64(took[len(took)/2]) * int64(len(took))}
	}
	return w
}
