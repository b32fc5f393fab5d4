// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package proc_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/test/controlplane/internal/proc"
)

func numbered(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

func TestTail(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason, text, want string
	}{
		"short":  {"all of it", "one\ntwo\n", "one\ntwo"},
		"long":   {"only the end", numbered(1, 100), strings.TrimSpace(numbered(86, 100))},
		"huge":   {"only the end is read", numbered(1, 20000), strings.TrimSpace(numbered(19986, 20000))},
		"empty":  {"says so", "\n", "(the log is empty)"},
		"panic":  {"the reason, not the end of its stack trace", "before\npanic: boom\n" + numbered(1, 100), "panic: boom\n" + strings.TrimSpace(numbered(1, 14))},
		"signal": {"likewise", "before\nSIGSEGV: segmentation violation\n" + numbered(1, 9999), "SIGSEGV: segmentation violation\n" + strings.TrimSpace(numbered(1, 14))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "log")
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := proc.Tail(path); got != test.want {
				t.Errorf("%s: got:\n%s\nwant:\n%s", test.reason, got, test.want)
			}
		})
	}
	if got := proc.Tail("/nowhere/log"); !strings.Contains(got, "no log") {
		t.Errorf("without a file: got %q", got)
	}
}
