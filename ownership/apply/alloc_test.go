// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package apply_test

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/event"
)

// The doc of Handler promises it: an event of a typed child costs no allocation.
func TestHandlerAllocations(t *testing.T) {
	e := event.UpdateEvent{ObjectOld: native(configMap("x"), "example.com/v1", "Database", "orders"), ObjectNew: native(configMap("x"), "example.com/v1", "Database", "orders")}
	h := newApplier(t, newServer(t, true)).Handler()
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { h.Update(ctx, e, null{}) }); n != 0 {
		t.Errorf("%v allocations per event", n)
	}
}
