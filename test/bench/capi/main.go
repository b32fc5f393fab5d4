// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Command capi holds the sides of Cluster API's condition and patch helpers.
package main

import (
	"slices"

	"github.com/ashlar-go/ashlar/test/bench/side"
)

func main() {
	side.Main(slices.Concat(conditionBenches, statusBenches, conversionBenches)...)
}
