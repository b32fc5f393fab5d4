// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/test/bench"
)

// module writes a module of one file below dir.
func module(t *testing.T, dir, name, mod, main string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{"go.mod": mod, "main.go": main} {
		if err := os.WriteFile(filepath.Join(dir, name, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const speaks = `package main

import (
	"fmt"
	"os"
	"time"
)

func main() {
	switch os.Args[2] {
	case "good":
		fmt.Printf("{\"bench\":\"good\",\"n\":%s,\"ns\":5}\n", os.Args[4])
	case "slow":
		time.Sleep(time.Minute)
	default:
		fmt.Fprintln(os.Stderr, "run:", os.Args[2], "is not here")
		os.Exit(1)
	}
}
`

func TestBuildTellsAbsentFromBroken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	module(t, dir, "speaks", "module example.com/speaks\n\ngo 1.26.0\n", speaks)
	module(t, dir, "broken", "module example.com/broken\n\ngo 1.26.0\n", "package main\n\nfunc main() { undefined() }\n")
	module(t, dir, "unfetched", "module example.com/unfetched\n\ngo 1.26.0\n\nrequire example.com/peer v1.0.0\n\nreplace example.com/peer => ../nowhere\n",
		"package main\n\nimport _ \"example.com/peer\"\n\nfunc main() {}\n")
	module(t, dir, bench.Ours, "module example.com/ours\n\ngo 1.26.0\n\nrequire example.com/peer v1.0.0\n\nreplace example.com/peer => ../nowhere\n",
		"package main\n\nimport _ \"example.com/peer\"\n\nfunc main() {}\n")

	if _, err := bench.Build(t.Context(), dir, "missing"); !errors.Is(err, bench.ErrAbsent) {
		t.Errorf("no directory: got %v, want absent", err)
	}
	if _, err := bench.Build(t.Context(), dir, "unfetched"); !errors.Is(err, bench.ErrAbsent) {
		t.Errorf("dependency that cannot be had: got %v, want absent", err)
	}
	if _, err := bench.Build(t.Context(), dir, "broken"); err == nil || errors.Is(err, bench.ErrAbsent) || !strings.Contains(err.Error(), "undefined") {
		t.Errorf("does not compile: got %v, want the compiler's words and not absent", err)
	}
	if _, err := bench.Build(t.Context(), dir, bench.Ours); err == nil || errors.Is(err, bench.ErrAbsent) {
		t.Errorf("our own side: got %v, want an error that is not absent", err)
	}

	p, err := bench.Build(t.Context(), dir, "speaks")
	if err != nil {
		t.Fatal(err)
	}
	failed := map[string]error{"gone": fmt.Errorf("build gone: %w", bench.ErrAbsent)}
	run := bench.Programs(map[string]bench.Program{"speaks": p}, failed, 2*time.Second)
	if r, err := run(t.Context(), bench.Side{Module: "speaks", Bench: "good"}, 3); err != nil || r.N != 3 || r.NS != 5 {
		t.Errorf("good: got %+v, %v", r, err)
	}
	if _, err := run(t.Context(), bench.Side{Module: "speaks", Bench: "other"}, 1); err == nil || !strings.Contains(err.Error(), "other is not here") {
		t.Errorf("unknown benchmark: got %v, want the side's own words", err)
	}
	if _, err := run(t.Context(), bench.Side{Module: "speaks", Bench: "slow"}, 1); err == nil || !strings.Contains(err.Error(), "deadline") {
		t.Errorf("slow: got %v, want the limit", err)
	}
	if _, err := run(t.Context(), bench.Side{Module: "gone", Bench: "good"}, 1); !errors.Is(err, bench.ErrAbsent) {
		t.Errorf("failed module: got %v, want its error", err)
	}
	if _, err := run(t.Context(), bench.Side{Module: "never", Bench: "good"}, 1); err == nil || errors.Is(err, bench.ErrAbsent) {
		t.Errorf("module nobody built: got %v, want an error", err)
	}
}
