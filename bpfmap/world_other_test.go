// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package bpfmap_test

import (
	"errors"
	"testing"
)

func mountBPF(testing.TB) (string, error) { return "", errors.New("no bpf file system here") }
