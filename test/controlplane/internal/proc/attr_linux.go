// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package proc

import "syscall"

// memberAttr puts a process into the watchdog's process group, and has the kernel kill it when the forking thread ends.
func memberAttr(group int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pgid: group, Pdeathsig: syscall.SIGKILL}
}
