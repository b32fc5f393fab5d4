// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Command flux holds the sides of Flux's status helpers and of its apply manager.
package main

import (
	"slices"

	"github.com/ashlar-go/ashlar/test/bench/side"
)

func main() {
	side.Main(slices.Concat(statusBenches, applyBenches)...)
}
