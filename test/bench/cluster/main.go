// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Command cluster holds the sides that need a real API server. Each of its runs starts a control plane of its own.
package main

import (
	"slices"

	"github.com/ashlar-go/ashlar/test/bench/side"
)

func main() { side.Main(slices.Concat(statusBenches, conversionBenches)...) }
