// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLanes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason, source string
		code           int
		want           []string
	}{
		"pass": {
			"subtests count, their parent does not",
			`func Test(t *testing.T) { t.Run("a", func(*testing.T) {}); t.Run("b", func(*testing.T) {}) }`,
			0, []string{"2 passed, 0 failed, 0 skipped", ": ok"},
		},
		"fail": {
			"what the test said is shown",
			`func Test(t *testing.T) { t.Error("told you") }`,
			1, []string{"0 passed, 1 failed", "told you"},
		},
		"skip": {
			"a skipped test is not a passed one",
			`func Test(t *testing.T) { t.Skip("no kernel") }; func TestB(*testing.T) {}`,
			1, []string{"1 passed, 0 failed, 1 skipped", "no kernel", "must not skip"},
		},
		"none": {"nothing ran", ``, 1, []string{"no test ran"}},
		"dead": {
			"a binary that dies is a failure and says what ran",
			`func Test(t *testing.T) { println("last words"); os.Exit(3) }; var _ = os.Args`,
			1, []string{"FAIL", "last words"},
		},
		"no build": {"a compile error is shown", `func Test(t *testing.T) { undefined() }`, 1, []string{"FAIL", "undefined: undefined"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			imports := "import \"testing\"\n"
			if strings.Contains(test.source, "os.") {
				imports += "import \"os\"\n"
			}
			write(t, dir, "go.mod", "module m\n\ngo 1.26.0\n")
			write(t, dir, "m_test.go", "package m\n\n"+imports+"\nvar _ testing.TB\n\n"+test.source+"\n")
			var out bytes.Buffer
			if code := run(&out, dir, filepath.Join(dir, "lanes"), name, []string{"go", "test", "-json", "./..."}); code != test.code {
				t.Errorf("%s: exit code %d, want %d", test.reason, code, test.code)
			}
			for _, want := range test.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%s: %q is missing in\n%s", test.reason, want, out.String())
				}
			}
			out.Reset()
			if code := total(&out, filepath.Join(dir, "lanes")); code != test.code {
				t.Errorf("%s: the closing line has exit code %d, want %d\n%s", test.reason, code, test.code, out.String())
			}
		})
	}
}

func TestOtherCommands(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	lanes := filepath.Join(t.TempDir(), "lanes")
	if code := total(&out, lanes); code != 1 {
		t.Errorf("no lane at all: exit code %d, want 1", code)
	}
	if code := run(&out, ".", lanes, "good", []string{"true"}); code != 0 {
		t.Errorf("a command that succeeds: exit code %d\n%s", code, out.String())
	}
	if code := run(&out, ".", lanes, "bad", []string{"false"}); code != 1 {
		t.Errorf("a command that fails: exit code %d\n%s", code, out.String())
	}
	out.Reset()
	if code := total(&out, lanes); code != 1 || !strings.HasSuffix(out.String(), "\n1 passed, 1 failed, 0 skipped\n") {
		t.Errorf("closing line, exit code %d:\n%s", code, out.String())
	}
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
