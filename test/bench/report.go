// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

// Report is what a side prints after running a benchmark: totals over N operations, as one JSON object.
type Report struct {
	Bench string `json:"bench"`
	N     int64  `json:"n"`
	// NS and CPU are nanoseconds, Allocs and Bytes what went to the heap.
	NS     int64 `json:"ns"`
	CPU    int64 `json:"cpu"`
	Allocs int64 `json:"allocs"`
	Bytes  int64 `json:"bytes"`
	// Counts are what the benchmark counts by itself, such as requests.
	Counts map[string]int64 `json:"counts,omitempty"`
}

// ParseReport reads what a side printed and refuses anything but the answer to what it was asked.
func ParseReport(out []byte, bench string, n int64) (Report, error) {
	fail := func(rule string) (Report, error) {
		return Report{}, fmt.Errorf("parse report of %s: %s: %.200q", bench, rule, out)
	}
	if len(bytes.TrimSpace(out)) == 0 {
		return fail("nothing printed")
	}
	d := json.NewDecoder(bytes.NewReader(out))
	d.DisallowUnknownFields()
	var r Report
	if err := d.Decode(&r); err != nil {
		return fail(err.Error())
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fail("more than one object")
	}
	switch {
	case r.Bench != bench:
		return fail("another benchmark answered")
	case r.N != n:
		return fail(fmt.Sprintf("n is %d, asked for %d", r.N, n))
	case r.NS <= 0:
		return fail("ns must be above zero: nothing was timed")
	case r.CPU < 0 || r.Allocs < 0 || r.Bytes < 0:
		return fail("cpu, allocs and bytes must not be negative")
	}
	return r, nil
}

// figure is one field per operation.
func (r Report) figure(f Field, per float64) (float64, error) {
	if per == 0 {
		per = 1
	}
	n := float64(r.N) * per
	switch f {
	case Time:
		return float64(r.NS) / n, nil
	case CPU:
		if r.CPU == 0 {
			return 0, fmt.Errorf("read cpu of %s: nothing counted, the system does not tell or the run was too short", r.Bench)
		}
		return float64(r.CPU) / n, nil
	case Allocs:
		return math.Floor(float64(r.Allocs) / n), nil
	default:
		v, ok := r.Counts[string(f)]
		if !ok {
			return 0, fmt.Errorf("read %s of %s: the side does not count it", f, r.Bench)
		}
		return float64(v) / n, nil
	}
}
