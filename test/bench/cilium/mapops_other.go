// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import "github.com/ashlar-go/ashlar/test/bench/side"

// benches need a Linux kernel.
var benches []side.Bench
