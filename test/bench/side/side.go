// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package side is the half of the protocol that a benchmark program speaks: it prepares one benchmark, runs one
// operation to warm up, runs n operations by the clock and prints one report as JSON.
//
//	func main() { side.Main(side.Bench{Name: "conditions.pass20", Prepare: pass20}) }
//
// A program answers "-list" with the names it knows and "-bench name -n 1000" with the report. An unknown name or a
// failing operation is an exit code above zero and a sentence on standard error, never a report.
package side

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"
)

// Bench is one benchmark.
type Bench struct {
	Name string
	// Prepare builds everything the operation needs; it is not timed.
	Prepare func() (Work, error)
}

// Work is a prepared benchmark.
type Work struct {
	// Do is the operation. An error ends the run: a benchmark that does not do its work has no figure.
	Do func() error
	// Counts returns totals since Prepare of what the benchmark counts by itself, such as requests. Nil: nothing.
	Counts func() map[string]int64
	// Close releases what Prepare has started, whatever came of the run. Nil: nothing.
	Close func() error
}

// report mirrors bench.Report; the runner refuses unknown fields, so a drift between the two shows at once.
type report struct {
	Bench  string           `json:"bench"`
	N      int64            `json:"n"`
	NS     int64            `json:"ns"`
	CPU    int64            `json:"cpu"`
	Allocs int64            `json:"allocs"`
	Bytes  int64            `json:"bytes"`
	Counts map[string]int64 `json:"counts,omitempty"`
}

// Main answers the command line and ends the process when that failed.
func Main(benches ...Bench) {
	if err := Answer(os.Args[1:], os.Stdout, benches...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Answer is Main with its surroundings as arguments.
func Answer(args []string, out io.Writer, benches ...Bench) error {
	flags := flag.NewFlagSet("side", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	list := flags.Bool("list", false, "print the names of the benchmarks")
	name := flags.String("bench", "", "benchmark to run")
	n := flags.Int64("n", 1, "number of operations")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("read command line: %w", err)
	}
	if *list {
		for _, b := range benches {
			if _, err := fmt.Fprintln(out, b.Name); err != nil {
				return err
			}
		}
		return nil
	}
	if *n < 1 {
		return fmt.Errorf("run %s: n must be above zero", *name)
	}
	for _, b := range benches {
		if b.Name == *name {
			r, err := measure(b, *n)
			if err != nil {
				return fmt.Errorf("run %s: %w", b.Name, err)
			}
			return json.NewEncoder(out).Encode(r)
		}
	}
	return fmt.Errorf("run %q: no such benchmark", *name)
}

func measure(b Bench, n int64) (_ report, err error) {
	w, err := b.Prepare()
	if err != nil {
		return report{}, fmt.Errorf("prepare: %w", err)
	}
	if w.Close != nil {
		defer func() { err = errors.Join(err, w.Close()) }()
	}
	if w.Do == nil {
		return report{}, errors.New("prepare: no operation")
	}
	counts := w.Counts
	if counts == nil {
		counts = func() map[string]int64 { return nil }
	}
	// One operation fills pools and memories: the figures are those of a process that has been running.
	if err := w.Do(); err != nil {
		return report{}, fmt.Errorf("warm up: %w", err)
	}
	runtime.GC()
	before := counts()
	var m0, m1 runtime.MemStats
	runtime.ReadMemStats(&m0)
	cpu := processor()
	start := time.Now()
	for i := range n {
		if err := w.Do(); err != nil {
			return report{}, fmt.Errorf("operation %d of %d: %w", i+1, n, err)
		}
	}
	took := time.Since(start)
	cpu = processor() - cpu
	runtime.ReadMemStats(&m1)
	r := report{
		Bench: b.Name, N: n, NS: max(1, int64(took)), CPU: int64(cpu),
		Allocs: int64(m1.Mallocs - m0.Mallocs), Bytes: int64(m1.TotalAlloc - m0.TotalAlloc),
	}
	after := counts()
	if len(after) > 0 {
		r.Counts = make(map[string]int64, len(after))
		for k, v := range after {
			r.Counts[k] = v - before[k]
		}
	}
	return r, nil
}
