// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ashlar_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// module is what `go mod edit -json` says of a go.mod.
type module struct {
	Module  struct{ Path string }
	Require []struct {
		Path, Version string
		Indirect      bool
	}
	Replace, Exclude, Retract, Tool []any
}

// directRequirements are all that the root module may require directly, and what for.
var directRequirements = map[string]string{
	"github.com/cilium/ebpf":               "bpfmap",
	"github.com/google/go-cmp":             "tests",
	"golang.org/x/sys":                     "bpfmap: errno and capabilities",
	"k8s.io/api":                           "objects in tests",
	"k8s.io/apimachinery":                  "conditions, ownership and everything above them",
	"k8s.io/client-go":                     "csaupgrade, the workqueue interface",
	"sigs.k8s.io/controller-runtime":       "the client of statussync, finalizers and ownership/apply",
	"sigs.k8s.io/json":                     "conversion decodes as the API server does",
	"sigs.k8s.io/structured-merge-diff/v6": "field sets of managedFields",
}

func TestRootModuleIsLight(t *testing.T) {
	t.Parallel()
	mod := readModule(t, ".")
	for what, list := range map[string][]any{
		"replace": mod.Replace, "exclude": mod.Exclude, "tool": mod.Tool,
	} {
		if len(list) > 0 {
			t.Errorf("go.mod has %d %s lines: a consumer does not inherit them, or inherits what it should not", len(list), what)
		}
	}
	for _, req := range mod.Require {
		if _, ok := directRequirements[req.Path]; !ok && !req.Indirect {
			t.Errorf("go.mod requires %s directly, which the list of direct requirements does not hold", req.Path)
		}
	}
}

// TestPins compares every go.mod with the one table of shared versions.
func TestPins(t *testing.T) {
	t.Parallel()
	pins := readPins(t)
	compared := 0
	for _, dir := range moduleDirs(t) {
		if strings.HasPrefix(dir, "test/bench/") {
			continue // a peer decides about its own versions
		}
		for _, req := range readModule(t, dir).Require {
			pin, pinned := pins[req.Path]
			if !pinned || req.Indirect {
				continue
			}
			compared++
			if req.Version != pin {
				t.Errorf("%s/go.mod requires %s %s, tools/pins.tsv says %s: run tools/tidy", dir, req.Path, req.Version, pin)
			}
		}
	}
	if compared == 0 {
		t.Error("no requirement was compared: is tools/pins.tsv empty?")
	}
}

// consumerRequires is the number of modules, ashlar included, in the go.mod of a
// consumer that imports one package and nothing else.
var consumerRequires = map[string]int{
	"ratelimit":                1,
	"bpfmap":                   3,
	"conversion":               13,
	"conditions":               18,
	"ownership":                18,
	"statussync":               56,
	"finalizers":               56,
	"ownership/apply":          56,
	"conversion/migrate":       56,
	"ratelimit/reconcilelimit": 56,
}

// TestConsumerRequires makes a module per package, imports that package and counts.
func TestConsumerRequires(t *testing.T) {
	t.Parallel()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	counted := 0
	for _, pkg := range slices.Sorted(maps.Keys(consumerRequires)) {
		if _, err := os.Stat(pkg); os.IsNotExist(err) {
			continue // the row stands before its package
		}
		counted++
		t.Run(pkg, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, filepath.Join(dir, "go.mod"), fmt.Sprintf(
				"module consumer\n\ngo 1.26.0\n\nrequire %s v0.0.0\n\nreplace %s => %s\n", modulePath, modulePath, root))
			write(t, filepath.Join(dir, "go.sum"), string(sums))
			write(t, filepath.Join(dir, "main.go"), fmt.Sprintf("package main\n\nimport _ %q\n\nfunc main() {}\n", modulePath+"/"+pkg))
			tidy := exec.Command("go", "mod", "tidy")
			tidy.Dir = dir
			if out, err := tidy.CombinedOutput(); err != nil {
				t.Fatalf("go mod tidy: %v\n%s", err, out)
			}
			mod := readModule(t, dir)
			if got, limit := len(mod.Require), consumerRequires[pkg]; got > limit {
				var paths []string
				for _, req := range mod.Require {
					paths = append(paths, req.Path)
				}
				t.Errorf("a consumer of %s gets %d requires, at most %d are promised:\n  %s", pkg, got, limit, strings.Join(paths, "\n  "))
			} else {
				t.Logf("%s: %d requires", pkg, got)
			}
		})
	}
	if counted == 0 {
		t.Error("no package was counted")
	}
}

func readModule(t *testing.T, dir string) module {
	t.Helper()
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go mod edit -json in %s: %v", dir, err)
	}
	var mod module
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatalf("go mod edit -json in %s: %v", dir, err)
	}
	return mod
}

// moduleDirs lists the folders that hold a go.mod, the root first.
func moduleDirs(t *testing.T) []string {
	t.Helper()
	var dirs []string
	walk(t, func(path string) {
		if filepath.Base(path) == "go.mod" {
			dirs = append(dirs, filepath.ToSlash(filepath.Dir(path)))
		}
	})
	if len(dirs) == 0 {
		t.Fatal("no go.mod found")
	}
	return dirs
}

func readPins(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile("tools/pins.tsv")
	if err != nil {
		t.Fatal(err)
	}
	pins := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		path, version, ok := strings.Cut(line, "\t")
		if !ok {
			t.Fatalf("tools/pins.tsv: a line without a tab: %q", line)
		}
		pins[path] = version
	}
	return pins
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
