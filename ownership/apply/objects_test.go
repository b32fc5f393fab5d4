// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestObjectsAreCopies: what a caller does to them reaches neither the cache nor the decisions.
func TestObjectsAreCopies(t *testing.T) {
	t.Parallel()
	s := newServer(t, true, database())
	a := newApplier(t, s)
	for _, what := range []string{"written", "kept"} {
		res := pass(t, a, configMap("config", "mode", "fast"))
		first := res.Objects()[0].(*corev1.ConfigMap)
		first.Data["mode"] = "changed"
		if again := res.Objects()[0].(*corev1.ConfigMap); again.Data["mode"] != "fast" {
			t.Errorf("%s: got %v", what, again.Data)
		}
	}
}
