// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"context"
	"testing"

	"github.com/ashlar-go/ashlar/ownership/ownershiptest"
)

// walkSeed is also that of the walk on a real API server.
const walkSeed = 4

// TestWalk: see ownershiptest.Walk. Everything is held against the laws of writing.
func TestWalk(t *testing.T) {
	t.Parallel()
	steps := 10_000
	if testing.Short() {
		steps = 200
	}
	server, c := strictServer(t)
	ownershiptest.Walk{
		Client: c, Namespace: "team-a", Seed: walkSeed, Steps: steps,
		Collect: func(context.Context) { server.Collect() },
	}.Run(t)
	t.Logf("%d steps", steps)
}
