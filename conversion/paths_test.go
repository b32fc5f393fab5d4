// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/conversion"
)

// upjet replaces every 0 of a path by a star, index and name alike, and panics over a nil list. Paths here are held against
// a second reading of them, on documents whose names are made of digits, slashes and tildes and whose lists have more than
// ten items.
func TestUpjetPathsAgainstAnotherReader(t *testing.T) {
	t.Parallel()
	names := []string{"0", "10", "ipv40", "a/b", "~", "~1", "~01", "", "*", "@", "#", "é", `"`, "spec"}
	r := rand.New(rand.NewPCG(28, 0))
	var object func(depth int) map[string]any
	object = func(depth int) map[string]any {
		m := map[string]any{}
		for range 1 + r.IntN(4) {
			name := names[r.IntN(len(names))]
			switch n := r.IntN(5); {
			case n == 0 && depth < 4:
				m[name] = object(depth + 1)
			case n == 1:
				m[name] = nil
			default:
				m[name] = json.Number(fmt.Sprint(r.IntN(20)))
			}
		}
		return m
	}
	paths := 0
	for i := range 1000 {
		doc := func() map[string]any {
			var items []any
			for k := range 12 {
				item := object(2)
				item["name"] = fmt.Sprintf("ipv4%d", k)
				items = append(items, item)
			}
			m := object(0)
			m["list"] = items
			return m
		}
		old, new := doc(), doc()
		a, b := jsonOf(t, old), jsonOf(t, new)
		changes, err := conversion.Diff(a, b, map[string][]string{"list": {"name"}})
		if err != nil {
			t.Fatal(err)
		}
		got, dropped, err := conversion.Restore(a, map[string][]string{"list": {"name"}}, changes)
		if err != nil || dropped > 0 {
			t.Fatalf("document %d: %d dropped, %v", i, dropped, err)
		}
		same(t, string(b), string(got))
		naive := plain(t, string(a))
		for _, c := range changes {
			paths++
			naive = follow(t, naive, strings.Split(c.Path, "/")[1:], c)
		}
		if !reflect.DeepEqual(naive, plain(t, string(b))) {
			t.Fatalf("document %d: another reader of the paths makes %s of %s, want %s", i, jsonOf(t, naive), a, b)
		}
	}
	t.Logf("%d paths", paths)
}

func jsonOf(t *testing.T, x any) []byte {
	t.Helper()
	raw, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// follow makes one change, by the sentence "a JSON pointer, whose step into a list names an item by its keys".
func follow(t *testing.T, at any, steps []string, c conversion.Change) any {
	t.Helper()
	name := strings.NewReplacer("~1", "/", "~0", "~").Replace(steps[0])
	if list, ok := at.([]any); ok {
		var keys []string
		if err := json.Unmarshal([]byte(strings.TrimPrefix(name, "@")), &keys); err != nil || name[0] != '@' {
			t.Fatalf("selector %q: %v", name, err)
		}
		for i, item := range list {
			if item.(map[string]any)["name"] == keys[0] {
				list[i] = follow(t, item, steps[1:], c)
				return list
			}
		}
		t.Fatalf("%q finds no item", name)
	}
	m := at.(map[string]any)
	switch {
	case len(steps) > 1:
		if _, there := m[name]; !there && name == "spec" { // which is there when it is empty
			m[name] = map[string]any{}
		}
		m[name] = follow(t, m[name], steps[1:], c)
	case c.New == nil:
		delete(m, name)
	default:
		m[name] = plain(t, string(c.New))
	}
	return m
}
