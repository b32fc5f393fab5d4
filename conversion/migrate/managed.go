// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// manager is the name in the entry that takes the place of dead ones when none is left. Without any entry the next apply
// would make a manager up that owns everything and never lets go.
const manager = "ashlar-migrate"

// living returns the entries that are not of a dead version, and whether that is a change
// (kubernetes/kubernetes#111937). The list passed in is not changed.
func (d *definition) living(entries []metav1.ManagedFieldsEntry) ([]metav1.ManagedFieldsEntry, bool) {
	var out []metav1.ManagedFieldsEntry
	for _, e := range entries {
		if !d.dead(e.APIVersion) {
			out = append(out, e)
		}
	}
	if len(out) == len(entries) {
		return nil, false
	}
	if len(out) == 0 {
		now := metav1.Now()
		out = []metav1.ManagedFieldsEntry{{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: d.group + "/" + d.storage, Time: &now,
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:name":{}}}`),
		}}
	}
	return out, true
}
