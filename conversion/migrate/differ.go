// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/ashlar-go/ashlar/conversion"
)

// differs returns the first path, in the order of names, at which two JSON objects differ, or "". Numbers are compared as
// they are spelled. What the server fills in itself, managedFields, and the annotation of the converter do not count.
func differs(before, now []byte) (string, error) {
	a, err := parse(before)
	if err != nil {
		return "", err
	}
	b, err := parse(now)
	if err != nil {
		return "", fmt.Errorf("what came back is no JSON: %w", err)
	}
	return firstDifference("", a, b), nil
}

func parse(raw []byte) (map[string]any, error) {
	var o map[string]any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&o); err != nil {
		return nil, err
	}
	if meta, ok := o["metadata"].(map[string]any); ok {
		delete(meta, "managedFields")
		if notes, ok := meta["annotations"].(map[string]any); ok {
			if delete(notes, conversion.Annotation); len(notes) == 0 {
				delete(meta, "annotations")
			}
		}
	}
	return o, nil
}

func firstDifference(path string, a, b any) string {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok {
			return at(path)
		}
		names := slices.Collect(maps.Keys(a))
		for name := range b {
			if _, ok := a[name]; !ok {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			x, had := a[name]
			y, has := b[name]
			if had != has {
				return at(path + "." + name)
			}
			if p := firstDifference(path+"."+name, x, y); p != "" {
				return p
			}
		}
		return ""
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return at(path)
		}
		for i := range a {
			if p := firstDifference(path+"["+strconv.Itoa(i)+"]", a[i], b[i]); p != "" {
				return p
			}
		}
		return ""
	}
	switch b.(type) {
	case map[string]any, []any:
		return at(path)
	}
	if a != b {
		return at(path)
	}
	return ""
}

func at(path string) string {
	if path == "" {
		return "the object"
	}
	return path[1:]
}
