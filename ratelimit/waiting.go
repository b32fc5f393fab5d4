// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ratelimit

// waiting remembers a word for each key that a gate has turned away. It holds no more than most of them, and forgets
// those that never came back.
type waiting struct {
	table  table
	most   int
	cursor int
}

func (w *waiting) empty() bool { return w.table.live == 0 }

func (w *waiting) get(h uint64) uint64 {
	if i, ok := w.table.find(h); ok {
		return w.table.slots[i].state
	}
	return 0
}

// put stores a word for h, unless there are too many.
func (w *waiting) put(h, word uint64) {
	i, ok := w.table.find(h)
	if !ok {
		if w.full() {
			return
		}
		i = w.table.insert(h)
	}
	w.table.slots[i].state = word
}

func (w *waiting) full() bool { return w.table.live >= w.most }

func (w *waiting) drop(h uint64) {
	if i, ok := w.table.find(h); ok {
		w.remove(i)
	}
}

func (w *waiting) remove(i int) {
	w.table.remove(i)
	if w.table.live == 0 && len(w.table.slots) > minSlots {
		w.table = table{}
	}
}

// sweep looks at a few words and drops those that gone says it of.
func (w *waiting) sweep(gone func(word uint64) bool) {
	for range 4 {
		if w.cursor >= len(w.table.slots) {
			if w.cursor = 0; w.empty() {
				return
			}
		}
		if sl := w.table.slots[w.cursor]; sl.id != 0 && gone(sl.state) {
			w.remove(w.cursor)
			continue
		}
		w.cursor++
	}
}
