// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownershiptest

import "testing"

// Law runs one law by name, to show that it can fail.
func Law(t testing.TB, name string, s Subject) {
	for _, l := range laws() {
		if l.name == name {
			l.run(t, s)
			return
		}
	}
	t.Fatalf("no law %q", name)
}
