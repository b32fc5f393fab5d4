// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package side_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/test/bench"
	"github.com/ashlar-go/ashlar/test/bench/side"
)

func work(do func() error, counts func() map[string]int64) func() (side.Work, error) {
	return func() (side.Work, error) { return side.Work{Do: do, Counts: counts}, nil }
}

// These tests read the memory counters of the whole process, so they are not parallel.
func TestAnswerReportsWhatTheRunnerReads(t *testing.T) {
	var calls int64
	var kept []byte
	b := side.Bench{Name: "a", Prepare: work(
		func() error { calls++; kept = make([]byte, 1<<12); return nil },
		func() map[string]int64 { return map[string]int64{"calls": calls} },
	)}
	var out bytes.Buffer
	if err := side.Answer([]string{"-bench", "a", "-n", "50"}, &out, b); err != nil {
		t.Fatal(err)
	}
	r, err := bench.ParseReport(out.Bytes(), "a", 50)
	if err != nil {
		t.Fatal(err)
	}
	if r.Counts["calls"] != 50 || calls != 51 {
		t.Errorf("counted %d of %d calls, want 50 of 51: the one that warms up does not count", r.Counts["calls"], calls)
	}
	if r.Allocs < 50 || r.Bytes < 50<<12 {
		t.Errorf("got %d allocations of %d bytes, want at least 50 of 4096 each", r.Allocs, r.Bytes)
	}
	_ = kept
}

func TestAnswerList(t *testing.T) {
	var out bytes.Buffer
	if err := side.Answer([]string{"-list"}, &out, side.Bench{Name: "a"}, side.Bench{Name: "b"}); err != nil || out.String() != "a\nb\n" {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

func TestAnswerNeverReportsAFailure(t *testing.T) {
	n := 0
	late := func() error {
		if n++; n == 3 {
			return errors.New("lost")
		}
		return nil
	}
	benches := []side.Bench{
		{Name: "prepare", Prepare: func() (side.Work, error) { return side.Work{}, errors.New("no server") }},
		{Name: "empty", Prepare: work(nil, nil)},
		{Name: "first", Prepare: work(func() error { return errors.New("lost") }, nil)},
		{Name: "late", Prepare: work(late, nil)},
	}
	tests := map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"prepare":   {"a benchmark that cannot be set up has no figure", []string{"-bench", "prepare"}, "prepare: no server"},
		"empty":     {"nothing to time", []string{"-bench", "empty"}, "no operation"},
		"first":     {"the operation does not work at all", []string{"-bench", "first"}, "warm up: lost"},
		"late":      {"an operation that fails half way has no figure", []string{"-bench", "late", "-n", "5"}, "operation 2 of 5: lost"},
		"unknown":   {"a typo is not a zero", []string{"-bench", "nope"}, "no such benchmark"},
		"n":         {"nothing would be timed", []string{"-bench", "late", "-n", "0"}, "above zero"},
		"bad flags": {"the runner and the side have drifted apart", []string{"-count", "3"}, "not defined"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := side.Answer(tc.args, &out, benches...)
			if err == nil || !strings.Contains(err.Error(), tc.want) || out.Len() != 0 {
				t.Errorf("%s: got %q, %v, want nothing printed and %q", tc.reason, out.String(), err, tc.want)
			}
		})
	}
}

// What Prepare has started ends with the run, also with one that fails, and a failing end is no report.
func TestAnswerCloses(t *testing.T) {
	for name, do := range map[string]error{"a run": nil, "a failing run": errors.New("lost")} {
		closed := 0
		b := side.Bench{Name: "a", Prepare: func() (side.Work, error) {
			return side.Work{Do: func() error { return do }, Close: func() error { closed++; return errors.New("stuck") }}, nil
		}}
		var out bytes.Buffer
		err := side.Answer([]string{"-bench", "a"}, &out, b)
		if closed != 1 || err == nil || !strings.Contains(err.Error(), "stuck") || out.Len() > 0 {
			t.Errorf("%s: closed %d times, %v, printed %q", name, closed, err, out.String())
		}
	}
}
