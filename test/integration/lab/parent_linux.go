// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import "syscall"

// dieWithParent ends a process with whoever started it, also when that was killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
