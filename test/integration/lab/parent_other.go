// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package lab

import "syscall"

// dieWithParent can be promised on Linux only.
func dieWithParent() *syscall.SysProcAttr { return nil }
