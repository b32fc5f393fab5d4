// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
)

// Field names one figure of a side's [Report], per operation.
type Field string

// The figures every side reports. Any other Field is looked up in Report.Counts, such as "requests".
const (
	// Time is wall time per operation, in nanoseconds.
	Time Field = "ns"
	// CPU is processor time per operation, user and system, in nanoseconds; collecting garbage on the other core
	// counts, waiting does not.
	CPU Field = "cpu"
	// Allocs is heap allocations per operation, rounded down as testing.AllocsPerRun does.
	Allocs Field = "allocs"
	// P50 is the median time of an operation, which the side takes by itself (see side.Median). Peak is the most memory that
	// an operation had in use, which the garbage collector has a hand in.
	P50  Field = "p50"
	Peak Field = "peak"
)

// timed reports whether the figure depends on the machine, so that it needs interleaved rounds.
func (f Field) timed() bool { return f == Time || f == CPU || f == P50 || f == Peak }

// Op compares a figure with its target.
type Op string

// The comparisons a target may use.
const (
	AtMost Op = "<="
	Equal  Op = "=="
)

// holds reports whether the figure meets the target. NaN meets nothing.
func (o Op) holds(figure, target float64) bool {
	switch o {
	case AtMost:
		return figure <= target
	case Equal:
		return figure == target
	default:
		return false
	}
}

// Side names one benchmark of one module below this directory.
type Side struct {
	// Module is the module's directory, such as "ours" or "capi".
	Module string `json:"module"`
	// Bench is the name the module's program knows the benchmark by.
	Bench string `json:"bench"`
	// Per divides the figure, for a benchmark whose one operation handles many things. Zero means 1.
	Per float64 `json:"per,omitempty"`
}

// Metric is one figure with its target.
type Metric struct {
	// Name starts with Package and a dot; a metric against a peer ends in a slash and the peer's name.
	Name, Package string
	// Unit is printed after the figure: "ratio", "allocs", "requests".
	Unit   string
	Op     Op
	Target float64
	// Field is what is compared.
	Field Field
	// A is the side that is judged.
	A Side
	// B is the side A is divided by. Nil: the figure is A's own.
	B *Side
	// N is how many operations the promise is about; they are counted once. Zero: as many as a sample lasts, each round.
	N int64
}

var metricName = regexp.MustCompile(`^[a-z]+\.[a-zA-Z0-9_]+(/[a-z0-9-]+)?$`)

// validate finds a row that could never be judged.
func (m Metric) validate() error {
	var errs []error
	bad := func(rule string) { errs = append(errs, fmt.Errorf("metric %s: %s", m.Name, rule)) }
	if !metricName.MatchString(m.Name) {
		bad("name must be package.figure or package.figure/peer")
	}
	if m.Package == "" || len(m.Name) <= len(m.Package) || m.Name[:len(m.Package)+1] != m.Package+"." {
		bad("name must start with the package and a dot")
	}
	if m.Op != AtMost && m.Op != Equal {
		bad("op must be <= or ==")
	}
	if math.IsNaN(m.Target) || math.IsInf(m.Target, 0) || m.Target < 0 {
		bad("target must be a number, zero or more")
	}
	if m.Unit == "" || m.Field == "" || m.A.Module == "" || m.A.Bench == "" {
		bad("unit, field and side A must be set")
	}
	if m.N < 0 || m.N > 0 && m.Field.timed() {
		bad("a number of operations must be above zero and is for counts")
	}
	if m.B == nil && m.Field.timed() {
		bad("a timing needs two sides: nanoseconds of one machine say nothing")
	}
	if m.B != nil && (m.B.Module == "" || m.B.Bench == "") {
		bad("side B must name a module and a benchmark")
	}
	if m.B != nil && m.B.Module == m.A.Module && m.B.Bench == m.A.Bench {
		bad("both sides are the same benchmark")
	}
	return errors.Join(errs...)
}

// Validate finds rows that could never be judged and names used twice.
func Validate(metrics []Metric) error {
	var errs []error
	seen := map[string]bool{}
	for _, m := range metrics {
		errs = append(errs, m.validate())
		if seen[m.Name] {
			errs = append(errs, fmt.Errorf("metric %s: listed twice", m.Name))
		}
		seen[m.Name] = true
	}
	return errors.Join(errs...)
}

// Select returns the metrics of one package, all of them for "". A package without metrics is an error that lists
// those with.
func Select(metrics []Metric, pkg string) ([]Metric, error) {
	if pkg == "" {
		return metrics, nil
	}
	var out []Metric
	var known []string
	for _, m := range metrics {
		if m.Package == pkg {
			out = append(out, m)
		}
		if !slices.Contains(known, m.Package) {
			known = append(known, m.Package)
		}
	}
	if len(out) == 0 {
		slices.Sort(known)
		return nil, fmt.Errorf("select metrics: no package %q; there are %q", pkg, known)
	}
	return out, nil
}
