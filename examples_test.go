// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ashlar_test

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestExamples holds every entry point of the library to an example whose output is checked: the functions of a package
// except its options, the methods that take a context, and the verbs of the one grammar.
func TestExamples(t *testing.T) {
	t.Parallel()
	source, tests := map[string][]*ast.File{}, map[string][]*ast.File{} // by folder
	fset := token.NewFileSet()
	walk(t, func(path string) {
		dir := filepath.ToSlash(filepath.Dir(path))
		if !strings.HasSuffix(path, ".go") || nested(dir) || dir == "." {
			return
		}
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(path, "_test.go") {
			tests[dir] = append(tests[dir], file)
		} else {
			source[dir] = append(source[dir], file)
		}
	})
	if len(source) == 0 {
		t.Fatal("no package found")
	}
	for _, dir := range slices.Sorted(maps.Keys(source)) {
		if strings.HasPrefix(dir, "internal/") {
			continue // nobody outside can call it
		}
		for _, missing := range withoutExample(source[dir], tests[dir]) {
			t.Errorf("%s: %s", dir, missing)
		}
	}
}

// TestExampleRules shows that each rule can fail.
func TestExampleRules(t *testing.T) {
	t.Parallel()
	const output = "{\n// Output:\n}\n"
	for name, test := range map[string]struct {
		reason, source, tests string
		want                  int
	}{
		"function":        {"a way in", "func Read() {}", "", 1},
		"shown":           {"clean", "func Read() {}", "func ExampleRead() " + output, 0},
		"another case":    {"a suffix tells examples of one thing apart", "func Read() {}", "func ExampleRead_twice() " + output, 0},
		"unchecked":       {"an example that nobody runs rots", "func Read() {}", "func ExampleRead() {}", 2},
		"option":          {"the example of what takes it shows it", "type Option int\nfunc WithClock() Option { return 0 }", "", 0},
		"constructor":     {"the type's example shows it", "type Set int\nfunc NewSet() *Set { return nil }", "func ExampleSet() " + output, 0},
		"verb":            {"the one grammar", "type Set int\nfunc (*Set) Explain() {}", "", 1},
		"shown verb":      {"clean", "type Set int\nfunc (*Set) Explain() {}", "func ExampleSet_Explain() " + output, 0},
		"context":         {"it may send something", "type Set int\nfunc (*Set) Hold(ctx context.Context) {}", "", 1},
		"getter":          {"its sentence is enough", "type Set int\nfunc (*Set) Name() {}", "", 0},
		"private":         {"nobody sees it", "type set int\nfunc (*set) Plan() {}\nfunc read() {}", "", 0},
		"generic":         {"type parameters change nothing", "type Set[K any] int\nfunc (*Set[K]) Plan() {}", "", 1},
		"another package": {"an example of another name shows nothing", "func Read() {}", "func ExampleWrite() " + output, 1},
	} {
		parse := func(text string) []*ast.File {
			file, err := parser.ParseFile(token.NewFileSet(), "p_test.go", "package p\n"+text, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			return []*ast.File{file}
		}
		if got := withoutExample(parse(test.source), parse(test.tests)); len(got) != test.want {
			t.Errorf("%s (%s): %d complaints %q, want %d", name, test.reason, len(got), got, test.want)
		}
	}
}

var grammar = []string{"Plan", "Apply", "Sync", "Check", "Explain", "Sweep"}

func withoutExample(source, tests []*ast.File) (out []string) {
	shown := map[string]bool{}
	for _, example := range doc.Examples(tests...) {
		if example.Output == "" && !example.EmptyOutput {
			out = append(out, fmt.Sprintf("Example%s has no output, so nobody checks it", example.Name))
			continue
		}
		shown[example.Name] = true
		if i := strings.LastIndexByte(example.Name, '_'); i > 0 && !ast.IsExported(example.Name[i+1:]) {
			shown[example.Name[:i]] = true
		}
	}
	for _, file := range source {
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() || !exportedReceiver(f) {
				continue
			}
			name := f.Name.Name
			switch {
			case f.Recv == nil && strings.HasPrefix(name, "With"):
			case f.Recv == nil:
				if !shown[name] && !slices.ContainsFunc(results(f), func(t string) bool { return shown[t] }) {
					out = append(out, fmt.Sprintf("%s has no Example%s", name, name))
				}
			case slices.Contains(grammar, name) || takesContext(f):
				if method := receiver(f) + "_" + name; !shown[method] {
					out = append(out, fmt.Sprintf("%s.%s has no Example%s", receiver(f), name, method))
				}
			}
		}
	}
	return out
}

// results are the names of the types that a function returns, as far as they are of its own package.
func results(f *ast.FuncDecl) (out []string) {
	if f.Type.Results == nil {
		return nil
	}
	for _, result := range f.Type.Results.List {
		t := result.Type
		if star, ok := t.(*ast.StarExpr); ok {
			t = star.X
		}
		switch generic := t.(type) {
		case *ast.IndexExpr:
			t = generic.X
		case *ast.IndexListExpr:
			t = generic.X
		}
		if id, ok := t.(*ast.Ident); ok {
			out = append(out, id.Name)
		}
	}
	return out
}

// receiver is the name of a method's type, without star and type parameters.
func receiver(f *ast.FuncDecl) (name string) {
	ast.Inspect(f.Recv.List[0].Type, func(node ast.Node) bool {
		if id, ok := node.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return name == ""
	})
	return name
}

func takesContext(f *ast.FuncDecl) bool {
	for _, param := range f.Type.Params.List {
		if sel, ok := param.Type.(*ast.SelectorExpr); ok && sel.Sel.Name == "Context" {
			return true
		}
	}
	return false
}
