// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion_test

import (
	"context"
	"encoding/json"
	"fmt"
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

// An old client that had nothing to say in spec or status says something there, or somebody has emptied it on the way:
// what only the new version holds stays.
func TestSpecAndStatusAreThereWhenTheyAreEmpty(t *testing.T) {
	t.Parallel()
	c := build(t)
	in := strings.Replace(newWidget(`{"tier":"gold"}`), `"spec"`, `"status":{"phase":"Ready"},"spec"`, 1)
	read := convert(t, c, in, "v1alpha1")
	same(t, in, convert(t, c, read, "v1"))
	bare := strings.Replace(strings.Replace(read, `,"status":{}`, "", 1), `"status":{},`, "", 1)
	for name, edited := range map[string]string{
		"absent":  bare,
		"null":    strings.Replace(bare, `"metadata"`, `"status":null,"metadata"`, 1),
		"written": strings.Replace(bare, `"metadata"`, `"status":{"readyReplicas":3},"metadata"`, 1),
		"no spec": strings.Replace(strings.Replace(bare, `,"spec":{}`, "", 1), `"spec":{},`, "", 1),
	} {
		got := convert(t, c, edited, "v1")
		if at(t, got, "status", "phase") != "Ready" || at(t, got, "spec", "tier") != "gold" {
			t.Errorf("%s: %s\nof %s", name, got, edited)
		}
	}
	// Where the function writes nothing there at all, what is kept is kept by member.
	b := conversion.New(widgets)
	conversion.Pair(b, "v1alpha1", "v1", func(_ context.Context, in, out *map[string]any) error {
		if status, ok := (*in)["status"]; ok {
			(*out)["status"] = status
		}
		return nil
	}, func(context.Context, *map[string]any, *map[string]any) error { return nil })
	untyped, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	read = convert(t, untyped, in, "v1alpha1")
	got := convert(t, untyped, strings.Replace(read, `"metadata"`, `"status":{"readyReplicas":3},"metadata"`, 1), "v1")
	if at(t, got, "status", "phase") != "Ready" || fmt.Sprint(at(t, got, "status", "readyReplicas")) != "3" {
		t.Errorf("added beside what is kept: %s\nof %s", got, read)
	}
	// Further down, who removes an object means all of it.
	deep := convert(t, c, newWidget(`{"scalePolicy":{"min":3,"max":5}}`), "v1alpha1")
	got = convert(t, c, strings.Replace(deep, `"replicas":3`, `"paused":true`, 1), "v1")
	if at(t, got, "spec", "scalePolicy") != nil {
		t.Errorf("half an object came back: %s", got)
	}
}

// Who may write annotations at the old version must not be able to make an object that no version can read: one that
// cannot be converted stops every LIST.
func TestForgedStashDoesNotStopTheConversion(t *testing.T) {
	t.Parallel()
	c := build(t)
	for name, stash := range map[string]string{
		"added twice":           `{"v1":[{"p":"/spec/tier","n":"a"},{"p":"/spec/tier","n":"b"}]}`,
		"made twice":            `{"v1":[{"p":"/status/phase","n":"a"},{"p":"/status/phase","n":"b"}]}`,
		"made and added":        `{"v1":[{"p":"/status/phase","n":"a"},{"p":"/status","n":{"phase":"b"}}]}`,
		"added and made":        `{"v1":[{"p":"/status","n":{"phase":"b"}},{"p":"/status/phase","n":"a"}]}`,
		"a label added twice":   `{"v1":[{"p":"/metadata/labels/a","n":"a"},{"p":"/metadata/labels/a","n":"b"}]}`,
		"the body is no object": `{"v1":[{"p":"","o":{},"n":[]}]}`,
	} {
		text, err := json.Marshal(stash)
		if err != nil {
			t.Fatal(err)
		}
		in := `{"apiVersion":"example.com/v1alpha1","kind":"Widget","metadata":{"name":"a","labels":{"x":"y"},"annotations":{"` + conversion.Annotation + `":` + string(text) + `}},"spec":{"paused":true}}`
		out, err := c.Convert(t.Context(), []byte(in), "v1")
		if err != nil || conversion.Valid(out) != nil || at(t, string(out), "spec", "paused") != true {
			t.Errorf("%s: %s, %v", name, out, err)
		}
	}
}

// A value that does not fit its field is named by object, field and rule, in words that are not Go's.
func TestMisfits(t *testing.T) {
	t.Parallel()
	c := build(t)
	for spec, want := range map[string]string{
		`{"replicas":"three"}`:             `spec.replicas: expected an integer, found a string`,
		`{"replicas":1.5}`:                 `spec.replicas: expected an integer of 32 bits, found the number 1.5`,
		`{"replicas":2147483648}`:          `spec.replicas: expected an integer of 32 bits, found the number 2147483648`,
		`{"paused":"yes"}`:                 `spec.paused: expected true or false, found a string`,
		`{"note":{}}`:                      `spec.note: expected a string, found an object`,
		`{"config":[]}`:                    `spec.config: expected an object, found a list`,
		`{"config":{"a":true}}`:            `spec.config.a: expected a string, found true`,
		`{"rules":{}}`:                     `spec.rules: expected a list, found an object`,
		`{"rules":[{},{"port":[]}]}`:       `spec.rules[1].port: expected an integer, found a list`,
		`{"rules":[{"name":"a"},"other"]}`: `spec.rules[1]: expected an object, found a string`,
	} {
		_, err := c.Convert(t.Context(), []byte(oldWidget(spec)), "v1")
		if err == nil || err.Error() != "convert Widget default/a from v1alpha1 to v1 at "+want {
			t.Errorf("%s: %v\nwant %s", spec, err, want)
		}
	}
}
