// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package bpfmap

import (
	"errors"
	"fmt"
	"time"
)

// Report is what a write of many elements did, to the element.
type Report struct {
	Written  int       // elements the kernel has taken
	Deleted  int       // keys that are gone because of this call
	Missing  int       // keys to delete that were not there
	Failures []Failure // elements that were not written or not deleted, in order
}

// Failure is one element that failed. The others were handled nevertheless.
type Failure struct {
	Index int   // position in the sequence, or in the part of the plan
	Key   any   // the key, of the map's key type
	Err   error // why
}

// Result is what Sync did and found.
type Result struct {
	Report
	Added, Changed, Unchanged int     // wanted entries: written because missing, because different, or left alone
	Foreign                   int     // entries of others ([WithOwned]), left alone
	Drift                     int     // entries that others changed, added or removed since the last pass
	Gap                       int     // see [Plan]
	Used, Max                 int     // entries in the map after the pass, and its room
	Pressure                  float64 // Used/Max, from the kernel's own numbers
	// Audited: the map was read. Always so without [WithAudit].
	Audited bool
	// RequeueAfter is when the next audit is due, or when another try makes sense on a map that does not converge. 0:
	// nothing is due.
	RequeueAfter time.Duration
}

// failure sums the failures up in one error that matches every kind among them.
func (r *Report) failure(total int) error {
	if len(r.Failures) == 0 {
		return nil
	}
	first := r.Failures[0]
	err := fmt.Errorf("%d of %d elements failed, first %v: %w", len(r.Failures), total, first.Key, first.Err)
	seen := map[string]bool{first.Err.Error(): true}
	for _, f := range r.Failures[1:] {
		if text := f.Err.Error(); !seen[text] && len(seen) < 4 {
			seen[text] = true
			err = errors.Join(err, fmt.Errorf("%v: %w", f.Key, f.Err))
		}
	}
	return err
}
