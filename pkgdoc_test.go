// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ashlar_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const header = "// Copyright The Ashlar Authors\n// SPDX-License-Identifier: Apache-2.0\n"

// TestHeaders holds every Go file of every module to the two-line licence header.
func TestHeaders(t *testing.T) {
	t.Parallel()
	seen := 0
	walk(t, func(path string) {
		if !strings.HasSuffix(path, ".go") {
			return
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		seen++
		rest, ok := bytes.CutPrefix(data, []byte(header))
		if !ok && !bytes.Contains(data, []byte("\n"+header)) {
			t.Errorf("%s does not start with the licence header", path)
		}
		if ok && !bytes.HasPrefix(rest, []byte("\n")) {
			t.Errorf("%s: the licence header must be followed by a blank line, or it becomes documentation", path)
		}
	})
	if seen == 0 {
		t.Error("no Go file found")
	}
}

// TestLibraryRules reads the source of every package of the root module.
func TestLibraryRules(t *testing.T) {
	t.Parallel()
	files := map[string][]*ast.File{} // by folder
	fset := token.NewFileSet()
	walk(t, func(path string) {
		dir := filepath.ToSlash(filepath.Dir(path))
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || nested(dir) {
			return
		}
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files[dir] = append(files[dir], file)
	})
	if len(files) == 0 {
		t.Fatal("no package found")
	}
	for dir, parsed := range files {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			docs := 0
			for _, file := range parsed {
				if file.Doc != nil {
					docs++
					if name := filepath.Base(fset.Position(file.Pos()).Filename); name != "doc.go" {
						t.Errorf("%s has the package comment, which belongs in doc.go", name)
					}
				}
				for _, complaint := range complaints(file) {
					t.Errorf("%s: %s", fset.Position(complaint.pos), complaint.text)
				}
			}
			if docs != 1 {
				t.Errorf("%d package comments, want exactly one", docs)
			}
		})
	}
}

// TestComplaints shows that each rule can fail.
func TestComplaints(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason, source string
		want           int
	}{
		"init":                {"package state at start-up", "package p\nfunc init() {}", 1},
		"panic":               {"library code returns errors", "package p\nfunc f() { panic(1) }", 1},
		"panic in Must":       {"Must is the one place", "package p\n// MustX is X.\nfunc MustX() { panic(1) }", 0},
		"undocumented func":   {"every exported name", "package p\nfunc X() {}", 1},
		"undocumented type":   {"every exported name", "package p\ntype X int", 1},
		"undocumented field":  {"exported fields of exported structs", "package p\n// X is.\ntype X struct { Y int }", 1},
		"group comment":       {"one comment may serve a group of constants", "package p\n// All of them.\nconst ( A = 1\n B = 2 )", 0},
		"undocumented const":  {"neither group nor name", "package p\nconst ( A = 1 )", 1},
		"method of private":   {"nobody sees it", "package p\ntype x int\nfunc (x) Y() {}", 0},
		"generic private":     {"a type parameter is no name", "package p\ntype x[K any] int\nfunc (*x[K]) Y() {}", 0},
		"undocumented method": {"methods too", "package p\n// X is.\ntype X int\nfunc (X) Y() {}", 1},
		"documented":          {"clean", "package p\n// X is.\ntype X struct {\n\t// Y is.\n\tY int\n}\n", 0},
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "p.go", test.source, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if got := complaints(file); len(got) != test.want {
			t.Errorf("%s (%s): %d complaints %v, want %d", name, test.reason, len(got), got, test.want)
		}
	}
}

type complaint struct {
	pos  token.Pos
	text string
}

func complaints(file *ast.File) (out []complaint) {
	add := func(node ast.Node, text string) { out = append(out, complaint{node.Pos(), text}) }
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Name.Name == "init" && decl.Recv == nil {
				add(decl, "init runs before anybody asked: take what it needs as a parameter")
			}
			if decl.Name.IsExported() && decl.Doc == nil && exportedReceiver(decl) {
				add(decl, decl.Name.Name+" is exported and not documented")
			}
			if strings.HasPrefix(decl.Name.Name, "Must") || decl.Body == nil {
				continue
			}
			ast.Inspect(decl.Body, func(node ast.Node) bool {
				if call, ok := node.(*ast.CallExpr); ok {
					if fun, ok := call.Fun.(*ast.Ident); ok && fun.Name == "panic" {
						add(call, "panic outside a Must function")
					}
				}
				return true
			})
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if !spec.Name.IsExported() {
						continue
					}
					if decl.Doc == nil && spec.Doc == nil {
						add(spec, spec.Name.Name+" is exported and not documented")
					}
					if s, ok := spec.Type.(*ast.StructType); ok {
						undocumentedFields(s, add)
					}
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						if name.IsExported() && decl.Doc == nil && spec.Doc == nil && spec.Comment == nil {
							add(name, name.Name+" is exported and not documented")
						}
					}
				}
			}
		}
	}
	return out
}

// undocumentedFields accepts a comment above or beside a field, and one comment for
// a run of fields with no blank line between them.
func undocumentedFields(s *ast.StructType, add func(ast.Node, string)) {
	documented := false
	for _, field := range s.Fields.List {
		documented = documented || field.Doc != nil || field.Comment != nil
		for _, name := range field.Names {
			if name.IsExported() && !documented {
				add(name, "the field "+name.Name+" is exported and not documented")
			}
		}
	}
}

// exportedReceiver reports whether somebody outside can name the type of a method; a function has none.
func exportedReceiver(decl *ast.FuncDecl) bool {
	return decl.Recv == nil || len(decl.Recv.List) == 0 || ast.IsExported(receiver(decl))
}

// nested says whether a folder belongs to another module than the root.
func nested(dir string) bool {
	for _, prefix := range []string{"examples", "test", "tools"} {
		if dir == prefix || strings.HasPrefix(dir, prefix+"/") {
			return true
		}
	}
	return false
}

// walk calls visit with every file of the repository that is not hidden.
func walk(t *testing.T, visit func(path string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || entry.Name() == "bin"):
			return filepath.SkipDir
		case !entry.IsDir():
			visit(filepath.ToSlash(path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
