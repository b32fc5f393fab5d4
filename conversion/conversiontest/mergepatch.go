// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversiontest

import "reflect"

// mergePatch is the JSON merge patch from one document to another. A null in the second is lost on the way: it would
// remove the member.
func mergePatch(before, after map[string]any) map[string]any {
	patch := map[string]any{}
	for k := range before {
		if _, ok := after[k]; !ok {
			patch[k] = nil
		}
	}
	for k, y := range after {
		x, there := before[k]
		a, aok := x.(map[string]any)
		b, bok := y.(map[string]any)
		switch {
		case aok && bok:
			if p := mergePatch(a, b); len(p) > 0 {
				patch[k] = p
			}
		case !there || !reflect.DeepEqual(x, y):
			patch[k] = y
		}
	}
	return patch
}

// applyMerge is what a JSON merge patch makes of a document (RFC 7386). Neither is changed.
func applyMerge(target, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	out := map[string]any{}
	if t, ok := target.(map[string]any); ok {
		for k, v := range t {
			out[k] = v
		}
	}
	for k, v := range p {
		if v == nil {
			delete(out, k)
			continue
		}
		out[k] = applyMerge(out[k], v)
	}
	return out
}
