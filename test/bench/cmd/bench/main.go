// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Command bench prints one line per metric and keeps the raw samples beside it.
//
//	bench [-pkg name] [-once] [-rounds 11] [-sample 150ms] [-dir .]
//
// It exits with 1 when a metric failed (with -once: when a benchmark did not run, for whatever reason) and with 2 when
// it was asked for something that does not exist.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/ashlar-go/ashlar/test/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, out, complain io.Writer) int {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(complain)
	pkg := flags.String("pkg", "", "only the metrics of this package")
	once := flags.Bool("once", false, "run one operation of each benchmark and judge no target")
	rounds := flags.Int("rounds", 11, "interleaved pairs per timing")
	sample := flags.Duration("sample", 150*time.Millisecond, "how long one side runs in one round")
	limit := flags.Duration("limit", 10*time.Minute, "longest time one side may take in one round")
	dir := flags.String("dir", ".", "directory of the benchmark modules")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	metrics := bench.Metrics()
	if err := bench.Validate(metrics); err != nil {
		fmt.Fprintln(complain, err)
		return 2
	}
	if *rounds < bench.MinRounds {
		fmt.Fprintf(complain, "read command line: rounds must be at least %d\n", bench.MinRounds)
		return 2
	}
	metrics, err := bench.Select(metrics, *pkg)
	if err != nil {
		fmt.Fprintln(complain, err)
		return 2
	}
	// Everything is built before anything is timed, so that no compiler runs beside a sample.
	built, failed := build(ctx, *dir, metrics, complain)
	exec := bench.Remember(bench.Programs(built, failed, *limit), metrics)
	if *once {
		return runOnce(ctx, exec, metrics, out)
	}
	return measure(ctx, exec, metrics, bench.Config{Rounds: *rounds, Sample: *sample}, filepath.Join(*dir, "out"), built, out, complain)
}

func build(ctx context.Context, dir string, metrics []bench.Metric, complain io.Writer) (map[string]bench.Program, map[string]error) {
	built, failed := map[string]bench.Program{}, map[string]error{}
	for _, m := range metrics {
		sides := []bench.Side{m.A}
		if m.B != nil {
			sides = append(sides, *m.B)
		}
		for _, s := range sides {
			if _, ok := built[s.Module]; ok || failed[s.Module] != nil {
				continue
			}
			p, err := bench.Build(ctx, dir, s.Module)
			if err != nil {
				fmt.Fprintln(complain, err)
				failed[s.Module] = err
				continue
			}
			built[s.Module] = p
		}
	}
	return built, failed
}

func runOnce(ctx context.Context, exec bench.Run, metrics []bench.Metric, out io.Writer) int {
	n := map[bench.Status]int{}
	for _, r := range bench.Once(ctx, exec, metrics) {
		n[r.Status()]++
		fmt.Fprintln(out, r.Line())
	}
	total(out, n)
	if n[bench.Fail]+n[bench.Skip] > 0 || n[bench.Pass] == 0 {
		return 1
	}
	return 0
}

func measure(ctx context.Context, exec bench.Run, metrics []bench.Metric, c bench.Config, dir string,
	built map[string]bench.Program, out, complain io.Writer,
) int {
	n := map[bench.Status]int{}
	for _, m := range metrics {
		r := bench.Measure(ctx, exec, m, c)
		pins := map[string]string{}
		for _, s := range []*bench.Side{&m.A, m.B} {
			if s == nil {
				continue
			}
			for path, version := range built[s.Module].Pins {
				pins[s.Module+" "+path] = version
			}
		}
		if _, err := bench.WriteSamples(dir, r, pins); err != nil {
			// A figure whose samples nobody can look at is no figure.
			r = bench.Result{Metric: m, Status: bench.Fail, Figure: r.Figure, Why: err.Error()}
		}
		n[r.Status]++
		fmt.Fprintln(out, r.Line())
		if r.Why != "" {
			fmt.Fprintf(complain, "%s %s: %s\n", r.Status, m.Name, r.Why)
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			break
		}
	}
	total(out, n)
	if n[bench.Fail] > 0 || n[bench.Pass]+n[bench.Skip] == 0 || ctx.Err() != nil {
		return 1
	}
	return 0
}

func total(out io.Writer, n map[bench.Status]int) {
	fmt.Fprintf(out, "bench: %d passed, %d failed, %d skipped\n", n[bench.Pass], n[bench.Fail], n[bench.Skip])
}
