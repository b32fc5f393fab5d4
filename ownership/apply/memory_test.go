// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"fmt"
	"testing"

	"github.com/ashlar-go/ashlar/ownership"
	"github.com/ashlar-go/ashlar/ownership/apply"
	"k8s.io/apimachinery/pkg/types"
)

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	m := apply.NewMemory(100)
	uid := func(i int) types.UID { return types.UID(fmt.Sprint(i)) }
	for i := range 1000 {
		m.Remember(uid(i), ownership.Evidence{Hash: fmt.Sprint(i)})
		if m.Len() > 100 {
			t.Fatalf("%d entries", m.Len())
		}
		if e, ok := m.Recall(uid(i / 2 * 2)); i < 2 && (!ok || e.Hash != fmt.Sprint(i/2*2)) {
			t.Errorf("got %v, %v", e, ok)
		}
		m.Recall("0") // what is asked for stays
	}
	if _, ok := m.Recall("0"); !ok {
		t.Error("an entry in use was dropped")
	}
	if _, ok := m.Recall("500"); ok {
		t.Error("an entry out of use was kept")
	}
	m.Delete("999")
	if _, ok := m.Recall("999"); ok || !m.Deleted("999") || m.Deleted("998") {
		t.Error("a deleted uid has no evidence")
	}
	m.Forget("999")
	if m.Deleted("999") {
		t.Error("not forgotten")
	}
	m.Remember("", ownership.Evidence{})
	if _, ok := m.Recall(""); ok {
		t.Error("no uid, no memory")
	}
}
