// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap_test

import (
	"testing"

	"golang.org/x/sys/unix"
)

// mountBPF mounts a bpf file system of the test's own.
func mountBPF(t testing.TB) (dir string, err error) {
	dir = t.TempDir()
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		return "", err
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, nil
}
