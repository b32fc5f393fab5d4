// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Run executes n operations of a side and returns its report.
type Run func(ctx context.Context, s Side, n int64) (Report, error)

// Programs returns a Run that starts the built programs. A module listed in failed answers with that error.
func Programs(built map[string]Program, failed map[string]error, limit time.Duration) Run {
	return func(ctx context.Context, s Side, n int64) (Report, error) {
		if err := failed[s.Module]; err != nil {
			return Report{}, err
		}
		p, ok := built[s.Module]
		if !ok {
			return Report{}, fmt.Errorf("run %s of %s: module was not built", s.Bench, s.Module)
		}
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		cmd := exec.CommandContext(ctx, p.Path, "-bench", s.Bench, "-n", strconv.FormatInt(n, 10))
		cmd.WaitDelay = 5 * time.Second
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			if ctx.Err() != nil {
				return Report{}, fmt.Errorf("run %s of %s, %d operations: %w after at most %v", s.Bench, s.Module, n, ctx.Err(), limit)
			}
			return Report{}, fmt.Errorf("run %s of %s: %w: %s", s.Bench, s.Module, err, lastLines(stderr.Bytes(), err))
		}
		return ParseReport(stdout.Bytes(), s.Bench, n)
	}
}

// Remember returns a Run under which the metrics about one fixed number of operations of a side share one run of them.
func Remember(run Run, metrics []Metric) Run {
	type promise struct {
		side Side
		n    int64
	}
	known := map[promise]*Report{}
	for _, m := range metrics {
		if m.N > 0 {
			known[promise{m.A, m.N}] = nil
		}
	}
	return func(ctx context.Context, s Side, n int64) (Report, error) {
		r, fixed := known[promise{s, n}]
		if r != nil {
			return *r, nil
		}
		got, err := run(ctx, s, n)
		if fixed && err == nil {
			known[promise{s, n}] = &got
		}
		return got, err
	}
}

// Config says how long to measure.
type Config struct {
	// Rounds of interleaved pairs, at least [MinRounds].
	Rounds int
	// Sample is how long one run of one side should take.
	Sample time.Duration
}

// countRounds is how often a count is taken: it does not depend on the machine, but a first run that differs from the
// later ones should show.
const countRounds = 3

// Measure judges one metric. It never returns an error: what goes wrong is the result's status and reason.
func Measure(ctx context.Context, run Run, m Metric, c Config) Result {
	samples, err := sample(ctx, run, m, c)
	if errors.Is(err, ErrAbsent) {
		return Result{Metric: m, Status: Skip, Figure: math.NaN(), Why: oneLine(err)}
	}
	if err != nil {
		return Result{Metric: m, Status: Fail, Figure: math.NaN(), Why: oneLine(err), Samples: samples}
	}
	return judge(m, samples)
}

func sample(ctx context.Context, run Run, m Metric, c Config) ([]Sample, error) {
	if m.Field.timed() && c.Rounds < MinRounds {
		return nil, fmt.Errorf("measure %s: %d rounds, a timing needs %d", m.Name, c.Rounds, MinRounds)
	}
	rounds := c.Rounds
	if !m.Field.timed() {
		rounds = countRounds
	}
	na, nb := m.N, m.N
	if m.N > 0 {
		rounds = 1
	} else {
		// Our side first: an absent peer must not hide that ours does not run.
		var err error
		if na, err = calibrate(ctx, run, m.A, c.Sample); err != nil {
			return nil, err
		}
		if m.B != nil {
			if nb, err = calibrate(ctx, run, *m.B, c.Sample); err != nil {
				return nil, err
			}
		}
	}
	samples := make([]Sample, 0, rounds)
	for i := range rounds {
		var s Sample
		var err error
		// Who goes first alternates, so that neither side always gets the caches the other one warmed.
		if i%2 == 0 || m.B == nil {
			s, err = pair(ctx, run, m, na, nb)
		} else {
			s, err = pairBFirst(ctx, run, m, na, nb)
		}
		if err != nil {
			return samples, err
		}
		if s.Figure, err = s.compute(m); err != nil {
			return samples, err
		}
		samples = append(samples, s)
	}
	return samples, nil
}

func pair(ctx context.Context, run Run, m Metric, na, nb int64) (Sample, error) {
	a, err := run(ctx, m.A, na)
	if err != nil || m.B == nil {
		return Sample{A: a}, err
	}
	b, err := run(ctx, *m.B, nb)
	return Sample{A: a, B: &b}, err
}

func pairBFirst(ctx context.Context, run Run, m Metric, na, nb int64) (Sample, error) {
	b, err := run(ctx, *m.B, nb)
	if err != nil {
		return Sample{}, err
	}
	a, err := run(ctx, m.A, na)
	return Sample{A: a, B: &b}, err
}

// compute is A's figure, divided by B's when there are two sides.
func (s Sample) compute(m Metric) (float64, error) {
	a, err := s.A.figure(m.Field, m.A.Per)
	if err != nil || m.B == nil {
		return a, err
	}
	b, err := s.B.figure(m.Field, m.B.Per)
	if err != nil {
		return 0, err
	}
	if b == 0 {
		return 0, fmt.Errorf("compare %s: %s reports zero %s, no ratio", m.Name, m.B.Bench, m.Field)
	}
	return a / b, nil
}

// calibrate finds how many operations last about as long as a sample should.
func calibrate(ctx context.Context, run Run, s Side, want time.Duration) (int64, error) {
	const most = 100_000_000
	n := int64(1)
	for range 6 {
		r, err := run(ctx, s, n)
		if err != nil {
			return 0, err
		}
		if r.NS >= int64(want)*3/4 || n == most {
			break
		}
		// At most a hundredfold a step: the first operations of a process are slow and would mislead.
		next := float64(n) * min(100, float64(want)/float64(r.NS))
		n = min(most, max(n+1, int64(next)))
	}
	return n, nil
}

// Once runs one operation of every side of the metrics, each side once, and judges nothing but that it ran. The
// results are in the order of first mention.
func Once(ctx context.Context, run Run, metrics []Metric) []OnceResult {
	var out []OnceResult
	seen := map[Side]bool{}
	for _, m := range metrics {
		for _, s := range []*Side{&m.A, m.B} {
			if s == nil {
				continue
			}
			key := Side{Module: s.Module, Bench: s.Bench}
			if seen[key] {
				continue
			}
			seen[key] = true
			r, err := run(ctx, key, 1)
			if err == nil && !m.Field.timed() {
				_, err = r.figure(m.Field, 1)
			}
			out = append(out, OnceResult{Side: key, Err: err})
		}
	}
	return out
}

// OnceResult is one benchmark that ran once, or why it did not.
type OnceResult struct {
	Side Side
	Err  error
}

// Status is PASS, FAIL, or SKIP when the side's module is absent.
func (r OnceResult) Status() Status {
	switch {
	case r.Err == nil:
		return Pass
	case errors.Is(r.Err, ErrAbsent):
		return Skip
	default:
		return Fail
	}
}

// Line is the one line of a benchmark that ran once: once <module>/<bench> PASS|FAIL|SKIP.
func (r OnceResult) Line() string {
	line := fmt.Sprintf("once %s/%s %s", r.Side.Module, r.Side.Bench, r.Status())
	if r.Err != nil {
		line += " " + oneLine(r.Err)
	}
	return line
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
