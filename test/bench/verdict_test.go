// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/test/bench"
)

// script answers runs from lists of nanoseconds per operation; the first two runs of a side calibrate.
type script struct {
	perOp map[string][]int64
	calls []string
	err   map[string]error
}

func (s *script) run(_ context.Context, side bench.Side, n int64) (bench.Report, error) {
	if err := s.err[side.Bench]; err != nil {
		return bench.Report{}, err
	}
	s.calls = append(s.calls, side.Bench)
	list := s.perOp[side.Bench]
	if len(list) == 0 {
		return bench.Report{}, fmt.Errorf("run %s: script is over", side.Bench)
	}
	s.perOp[side.Bench] = list[1:]
	return bench.Report{
		Bench: side.Bench, N: n, NS: list[0] * n, CPU: list[0] * n, Allocs: 3*n + n/2,
		Counts: map[string]int64{"requests": list[0] * n},
	}, nil
}

// config makes a thousand operations of one nanosecond a sample, reached in the second calibration run.
var config = bench.Config{Rounds: 9, Sample: time.Nanosecond}

func scripted(a, b []int64) *script {
	return &script{perOp: map[string][]int64{"a": append([]int64{1}, a...), "b": append([]int64{1}, b...)}}
}

func TestMeasureTakesTheMedianOfTheRatiosOfTheRounds(t *testing.T) {
	t.Parallel()
	// The machine is ten times slower in the last four rounds, for both sides. The ratio of the medians would be
	// 100/20 = 5; the median of the ratios is 0.5.
	s := scripted(
		[]int64{10, 10, 10, 10, 100, 100, 100, 100, 100},
		[]int64{20, 20, 20, 20, 20, 200, 200, 200, 200},
	)
	m := ratio()
	r := bench.Measure(t.Context(), s.run, m, config)
	if r.Status != bench.Pass || r.Figure != 0.5 || len(r.Samples) != 9 {
		t.Errorf("got %s %v with %d samples (%s), want PASS 0.5 with 9", r.Status, r.Figure, len(r.Samples), r.Why)
	}
	if got, want := strings.Join(s.calls, ""), "ab"+"abbaabbaabbaabbaab"; got != want {
		t.Errorf("order of runs: got %s, want calibration, then pairs with alternating first: %s", got, want)
	}
}

func TestMeasureFailsAboveTheTarget(t *testing.T) {
	t.Parallel()
	nine := []int64{1, 1, 1, 1, 1, 1, 1, 1, 1}
	s := scripted(nine, nine)
	m := ratio()
	m.Target = 0.99
	if r := bench.Measure(t.Context(), s.run, m, config); r.Status != bench.Fail || r.Figure != 1 {
		t.Errorf("above the target: got %s %v, want FAIL 1", r.Status, r.Figure)
	}
}

func TestMeasureWithEvenRoundsTakesTheMeanOfTheMiddle(t *testing.T) {
	t.Parallel()
	s := scripted(
		[]int64{1, 1, 1, 1, 1, 3, 3, 3, 3, 3},
		[]int64{10, 10, 10, 10, 10, 10, 10, 10, 10, 10},
	)
	r := bench.Measure(t.Context(), s.run, ratio(), bench.Config{Rounds: 10, Sample: time.Nanosecond})
	if math.Abs(r.Figure-0.2) > 1e-12 {
		t.Errorf("got %v, want (0.1+0.3)/2", r.Figure)
	}
}

func TestMeasureDividesPerThing(t *testing.T) {
	t.Parallel()
	nine := func(v int64) []int64 { return []int64{v, v, v, v, v, v, v, v, v} }
	s := scripted(nine(3000), nine(200))
	m := ratio()
	m.A.Per, m.B.Per = 3000, 100
	if r := bench.Measure(t.Context(), s.run, m, config); r.Figure != 0.5 {
		t.Errorf("got %v (%s), want (3000/3000)/(200/100)", r.Figure, r.Why)
	}
}

