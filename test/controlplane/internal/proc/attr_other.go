// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package proc

import "syscall"

// memberAttr puts a process into the watchdog's process group; there is no parent-death signal here.
func memberAttr(group int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pgid: group}
}
