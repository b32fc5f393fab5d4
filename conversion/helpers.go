// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import "fmt"

// Prefer decides between a field and its successor that stand side by side in one version, both in the successor's type.
// lastOld and lastNew are the pair as it was seen last, nil if it never was. The old one wins if it alone has changed since
// or stands alone; otherwise the successor does. The result is a copy; nil means that neither is set.
func Prefer[T comparable](old, new, lastOld, lastNew *T) *T {
	if old != nil && (new == nil || !samePointee(old, lastOld) && samePointee(new, lastNew)) {
		return copyOf(old)
	}
	return copyOf(new)
}

func samePointee[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

func copyOf[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}

// Shadow sets a field that only repeats another one for clients of an old version, such as readyReplicas beside phase: to a
// copy, or to nil. Slices and maps inside are shared, which is fine in a function of a pair.
func Shadow[T any](dst **T, src *T) { *dst = copyOf(src) }

// One is the only item of a list that became a single object: nil for none. Several are an error, because one of them
// would be lost.
func One[T any](list []T) (*T, error) {
	switch len(list) {
	case 0:
		return nil, nil
	case 1:
		return copyOf(&list[0]), nil
	}
	return nil, fmt.Errorf("a list of %d items has no place where one is held", len(list))
}
