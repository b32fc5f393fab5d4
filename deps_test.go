// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ashlar_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const modulePath = "github.com/ashlar-go/ashlar"

// imports is the architecture: what a package may import beyond the standard
// library. "a/..." stands for a and everything below it. Do not edit it to make a
// build pass: what stands here decides how much every consumer has to download.
var imports = map[string][]string{
	".":                         nil,
	"conditions":                {"k8s.io/apimachinery/..."},
	"conditions/conditionstest": {"ashlar/conditions", "k8s.io/apimachinery/..."},
	"ownership":                 {"k8s.io/apimachinery/..."},
	"ownership/apply":           {"ashlar/ownership", "k8s.io/apimachinery/...", crt + "/pkg/client", crt + "/pkg/handler", crt + "/pkg/event", crt + "/pkg/reconcile", "k8s.io/client-go/util/workqueue"},
	"ownership/ownershiptest":   {"ashlar/ownership", "ashlar/ownership/apply", "k8s.io/apimachinery/...", crt + "/pkg/client"},
	"finalizers":                {"k8s.io/apimachinery/...", crt + "/pkg/client", "k8s.io/client-go/util/csaupgrade"},
	"finalizers/finalizerstest": {"ashlar/finalizers", "k8s.io/apimachinery/...", crt + "/pkg/client"},
	"statussync":                {"k8s.io/apimachinery/...", crt + "/pkg/client", "k8s.io/client-go/util/csaupgrade"},
	"conversion":                {"k8s.io/apimachinery/pkg/runtime/...", "sigs.k8s.io/json"},
	"conversion/conversiontest": {"ashlar/conversion", "k8s.io/apimachinery/pkg/runtime/...", "sigs.k8s.io/json"},
	"conversion/migrate":        {"ashlar/conversion", "k8s.io/apimachinery/...", crt + "/pkg/client"},
	"bpfmap":                    {"github.com/cilium/ebpf/...", "golang.org/x/sys/..."},
	"bpfmap/bpfmaptest":         {"ashlar/bpfmap", "github.com/cilium/ebpf/...", "golang.org/x/sys/..."},
	"bpfmap/prog":               {"ashlar/bpfmap", "github.com/cilium/ebpf/...", "golang.org/x/sys/..."},
	"bpfmap/sign":               nil,
	"bpfmap/sign/cmd/bpfsign":   {"ashlar/bpfmap/sign"},
	"ratelimit":                 nil,
	"ratelimit/ratelimittest":   {"ashlar/ratelimit"},
	"ratelimit/reconcilelimit":  {"ashlar/ratelimit", "k8s.io/apimachinery/...", "k8s.io/client-go/util/workqueue", crt + "/pkg/reconcile"},
	"reconciletest":             {"k8s.io/apimachinery/...", crt + "/pkg/client"},
}

const crt = "sigs.k8s.io/controller-runtime"

// never are the packages that no package of the root module may reach in any way.
var never = map[string]string{
	crt:                                  "the root alias pulls in the manager and flags",
	crt + "/pkg/builder":                 "a library does not build controllers",
	crt + "/pkg/manager":                 "a library does not run a manager",
	crt + "/pkg/log/zap":                 "callers choose their logger",
	"k8s.io/kubernetes":                  "not meant to be imported",
	"go.opentelemetry.io/otel/sdk":       "tracing belongs to the operator",
	"github.com/onsi/gomega":             "test frameworks would reach every consumer",
	"github.com/onsi/ginkgo/v2":          "test frameworks would reach every consumer",
	"github.com/stretchr/testify/assert": "test frameworks would reach every consumer",
}

// listed is what `go list -deps -json` says of a package.
type listed struct {
	ImportPath string
	Standard   bool
	Imports    []string
}

