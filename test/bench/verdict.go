// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Status is what a metric came to.
type Status string

// PASS needs samples that meet the target; SKIP says that the peer could not be had, nothing else.
const (
	Pass Status = "PASS"
	Fail Status = "FAIL"
	Skip Status = "SKIP"
)

// Result is a judged metric.
type Result struct {
	Metric  Metric
	Status  Status
	Figure  float64 // NaN when there is none
	Why     string  // for FAIL without a figure and for SKIP
	Samples []Sample
}

// Sample is one round: what each side reported and what the round came to.
type Sample struct {
	A      Report  `json:"a"`
	B      *Report `json:"b,omitempty"`
	Figure float64 `json:"figure"`
}

// Line is the one line of a metric. Figures have four significant digits; a metric without one prints a dash.
//
//	metric <name> <value> <unit> target <op> <value> PASS|FAIL|SKIP
func (r Result) Line() string {
	figure := "-"
	if !math.IsNaN(r.Figure) {
		figure = number(r.Figure)
	}
	return fmt.Sprintf("metric %s %s %s target %s %s %s",
		r.Metric.Name, figure, r.Metric.Unit, r.Metric.Op, number(r.Metric.Target), r.Status)
}

func number(f float64) string {
	short, err := strconv.ParseFloat(strconv.FormatFloat(f, 'g', 4, 64), 64)
	if err != nil {
		short = f
	}
	return strconv.FormatFloat(short, 'f', -1, 64)
}

// MinRounds is the least number of interleaved pairs a timing is judged on.
const MinRounds = 9

// judge turns the samples of a metric into its result: the median of the rounds for a timing, the worst round for a
// count, because a promise about requests or allocations holds in every round.
func judge(m Metric, samples []Sample) Result {
	r := Result{Metric: m, Status: Fail, Figure: math.NaN(), Samples: samples}
	if len(samples) == 0 {
		r.Why = "no samples"
		return r
	}
	if m.Field.timed() && len(samples) < MinRounds {
		r.Why = fmt.Sprintf("%d rounds, a timing needs %d", len(samples), MinRounds)
		return r
	}
	figures := make([]float64, 0, len(samples))
	for i, s := range samples {
		if math.IsNaN(s.Figure) || math.IsInf(s.Figure, 0) {
			r.Why = fmt.Sprintf("round %d has no finite figure", i+1)
			return r
		}
		figures = append(figures, s.Figure)
	}
	if m.Field.timed() {
		r.Figure = median(figures)
	} else {
		r.Figure = worst(m, figures)
	}
	if m.Op.holds(r.Figure, m.Target) {
		r.Status = Pass
	}
	return r
}

// median of a non-empty list; the mean of the middle two when there are two.
func median(list []float64) float64 {
	s := slices.Sorted(slices.Values(list))
	mid := len(s) / 2
	if len(s)%2 == 1 {
		return s[mid]
	}
	return (s[mid-1] + s[mid]) / 2
}

// worst is the figure farthest from the target on the wrong side.
func worst(m Metric, figures []float64) float64 {
	if m.Op == AtMost {
		return slices.Max(figures)
	}
	far := figures[0]
	for _, f := range figures {
		if math.Abs(f-m.Target) > math.Abs(far-m.Target) {
			far = f
		}
	}
	return far
}
