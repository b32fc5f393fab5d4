// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownershiptest

import (
	"iter"
	"maps"
	"slices"
	"strconv"
)

// spoil changes the n-th text of a tree, in sorted order, and says where; false when there are fewer.
func spoil(v any, path string, n *int) (string, bool) {
	switch t := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(keys(t)) {
			here := path + "." + k
			if s, ok := t[k].(string); ok {
				if *n == 0 {
					t[k] = s + " spoiled"
					return here, true
				}
				*n--
				continue
			}
			if p, ok := spoil(t[k], here, n); ok {
				return p, true
			}
		}
	case []any:
		for i := range t {
			here := path + "[" + strconv.Itoa(i) + "]"
			if s, ok := t[i].(string); ok {
				if *n == 0 {
					t[i] = s + " spoiled"
					return here, true
				}
				*n--
				continue
			}
			if p, ok := spoil(t[i], here, n); ok {
				return p, true
			}
		}
	}
	return "", false
}

func keys(m map[string]any) iter.Seq[string] { return maps.Keys(m) }
