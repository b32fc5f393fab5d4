// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// mergePatch is RFC 7386 on decoded JSON. It does not change its arguments' maps.
func mergePatch(doc, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	out := map[string]any{}
	if d, ok := doc.(map[string]any); ok {
		for k, v := range d {
			out[k] = v
		}
	}
	for k, v := range p {
		if v == nil {
			delete(out, k)
			continue
		}
		out[k] = mergePatch(out[k], v)
	}
	return out
}

// errTest is a test operation that did not hold.
var errTest = errors.New("test failed")

// operation is one of a JSON Patch.
type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	From  string          `json:"from"`
	Value json.RawMessage `json:"value"`
}

// jsonPatch is RFC 6902 on decoded JSON; the document is copied first. As on the API server a missing path tests equal
// to null.
func jsonPatch(doc map[string]any, body []byte) (map[string]any, error) {
	var ops []operation
	if err := json.Unmarshal(body, &ops); err != nil {
		return nil, fmt.Errorf("read json patch: %w", err)
	}
	var root any = runtime.DeepCopyJSON(doc)
	for _, op := range ops {
		var err error
		if root, err = op.run(root); err != nil {
			return nil, fmt.Errorf("%s %s: %w", op.Op, op.Path, err)
		}
	}
	out, ok := root.(map[string]any)
	if !ok {
		return nil, errors.New("the result is no object")
	}
	return out, nil
}

func (o operation) run(root any) (any, error) {
	path, err := pointer(o.Path)
	if err != nil {
		return nil, err
	}
	var value any
	if len(o.Value) > 0 {
		if err := utiljson.Unmarshal(o.Value, &value); err != nil {
			return nil, err
		}
	}
	switch o.Op {
	case "add", "replace", "remove":
		return edit(root, path, o.Op, value)
	case "test":
		got, ok := lookup(root, path)
		if !ok && value != nil || !reflect.DeepEqual(got, value) {
			return nil, errTest
		}
		return root, nil
	case "move", "copy":
		from, err := pointer(o.From)
		if err != nil {
			return nil, err
		}
		got, ok := lookup(root, from)
		if !ok {
			return nil, errors.New("from does not exist")
		}
		if o.Op == "move" {
			if root, err = edit(root, from, "remove", nil); err != nil {
				return nil, err
			}
		}
		return edit(root, path, "add", runtime.DeepCopyJSONValue(got))
	default:
		return nil, errors.New("unknown operation")
	}
}

func pointer(p string) ([]string, error) {
	if p == "" {
		return nil, nil
	}
	if p[0] != '/' {
		return nil, fmt.Errorf("path %q does not start with a slash", p)
	}
	parts := strings.Split(p[1:], "/")
	for i := range parts {
		parts[i] = strings.ReplaceAll(strings.ReplaceAll(parts[i], "~1", "/"), "~0", "~")
	}
	return parts, nil
}

func lookup(at any, path []string) (any, bool) {
	for _, p := range path {
		switch t := at.(type) {
		case map[string]any:
			v, ok := t[p]
			if !ok {
				return nil, false
			}
			at = v
		case []any:
			i, err := strconv.Atoi(p)
			if err != nil || i < 0 || i >= len(t) {
				return nil, false
			}
			at = t[i]
		default:
			return nil, false
		}
	}
	return at, true
}

// edit returns the document with one place changed.
func edit(at any, path []string, op string, value any) (any, error) {
	if len(path) == 0 {
		if op == "remove" {
			return nil, nil
		}
		return value, nil
	}
	p, last := path[0], len(path) == 1
	switch t := at.(type) {
	case map[string]any:
		old, ok := t[p]
		switch {
		case last && op == "add":
			t[p] = value
		case !ok:
			return nil, errors.New("path does not exist")
		case last && op == "remove":
			delete(t, p)
		default:
			next, err := edit(old, path[1:], op, value)
			if err != nil {
				return nil, err
			}
			t[p] = next
		}
		return t, nil
	case []any:
		if last && op == "add" && p == "-" {
			return append(t, value), nil
		}
		i, err := strconv.Atoi(p)
		switch {
		case err != nil || i < 0 || i > len(t) || i == len(t) && !(last && op == "add"):
			return nil, errors.New("index does not exist")
		case last && op == "add":
			return slices.Insert(t, i, value), nil
		case last && op == "remove":
			return slices.Delete(t, i, i+1), nil
		}
		next, err := edit(t[i], path[1:], op, value)
		if err != nil {
			return nil, err
		}
		t[i] = next
		return t, nil
	default:
		return nil, errors.New("path does not exist")
	}
}
