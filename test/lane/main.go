// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Command lane runs one lane of the test suite and says what really ran.
//
//	lane [-dir folder] [-lanes folder] name command…   runs the command as a lane
//	lane [-lanes folder] -close                        adds all lanes up
//
// A command that is `go test -json` is counted test by test: the lane fails if a
// test failed, if a test was skipped, or if no test ran. Any other command counts
// as one check. Every lane prints its time and leaves its counts in a file; -close
// prints the closing line and fails if a lane failed or none ran.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

func main() {
	dir := flag.String("dir", ".", "folder in which the command runs")
	lanes := flag.String("lanes", ".lanes", "folder that keeps the counts of the lanes")
	closing := flag.Bool("close", false, "print the closing line of all lanes")
	flag.Parse()
	if *closing {
		os.Exit(total(os.Stdout, *lanes))
	}
	if flag.NArg() < 2 {
		fmt.Fprintln(os.Stderr, "usage: lane [-dir folder] [-lanes folder] name command…")
		os.Exit(2)
	}
	os.Exit(run(os.Stdout, *dir, *lanes, flag.Arg(0), flag.Args()[1:]))
}

// result is what a lane leaves behind.
type result struct {
	Lane                    string
	Passed, Failed, Skipped int
	Seconds                 float64
	Broken                  string // why the lane failed though no test did
}

func (r result) ok() bool { return r.Failed == 0 && r.Skipped == 0 && r.Broken == "" && r.Passed > 0 }

// locked lets the command and the lane print to the same place.
type locked struct {
	mu  sync.Mutex
	out io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

func run(to io.Writer, dir, lanes, name string, args []string) int {
	out := &locked{out: to}
	fmt.Fprintf(out, "lane %s: %s\n", name, strings.Join(args, " "))
	start := time.Now()
	r := result{Lane: name}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	if slices.Contains(args, "-json") && slices.Contains(args, "test") {
		r = count(out, cmd, r)
	} else {
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Run(); err != nil {
			r.Failed = 1
			fmt.Fprintf(out, "lane %s: %v\n", name, err)
		} else {
			r.Passed = 1
		}
	}
	r.Seconds = time.Since(start).Seconds()
	fmt.Fprintln(out, r)
	if err := save(lanes, r); err != nil {
		fmt.Fprintf(out, "lane %s: keep the counts: %v\n", name, err)
		return 1
	}
	if !r.ok() {
		return 1
	}
	return 0
}

func (r result) String() string {
	verdict := "ok"
	switch {
	case r.Broken != "":
		verdict = "FAIL, " + r.Broken
	case r.Failed > 0:
		verdict = "FAIL"
	case r.Skipped > 0:
		verdict = "FAIL, a lane that was meant to run must not skip"
	case r.Passed == 0:
		verdict = "FAIL, no test ran"
	}
	return fmt.Sprintf("lane %s: %d passed, %d failed, %d skipped in %.0f s: %s", r.Lane, r.Passed, r.Failed, r.Skipped, r.Seconds, verdict)
}

// event is a line of `go test -json`.
type event struct {
	Action, Package, Test, Output string
}

// count runs `go test -json` and counts the tests that have no subtests: a parent
// says nothing that its subtests do not say.
func count(out io.Writer, cmd *exec.Cmd, r result) result {
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		r.Broken = err.Error()
		return r
	}
	cmd.Stderr = out
	if err := cmd.Start(); err != nil {
		r.Broken = err.Error()
		return r
	}
	verdicts := map[[2]string]string{}
	parents := map[[2]string]bool{}
	output := map[[2]string][]string{}
	for lines := bufio.NewReader(pipe); ; {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				out.Write(line) // what the build says is not JSON
				continue
			}
			at := [2]string{e.Package, e.Test}
			switch e.Action {
			case "output":
				// Progress of slow set-up must be seen while it happens.
				if strings.HasPrefix(e.Output, "progress: ") {
					fmt.Fprint(out, e.Output)
				}
				output[at] = append(output[at], e.Output)
			case "build-output":
				fmt.Fprint(out, e.Output)
			case "pass", "fail", "skip":
				verdicts[at] = e.Action
				if i := strings.LastIndex(e.Test, "/"); i > 0 {
					parents[[2]string{e.Package, e.Test[:i]}] = true
				}
				if e.Action == "fail" || e.Action == "skip" && e.Test != "" {
					fmt.Fprint(out, strings.Join(output[at], ""))
				}
				delete(output, at)
			}
		}
		if err != nil {
			break
		}
	}
	err = cmd.Wait()
	for at, verdict := range verdicts {
		if at[1] == "" || parents[at] && verdict != "fail" {
			continue
		}
		switch verdict {
		case "pass":
			r.Passed++
		case "fail":
			r.Failed++
		case "skip":
			r.Skipped++
		}
	}
	if err != nil && r.Failed == 0 {
		r.Broken = err.Error()
		for at, lines := range output { // tests that were running when the binary died
			fmt.Fprintf(out, "%s %s did not end:\n%s", at[0], at[1], strings.Join(lines, ""))
		}
	}
	return r
}

func save(lanes string, r result) error {
	if err := os.MkdirAll(lanes, 0o755); err != nil {
		return err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(lanes, strings.ReplaceAll(r.Lane, "/", "_")+".json"), data, 0o644)
}

// total prints a line per lane, slowest first, and the closing line.
func total(out io.Writer, lanes string) int {
	names, err := filepath.Glob(filepath.Join(lanes, "*.json"))
	if err != nil || len(names) == 0 {
		fmt.Fprintf(out, "no lane ran: %s is empty\n0 passed, 1 failed\n", lanes)
		return 1
	}
	var all []result
	for _, name := range names {
		var r result
		data, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(data, &r)
		}
		if err != nil {
			r = result{Lane: name, Failed: 1, Broken: err.Error()}
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b result) int { return cmp.Compare(b.Seconds, a.Seconds) })
	var sum result
	for _, r := range all {
		fmt.Fprintln(out, r)
		sum.Passed, sum.Failed, sum.Skipped = sum.Passed+r.Passed, sum.Failed+r.Failed, sum.Skipped+r.Skipped
		sum.Seconds += r.Seconds
		if !r.ok() && r.Failed == 0 {
			sum.Failed++
		}
	}
	fmt.Fprintf(out, "all lanes took %.0f s\n%d passed, %d failed, %d skipped\n", sum.Seconds, sum.Passed, sum.Failed, sum.Skipped)
	if sum.Failed > 0 || sum.Skipped > 0 || sum.Passed == 0 {
		return 1
	}
	return 0
}
