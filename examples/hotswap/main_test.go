// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The story, as it is told.
func TestStory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("attaching programs needs root")
	}
	var out bytes.Buffer
	if err := run(t.Context(), &out, 100); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{
		"100 upgrades", "0 lost or doubled", "one bit changed: object differs from the signed one",
		"signed by somebody else: signature does not verify",
		"by the verifier: ", "counter.c:", "rolled back to program",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("nothing about %q in\n%s", want, out.String())
		}
	}
	if n := strings.Count(out.String(), " 0 lost or doubled"); n != 3 {
		t.Errorf("%d exact counts, want 3", n)
	}
}

// The committed objects and bindings are those that the source makes: by the sums that were written with them, and where
// the same compiler is installed by making them again, in a copy.
func TestGeneratedMatchesTheSource(t *testing.T) {
	sums, err := os.ReadFile("bpf/SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	generated := 0
	for line := range strings.Lines(string(sums)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprintf("%x", sha256.Sum256(data)) != sum {
			t.Errorf("%s changed after the objects were made: run make generate", name)
		}
		if strings.Contains(name, "_bpfel.") {
			generated++
		}
	}
	if generated != 8 {
		t.Errorf("%d generated files", generated)
	}

	version, err := exec.Command("clang", "--version").Output()
	_, missing := exec.LookPath("llvm-strip")
	if err != nil || missing != nil || !bytes.Contains(version, []byte("clang version 14.")) {
		t.Log("not made again: clang 14 and llvm-strip are not installed")
		return
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	mod, err := exec.Command("go", "list", "-m", "-f", "{{with .Replace}}{{.Dir}}{{end}}", "github.com/ashlar-go/ashlar").Output()
	if err != nil {
		t.Fatal(err)
	}
	commands := [][]string{{"hack/generate.sh"}}
	if replaced := strings.TrimSpace(string(mod)); replaced != "" { // a path that means something else from there
		commands = append([][]string{{"go", "mod", "edit", "-replace", "github.com/ashlar-go/ashlar=" + replaced}}, commands...)
	}
	for _, args := range commands {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	made, err := os.ReadFile(filepath.Join(dir, "bpf/SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(made, sums) {
		t.Errorf("the source makes other files: run make generate\n%s\n%s", sums, made)
	}
}
