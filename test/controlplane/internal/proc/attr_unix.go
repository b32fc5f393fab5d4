// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package proc

import (
	"os"
	"syscall"
)

// leaderAttr gives the watchdog a process group of its own.
func leaderAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// terminate asks a process to end.
func terminate(p *os.Process) error {
	return p.Signal(syscall.SIGTERM)
}
