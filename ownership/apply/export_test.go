// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"github.com/ashlar-go/ashlar/ownership"
	"k8s.io/apimachinery/pkg/types"
)

// Memory opens the bounded memory to its test.
type Memory struct{ m *memory }

func NewMemory(limit int) Memory                               { return Memory{newMemory(limit)} }
func (m Memory) Remember(u types.UID, e ownership.Evidence)    { m.m.remember(u, e) }
func (m Memory) Recall(u types.UID) (ownership.Evidence, bool) { return m.m.recall(u) }
func (m Memory) Delete(u types.UID)                            { m.m.markDeleted(u) }
func (m Memory) Deleted(u types.UID) bool                      { return m.m.isDeleted(u) }
func (m Memory) Forget(u types.UID)                            { m.m.forget(u) }
func (m Memory) Len() int                                      { return m.m.len() }
