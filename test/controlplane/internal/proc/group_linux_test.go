// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package proc_test

import (
	"syscall"
	"testing"
)

// TestGroupDiesWithoutWatchdog kills the first of the two mechanisms before the owner.
func TestGroupDiesWithoutWatchdog(t *testing.T) {
	t.Parallel()
	cmd, pids := startChild(t)
	watchdog, member, grandchild := pids[0], pids[1], pids[2]
	t.Cleanup(func() { _ = syscall.Kill(grandchild, syscall.SIGKILL) }) // it is the watchdog's business alone
	if err := syscall.Kill(watchdog, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if !alive(member) {
		t.Error("the member went with the watchdog")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	waitGone(t, member)
}
