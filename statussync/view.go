// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync

import (
	"encoding/json"
	"hash/maphash"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// view is what one version of an object says, as far as one writer is concerned. It is plain data, so that the planner
// can be run on invented ones.
type view struct {
	uid             types.UID
	resourceVersion string
	generation      int64
	observed        int64 // status.observedGeneration; 0 when absent, and when this writer is not the Primary

	// conditions is the whole live list, read-only. An item that is no condition has an empty type, so that positions
	// stay those of the server.
	conditions []metav1.Condition

	named bool // managedFields are there

	differs uint64 // payload fields, by bit, that are desired and not live with that value
	extra   uint64 // payload fields that are live and not desired
	odd     uint64 // digest of the live values of both, 0 when there are none
}

// addOdd adds the live value of a field that differs; nil when it is absent.
func (v *view) addOdd(seed maphash.Seed, field int, live any) {
	var h maphash.Hash
	h.SetSeed(seed)
	hashNumber(&h, v.odd)
	hashNumber(&h, uint64(field))
	if raw, err := json.Marshal(live); err == nil {
		h.Write(raw)
	}
	v.odd = h.Sum64()
}

// find returns the position of type t in list, -1 when absent. hint is where it probably is.
func find(list []metav1.Condition, t string, hint int) int {
	if hint < len(list) && list[hint].Type == t {
		return hint
	}
	for i := range list {
		if list[i].Type == t {
			return i
		}
	}
	return -1
}