// TestImports holds the packages of the root module against the table.
func TestImports(t *testing.T) {
	t.Parallel()
	graph := list(t)
	own := 0
	for path, pkg := range graph {
		name, ok := inRoot(path)
		if !ok {
			continue
		}
		own++
		allowed, ok := imports[name]
		if !ok && !strings.HasPrefix(name, "internal/") {
			t.Errorf("%s has no row in the import table", name)
		}
		for _, imported := range pkg.Imports {
			if graph[imported].Standard || allows(allowed, imported) || strings.HasPrefix(imported, modulePath+"/internal/") {
				continue
			}
			t.Errorf("%s imports %s, which its row in the import table does not hold", name, imported)
		}
		for banned, why := range never {
			if chain := chain(graph, path, banned); chain != nil {
				t.Errorf("%s reaches %s (%s):\n  %s", name, banned, why, strings.Join(chain, "\n  → "))
			}
		}
	}
	if own < 2 {
		t.Errorf("%d packages found, that cannot be all", own)
	}
}

// TestImportRules shows that the rules can fail, on a graph made up for it.
func TestImportRules(t *testing.T) {
	t.Parallel()
	if allows([]string{"k8s.io/apimachinery/..."}, "k8s.io/apimachineryx/pkg") {
		t.Error("a prefix must end at a path element")
	}
	if !allows([]string{"k8s.io/apimachinery/..."}, "k8s.io/apimachinery/pkg/types") || !allows([]string{"ashlar/ownership"}, modulePath+"/ownership") {
		t.Error("what a row holds is allowed")
	}
	if allows(imports["conditions"], modulePath+"/ownership") {
		t.Error("a sibling must never be allowed")
	}
	graph := map[string]listed{"a": {Imports: []string{"b"}}, "b": {Imports: []string{"c"}}, "c": {}}
	if got := strings.Join(chain(graph, "a", "c"), " "); got != "a b c" {
		t.Errorf("the chain from a to c is %q", got)
	}
	if chain(graph, "c", "a") != nil {
		t.Error("there is no chain from c to a")
	}
}

// TestNoSiblings holds the table itself to the rule that only parent and child
// packages may import each other's way down.
func TestNoSiblings(t *testing.T) {
	t.Parallel()
	for name, allowed := range imports {
		for _, path := range allowed {
			sibling, ours := strings.CutPrefix(path, "ashlar/")
			if top, _, _ := strings.Cut(name, "/"); ours && sibling != top && !strings.HasPrefix(sibling, top+"/") {
				t.Errorf("the row of %s allows %s, a sibling", name, sibling)
			}
		}
	}
}

func allows(row []string, path string) bool {
	path = strings.Replace(path, modulePath+"/", "ashlar/", 1)
	return slices.ContainsFunc(row, func(allowed string) bool {
		if tree, ok := strings.CutSuffix(allowed, "/..."); ok {
			return path == tree || strings.HasPrefix(path, tree+"/")
		}
		return path == allowed
	})
}

// chain returns the shortest way of imports between two packages, nil if there is none.
func chain(graph map[string]listed, from, to string) []string {
	before := map[string]string{from: ""}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if at == to {
			var way []string
			for ; at != ""; at = before[at] {
				way = append(way, at)
			}
			slices.Reverse(way)
			return way
		}
		for _, next := range graph[at].Imports {
			if _, seen := before[next]; !seen {
				before[next] = at
				queue = append(queue, next)
			}
		}
	}
	return nil
}

func inRoot(path string) (name string, ok bool) {
	if path == modulePath {
		return ".", true
	}
	return strings.CutPrefix(path, modulePath+"/")
}

func list(t *testing.T) map[string]listed {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Standard,Imports", "./...")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	graph := map[string]listed{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg listed
		if err := dec.Decode(&pkg); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		graph[pkg.ImportPath] = pkg
	}
	if len(graph) == 0 {
		t.Fatal(fmt.Errorf("go list named no package of %v", slices.Sorted(maps.Keys(imports))))
	}
	return graph
}
