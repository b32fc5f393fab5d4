// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion_test

import (
	"testing"
)

// Every document comes back as it was, byte order of members aside, and says how much it needed the annotation for it.
func TestRoundTripIsExact(t *testing.T) {
	t.Parallel()
	c := build(t)
	tests := map[string]struct {
		reason, in, to, back string
		stash                bool
	}{
		"nothing to lose": {"no annotation when nothing is lost",
			oldWidget(`{"replicas":3,"endpoint":"db:80","config":{"a":"b"}}`), "v1", "v1alpha1", false},
		"old only":     {"a field the new version has dropped", oldWidget(`{"replicas":3,"note":"x"}`), "v1", "v1alpha1", true},
		"new only":     {"a field the old version never had", newWidget(`{"tier":"gold","scalePolicy":{"min":3,"max":3}}`), "v1alpha1", "v1", true},
		"beside":       {"part of a value is lost", newWidget(`{"scalePolicy":{"min":3,"max":5}}`), "v1alpha1", "v1", true},
		"zero":         {"omitempty drops it on both sides", oldWidget(`{"replicas":0,"paused":false,"config":{},"rules":[]}`), "v1", "v1alpha1", true},
		"shared zeros": {"what both share needs no annotation", oldWidget(`{"paused":false,"config":{},"rules":[]}`), "v1", "v1alpha1", false},
		"unknown":      {"neither side knows it", oldWidget(`{"foo":{"b":[1,2.50,1e3]},"rules":[{"name":"x","bar":null}]}`), "v1", "v1alpha1", false},
		"null":         {"null is not absent", oldWidget(`{"config":null,"note":null}`), "v1", "v1alpha1", true},
		"spelling":     {"60s is not 1m0s", newWidget(`{"timeout":"60s"}`), "v1alpha1", "v1", true},
		"big":          {"integers are exact", newWidget(`{"big":9007199254740993}`), "v1alpha1", "v1", true},
		"items": {"fields within items", newWidget(`{"rules":[{"name":"a","cidr":"x"},{"name":"b"},{"name":"c","tags":["1"]}]}`),
			"v1alpha1", "v1", true},
		"equal items": {"items that only the new version tells apart",
			newWidget(`{"rules":[{"port":1,"cidr":"x"},{"port":1,"cidr":"y"},{"port":1}]}`), "v1alpha1", "v1", true},
		"wrong case": {"names match by case", oldWidget(`{"Replicas":7,"replicas":3}`), "v1", "v1alpha1", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			there := convert(t, c, tt.in, tt.to)
			if got := stashOf(t, there) != ""; got != tt.stash {
				t.Errorf("%s: annotation %v, want %v\n%s", tt.reason, got, tt.stash, there)
			}
			same(t, tt.in, convert(t, c, there, tt.back))
		})
	}
}
