// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package kernel tests the packages for eBPF on the real kernel: what programs, other processes, capabilities and kill -9
// do to maps. It needs root on Linux; without, every test skips with the reason, and the lane in test/all fails.
//
//	go test -count=1 ./...          half a minute
//	SOAK=1 go test -count=1 ./...   churn for 60 s on every kind of map instead of 2
package kernel