func TestMeasureJudgesACountByItsWorstRound(t *testing.T) {
	t.Parallel()
	s := &script{perOp: map[string][]int64{"a": {1, 0, 0, 1}}}
	m := count()
	if r := bench.Measure(t.Context(), s.run, m, config); r.Status != bench.Fail || r.Figure != 1 {
		t.Errorf("one round of three with a request: got %s %v (%s), want FAIL 1", r.Status, r.Figure, r.Why)
	}
	s = &script{perOp: map[string][]int64{"a": {1, 0, 0, 0}}}
	if r := bench.Measure(t.Context(), s.run, m, config); r.Status != bench.Pass || r.Figure != 0 {
		t.Errorf("no request: got %s %v (%s), want PASS 0", r.Status, r.Figure, r.Why)
	}
}

// A promise about a number of operations is about that many, in one run, which metrics share.
func TestMeasureCountsAFixedNumberOnce(t *testing.T) {
	t.Parallel()
	s := &script{perOp: map[string][]int64{"a": {1}}}
	m := count()
	m.N, m.Target = 10_000, 1
	other := m
	other.Name += "_too"
	run := bench.Remember(s.run, []bench.Metric{m, other})
	for _, m := range []bench.Metric{m, other} {
		r := bench.Measure(t.Context(), run, m, config)
		if r.Status != bench.Pass || r.Figure != 1 || len(r.Samples) != 1 || r.Samples[0].A.N != 10_000 {
			t.Errorf("%s: got %s %v (%s) from %+v", m.Name, r.Status, r.Figure, r.Why, r.Samples)
		}
	}
	if len(s.calls) != 1 {
		t.Errorf("%d runs", len(s.calls))
	}
	if r := bench.Measure(t.Context(), run, count(), config); r.Status != bench.Fail {
		t.Errorf("another number of operations was answered from memory: %+v", r)
	}
}

func TestMeasureRoundsAllocationsDown(t *testing.T) {
	t.Parallel()
	s := &script{perOp: map[string][]int64{"a": {1, 1, 1, 1}}}
	m := count()
	m.Field, m.Unit, m.Target = bench.Allocs, "allocs", 3
	if r := bench.Measure(t.Context(), s.run, m, bench.Config{Sample: time.Nanosecond}); r.Figure != 3 || r.Status != bench.Pass {
		t.Errorf("3.5 allocations per operation: got %v %s (%s), want 3 as AllocsPerRun counts", r.Figure, r.Status, r.Why)
	}
}

func TestMeasureWithoutSamplesFails(t *testing.T) {
	t.Parallel()
	nine := []int64{1, 1, 1, 1, 1, 1, 1, 1, 1}
	tests := map[string]struct {
		reason string
		script *script
		metric func(*bench.Metric)
		config bench.Config
		want   bench.Status
		why    string
	}{
		"our side missing": {
			reason: "no samples is FAIL",
			script: &script{err: map[string]error{"a": errors.New("no such benchmark")}},
			config: config, want: bench.Fail, why: "no such benchmark",
		},
		"our side missing and the peer absent": {
			reason: "an absent peer must not hide that ours does not run",
			script: &script{err: map[string]error{"a": errors.New("no such benchmark"), "b": bench.ErrAbsent}},
			config: config, want: bench.Fail, why: "no such benchmark",
		},
		"peer absent": {
			reason: "nobody is to blame, but nothing was shown either",
			script: &script{perOp: map[string][]int64{"a": nine}, err: map[string]error{"b": fmt.Errorf("build peer: %w", bench.ErrAbsent)}},
			config: config, want: bench.Skip, why: "build peer: absent",
		},
		"peer broken": {
			reason: "a peer that is there and does not run is our mistake",
			script: &script{perOp: map[string][]int64{"a": nine}, err: map[string]error{"b": errors.New("build peer: undefined: x")}},
			config: config, want: bench.Fail, why: "undefined: x",
		},
		"stopped half way": {
			reason: "five rounds are not nine",
			script: scripted(nine[:5], nine),
			config: config, want: bench.Fail, why: "script is over",
		},
		"too few rounds": {
			reason: "the least number of pairs is nine",
			script: scripted(nine, nine),
			config: bench.Config{Rounds: 8, Sample: time.Nanosecond}, want: bench.Fail, why: "needs 9",
		},
		"count not counted": {
			reason: "an unknown figure is not zero",
			script: &script{perOp: map[string][]int64{"a": nine}},
			metric: func(m *bench.Metric) { m.Field, m.B = "watches", nil },
			config: config, want: bench.Fail, why: "does not count it",
		},
		"zero below the line": {
			reason: "a ratio over zero is no figure",
			script: scripted(nine, []int64{0, 0, 0, 0}),
			metric: func(m *bench.Metric) { m.Field = "requests" },
			config: config, want: bench.Fail, why: "no ratio",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := ratio()
			if tc.metric != nil {
				tc.metric(&m)
			}
			r := bench.Measure(t.Context(), tc.script.run, m, tc.config)
			if r.Status != tc.want || !math.IsNaN(r.Figure) || !strings.Contains(r.Why, tc.why) {
				t.Errorf("%s: got %s %v %q, want %s without a figure, %q", tc.reason, r.Status, r.Figure, r.Why, tc.want, tc.why)
			}
			want := fmt.Sprintf("metric conditions.pass/peer - ratio target <= 0.5 %s", tc.want)
			if got := r.Line(); got != want {
				t.Errorf("line: got %q, want %q", got, want)
			}
		})
	}
}

