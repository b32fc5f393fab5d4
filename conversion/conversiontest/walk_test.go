// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversiontest_test

import (
	"flag"
	"fmt"
	"testing"

	"github.com/ashlar-go/ashlar/conversion/conversiontest"
)

var (
	walks = flag.Int("walks", 0, "how many walks of every number of versions; 0: a few hundred")
	seed  = flag.Uint64("seed", 1, "where their randomness begins")
)

func TestLaws(t *testing.T) {
	t.Parallel()
	for n := 2; n <= 4; n++ {
		t.Run(fmt.Sprintf("%d versions", n), func(t *testing.T) {
			t.Parallel()
			conversiontest.Laws(t, newGadgets(t, n), gadgetCRD(n, "v1alpha1", nil))
		})
	}
}

func TestWalks(t *testing.T) {
	t.Parallel()
	for n := 2; n <= 4; n++ {
		t.Run(fmt.Sprintf("%d versions", n), func(t *testing.T) {
			t.Parallel()
			opts := []conversiontest.Option{conversiontest.WithSeed(*seed)}
			if *walks > 0 {
				opts = append(opts, conversiontest.WithN(*walks))
			}
			edits := conversiontest.Walks(t, newGadgets(t, n), gadgetCRD(n, "v1alpha1", nil), opts...)
			t.Logf("%d edits", edits)
		})
	}
}
