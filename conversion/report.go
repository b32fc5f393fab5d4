// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import "hash/maphash"

// report tells the observer what is worth knowing about an object that was converted.
func (h *handler) report(c *Converter, o *object, r *Result) {
	if h.observe == nil {
		return
	}
	e := Event{GroupKind: c.gk, From: r.From, To: r.To, Ref: o.ref()}
	if r.Refused != nil {
		e.Kind, e.Err, e.Repeated = Quarantined, r.Refused, h.repeated(o, r.Refused)
		h.tell(e)
		return
	}
	if r.Dropped > 0 {
		e.Kind, e.Count = Dropped, r.Dropped
		h.tell(e)
	}
	if r.Rejected != nil {
		e.Kind, e.Count, e.Err = Rejected, 0, r.Rejected
		h.tell(e)
	}
	if o.stash.ok() {
		if owners := owners(o); len(owners) > 0 {
			e.Kind, e.Count, e.Err, e.Managers = Applied, len(owners), nil, owners
			h.tell(e)
		}
	}
}

// repeated remembers the last few thousand failures.
func (h *handler) repeated(o *object, err error) bool {
	if h.observe == nil {
		return false
	}
	const most = 4096
	key := maphash.String(h.seed, o.ref()+"\x00"+err.Error())
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.failed[key]; ok {
		return true
	}
	if len(h.failed) >= most {
		clear(h.failed)
	}
	h.failed[key] = struct{}{}
	return false
}
