// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// Remember has a memory of the given size see n objects, and returns how many it knows in the end and whether the last
// one is among them: the real size is too large for a test.
func Remember(size, n int) (known int, last bool) {
	m := newMemory(size)
	for i := range n {
		m.stored(types.UID(fmt.Sprint(i)))
	}
	return len(m.of), m.peek(types.UID(fmt.Sprint(n - 1))).stored
}
