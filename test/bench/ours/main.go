// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Command ours holds the library's own sides, and those of peers at the library's pins.
package main

import (
	"slices"

	"github.com/ashlar-go/ashlar/test/bench/side"
)

func main() {
	side.Main(slices.Concat(conditionBenches, statusBenches, finalizerBenches, ownershipBenches, pruneBenches, mapEventBenches, bpfmapBenches, progBenches, ratelimitBenches, conversionBenches)...)
}
