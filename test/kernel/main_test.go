// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ashlar-go/ashlar/bpfmap"
)

// bpffs is a bpf file system of this process's own, or the reason why there is none. TestMain sets both.
var bpffs, missing string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if job := os.Getenv(jobEnv); job != "" {
		return child(job)
	}
	probe, err := bpfmap.Open[uint32, uint32](bpfmap.Spec{Name: "probe", MaxEntries: 1})
	if err != nil {
		missing = fmt.Sprintf("needs root on a Linux kernel with bpf: %v", err)
		return m.Run()
	}
	if err := probe.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "ashlar-bpffs-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.Remove(dir)
	if err := unix.Mount("bpf", dir, "bpf", 0, "mode=0755"); err != nil {
		missing = fmt.Sprintf("cannot mount a bpf file system: %v", err)
		return m.Run()
	}
	bpffs = dir
	before := descriptors()
	code := m.Run()
	if left := leftovers(dir); code == 0 && len(left) > 0 {
		fmt.Fprintln(os.Stderr, "--- FAIL: tests left pinned:", left)
		code = 1
	}
	if after := descriptors(); code == 0 && after > before {
		fmt.Fprintf(os.Stderr, "--- FAIL: %d bpf descriptors were open before the tests, %d are after\n", before, after)
		code = 1
	}
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// descriptors counts this process's bpf objects.
func descriptors() (n int) {
	fds, _ := filepath.Glob("/proc/self/fd/*")
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "anon_inode:bpf") {
			n++
		}
	}
	return n
}

func leftovers(dir string) (out []string) {
	all, _ := filepath.Glob(dir + "/*/*")
	for _, path := range all {
		if !strings.HasSuffix(path, ".debug") {
			out = append(out, path)
		}
	}
	return out
}

// pins is a directory for the pins of one test, removed with them.
func pins(t *testing.T) string {
	t.Helper()
	if missing != "" {
		t.Skip(missing)
	}
	dir := filepath.Join(bpffs, strings.Map(func(r rune) rune {
		if r == '/' || r == '.' || r == '#' {
			return '_'
		}
		return r
	}, t.Name()))
	ok(t, os.Mkdir(dir, 0o755))
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
