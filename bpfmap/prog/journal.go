// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package prog

import (
	"encoding/json"
	"time"
)

// journal is what pins cannot say. It is the target of a symbolic link in the slot's folder: a bpf file system has no
// files, but keeps links and renames them atomically, so that pins and journal live and die together.
type journal struct {
	Holder string `json:"holder,omitempty"` // process that wrote it

	From uint64 `json:"from,omitempty"` // a swap between these generations is under way
	To   uint64 `json:"to,omitempty"`

	Current  uint64    `json:"current,omitempty"`  // after a swap: what is in force,
	Previous uint64    `json:"previous,omitempty"` // what is kept,
	Until    time.Time `json:"until,omitzero"`     // and how long
	Since    time.Time `json:"since,omitzero"`

	Failed string `json:"failed,omitempty"` // key of a release that was rolled back
	Reason string `json:"reason,omitempty"` // why, cut to a few words
}

// maxJournal is what a symbolic link holds, with room to spare.
const maxJournal = 3000

func (j journal) encode() string {
	if len(j.Reason) > 500 {
		j.Reason = j.Reason[:500]
	}
	if len(j.Holder) > 200 {
		j.Holder = j.Holder[:200]
	}
	raw, err := json.Marshal(j)
	if err != nil || len(raw) > maxJournal {
		j.Reason = "" // text is all that can be long
		raw, _ = json.Marshal(j)
	}
	return string(raw)
}

// parseJournal never fails: without a readable journal what is in force is still known, and nothing is kept for rollback.
func parseJournal(text string) (j journal) {
	if json.Unmarshal([]byte(text), &j) != nil {
		return journal{}
	}
	return j
}
