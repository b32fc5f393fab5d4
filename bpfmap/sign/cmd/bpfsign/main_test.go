// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The way from a new key to a signature that is accepted and one that is not.
func TestRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, content string) {
		if err := os.WriteFile(path(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	do := func(args ...string) (string, error) {
		var out bytes.Buffer
		err := run(args, &out, func() time.Time { return now })
		return out.String(), err
	}
	must := func(args ...string) string {
		t.Helper()
		out, err := do(args...)
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return out
	}
	write("flow.o", "object")
	must("keygen", "-out", path("release"))
	use := []string{"-object", path("flow.o"), "-program", "count", "-hook", "tcx/ingress", "-target", "eth0"}
	write("flow.json", must(append([]string{"manifest", "-key-id", "release", "-valid", "24h"}, use...)...))
	write("flow.sig", must("sign", "-key", path("release.key"), path("flow.json")))
	write("flow.bundle", must("sign", "-bundle", "-key", path("release.key"), path("flow.json")))

	check := append([]string{"verify", "-keys", path("release.pub")}, use...)
	for _, name := range []string{"flow.sig", "flow.bundle"} {
		if out := must(append(check, path("flow.json"), path(name))...); !strings.Contains(out, "count at tcx/ingress eth0 until 2026-03-02") {
			t.Errorf("%s: %q", name, out)
		}
	}
	now = now.Add(24 * time.Hour)
	if _, err := do(append(check, path("flow.json"), path("flow.sig"))...); err == nil || !strings.Contains(err.Error(), "not valid now") {
		t.Errorf("a day later: %v", err)
	}
	now = now.Add(-time.Hour)
	write("flow.o", "Object")
	if _, err := do(append(check, path("flow.json"), path("flow.sig"))...); err == nil || !strings.Contains(err.Error(), "differs") {
		t.Errorf("another object: %v", err)
	}
	if _, err := do("keygen", "-out", path("release")); err == nil {
		t.Error("a key was overwritten")
	}
	if _, err := do("publish"); err == nil {
		t.Error("an unknown command did something")
	}
}
