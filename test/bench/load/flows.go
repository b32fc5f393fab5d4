// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package load

// Flows is how many entries the map of bpfmap's metrics has, FlowRoom how many it has room for: 8-byte keys 0 to
// Flows-1, 24-byte values whose first 8 bytes are the key.
const (
	Flows    = 100_000
	FlowRoom = Flows + Flows/8
)

// FlowDrift is what others do to the map before each pass, 1 % of it: keys whose value changed, keys that are gone and
// keys that are too many.
func FlowDrift() (changed, gone, extra []uint64) {
	for i := range uint64(400) {
		changed = append(changed, i*97)
	}
	for i := range uint64(300) {
		gone, extra = append(gone, 50_000+i*101), append(extra, Flows+i)
	}
	return changed, gone, extra
}