func TestLine(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		figure float64
		target float64
		want   string
	}{
		"four digits": {
			reason: "more digits than the machine is steady are noise",
			figure: 0.0312345, target: 0.33,
			want: "metric conditions.pass/peer 0.03123 ratio target <= 0.33 PASS",
		},
		"zero": {
			reason: "a count of zero is a figure, not a dash",
			figure: 0, target: 0,
			want: "metric conditions.pass/peer 0 ratio target <= 0 PASS",
		},
		"tiny": {
			reason: "no exponent: the line is read by people and by awk",
			figure: 0.0000123456, target: 0.001,
			want: "metric conditions.pass/peer 0.00001235 ratio target <= 0.001 PASS",
		},
		"large": {
			reason: "no exponent on this side either",
			figure: 1234567, target: 2000000,
			want: "metric conditions.pass/peer 1235000 ratio target <= 2000000 PASS",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := ratio()
			m.Target = tc.target
			if got := (bench.Result{Metric: m, Status: bench.Pass, Figure: tc.figure}).Line(); got != tc.want {
				t.Errorf("%s:\n got %s\nwant %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestWriteSamplesKeepsEveryRound(t *testing.T) {
	t.Parallel()
	nine := []int64{1, 2, 3, 4, 5, 6, 7, 8, 9}
	r := bench.Measure(t.Context(), scripted(nine, []int64{10, 10, 10, 10, 10, 10, 10, 10, 10}).run, ratio(), config)
	path, err := bench.WriteSamples(t.TempDir(), r, map[string]string{"peer example.com/peer": "v1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(path, "/conditions.pass-vs-peer.json") {
		t.Errorf("path %s does not name the metric", path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Line    string            `json:"line"`
		Pins    map[string]string `json:"pins"`
		Samples []bench.Sample    `json:"samples"`
	}
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	if f.Line != r.Line() || len(f.Samples) != 9 || f.Pins["peer example.com/peer"] != "v1.2.3" {
		t.Fatalf("got line %q, %d samples, pins %v", f.Line, len(f.Samples), f.Pins)
	}
	for i, s := range f.Samples {
		if s.Figure != float64(i+1)/10 || s.A.NS != nine[i]*s.A.N || s.B == nil || s.B.NS != 10*s.B.N {
			t.Errorf("round %d: got %+v", i+1, s)
		}
	}
	if _, err := bench.WriteSamples(path, r, nil); err == nil {
		t.Error("writing below a file succeeded")
	}
}

func TestOnceRunsEachBenchmarkOnceAndJudgesNoTarget(t *testing.T) {
	t.Parallel()
	s := &script{
		perOp: map[string][]int64{"a": {7}},
		err:   map[string]error{"b": fmt.Errorf("build peer: %w", bench.ErrAbsent), "c": errors.New("it broke\nbadly")},
	}
	third := count()
	third.Name, third.A.Bench = "conditions.other", "c"
	var lines []string
	for _, r := range bench.Once(t.Context(), s.run, []bench.Metric{ratio(), count(), third}) {
		lines = append(lines, r.Line())
	}
	want := []string{"once ours/a PASS", "once peer/b SKIP build peer: absent", "once ours/c FAIL it broke badly"}
	if got := strings.Join(lines, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	if got := strings.Join(s.calls, ""); got != "a" {
		t.Errorf("runs: got %q, want a once though two metrics use it", got)
	}
}
