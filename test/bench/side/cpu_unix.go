// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package side

import (
	"syscall"
	"time"
)

// processor is the processor time this process has used, user and system.
func processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
