// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNothingRunsInTheBackground: no file of the package or of its kit starts a goroutine, makes a timer or a channel, or
// sleeps. The kit names time.Sleep once, for bubbles of testing/synctest.
func TestNothingRunsInTheBackground(t *testing.T) {
	t.Parallel()
	var files []string
	for _, dir := range []string{".", "reconcilelimit", "ratelimittest"} {
		found, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	files = slices.DeleteFunc(files, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	if len(files) < 30 {
		t.Fatalf("only %d files", len(files))
	}
	fset := token.NewFileSet()
	for _, name := range files {
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			what := ""
			switch n := n.(type) {
			case *ast.GoStmt:
				what = "a goroutine"
			case *ast.ChanType:
				what = "a channel"
			case *ast.SelectorExpr:
				pkg, ok := n.X.(*ast.Ident)
				if ok && pkg.Name == "time" && slices.Contains([]string{"Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}, n.Sel.Name) && name != filepath.Join("ratelimittest", "crowd.go") {
					what = "time." + n.Sel.Name
				}
			}
			if what != "" {
				t.Errorf("%v: %s", fset.Position(n.Pos()), what)
			}
			return true
		})
	}
}
