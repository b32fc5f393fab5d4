// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion_test

import (
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/conversion"
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

// Equal items that were moved, added or removed lose what is kept for them; it is counted, not guessed.
func TestMovedEqualItemsAreDropped(t *testing.T) {
	t.Parallel()
	c := build(t)
	read := convert(t, c, newWidget(`{"rules":[{"port":1,"cidr":"x"},{"port":1,"cidr":"y"},{"port":2,"cidr":"z"}]}`), "v1alpha1")
	const was = `[{"port":1},{"port":1},{"port":2}]`
	for name, tt := range map[string]struct {
		now, want string
		dropped   int
	}{
		"nothing":  {was, `[{"port":1,"cidr":"x"},{"port":1,"cidr":"y"},{"port":2,"cidr":"z"}]`, 0},
		"moved":    {`[{"port":1},{"port":2},{"port":1}]`, `[{"port":1},{"port":2,"cidr":"z"},{"port":1}]`, 2},
		"removed":  {`[{"port":1},{"port":2}]`, `[{"port":1},{"port":2,"cidr":"z"}]`, 2},
		"added":    {`[{"port":1},{"port":1},{"port":1},{"port":2}]`, `[{"port":1},{"port":1},{"port":1},{"port":2,"cidr":"z"}]`, 2},
		"other":    {`[{"port":1},{"port":3},{"port":1},{"port":2}]`, `[{"port":1,"cidr":"x"},{"port":3},{"port":1,"cidr":"y"},{"port":2,"cidr":"z"}]`, 0},
		"edited":   {`[{"port":1},{"port":1},{"port":9}]`, `[{"port":1,"cidr":"x"},{"port":1,"cidr":"y"},{"port":9}]`, 1},
		"all gone": {`[]`, `[]`, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := c.Trial(t.Context(), []byte(strings.Replace(read, was, tt.now, 1)), "v1")
			if err != nil || r.Dropped != tt.dropped {
				t.Errorf("%d dropped, want %d: %v", r.Dropped, tt.dropped, err)
			}
			same(t, newWidget(`{"rules":`+tt.want+`}`), string(r.Object))
		})
	}
}

// Two signatures of one key do not fit each other's objects, and what is not signed is as good as nothing.
func TestSignedStashIsBoundToItsObject(t *testing.T) {
	t.Parallel()
	c := build(t, conversion.WithKeys([]byte("0123456789abcdef")))
	read := convert(t, c, newWidget(`{"tier":"gold"}`), "v1alpha1")
	same(t, newWidget(`{"tier":"gold"}`), convert(t, c, read, "v1"))
	unsigned := convert(t, build(t), newWidget(`{"tier":"gold"}`), "v1alpha1")
	for name, in := range map[string]string{
		"another name":      strings.Replace(read, `"name":"a"`, `"name":"b"`, 1),
		"another namespace": strings.Replace(read, `"namespace":"default"`, `"namespace":"other"`, 1),
		"not signed":        unsigned,
	} {
		r, err := c.Trial(t.Context(), []byte(in), "v1")
		if err != nil || r.Rejected == nil || strings.Contains(string(r.Object), "gold") {
			t.Errorf("%s: %s %v %v", name, r.Object, r.Rejected, err)
		}
	}
}
