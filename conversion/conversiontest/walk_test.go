// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversiontest_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/conversion"
	"github.com/ashlar-go/ashlar/conversion/conversiontest"
)

var (
	walks = flag.Int("walks", 0, "how many walks of every number of versions; 0: 100, 34 000 with SOAK=1")
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
	count := *walks
	switch {
	case count == 0 && os.Getenv("SOAK") != "":
		count = 34_000
	case count == 0 && testing.Short():
		count = 30
	case count == 0:
		count = 100
	}
	for n := 2; n <= 4; n++ {
		t.Run(fmt.Sprintf("%d versions", n), func(t *testing.T) {
			t.Parallel()
			crd := gadgetCRD(n, "v1alpha1", nil)
			c := newGadgets(t, n)
			h, err := conversion.Handler([]*conversion.Converter{c})
			if err != nil {
				t.Fatal(err)
			}
			m, err := newManagers(h, crd)
			if err != nil {
				t.Fatal(err)
			}
			wrap := func(s *conversiontest.Server) conversiontest.API { return applying{s, m} }
			start := time.Now()
			steps := conversiontest.Walks(t, c, crd,
				conversiontest.WithSeed(*seed), conversiontest.WithN(count), conversiontest.WithAPI(wrap))
			for _, v := range gadgetVersions[:n] {
				for _, kind := range []string{"create", "update", "patch", "apply", "watch", "delete"} {
					if steps[kind+" at "+v] == 0 {
						t.Errorf("nobody did a %s at %s", kind, v)
					}
				}
			}
			t.Logf("%d walks of seed %d in %.0f s: %v", count, *seed, time.Since(start).Seconds(), steps)
		})
	}
}
