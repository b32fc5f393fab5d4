// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// op is one operation of a JSON Patch (RFC 6902). Value is left out when nil; a null value is the bytes "null".
type op struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

const (
	finalizersPath  = "/metadata/finalizers"
	annotationsPath = "/metadata/annotations"
	opTest          = "test"
	opAdd           = "add"
	opReplace       = "replace"
	opRemove        = "remove"
)

// null is what a test of something absent compares with.
var null = json.RawMessage("null")

// The patches below carry no resourceVersion: they must not fail because somebody wrote the status or the spec. What
// they depend on is tested instead, entry by entry, and the uid keeps them off another object of the same name.

func testUID(uid types.UID) op {
	return op{opTest, "/metadata/uid", encode(string(uid))}
}

// addOps appends name. A list that is absent cannot be appended to, so it is created, which must not happen over one
// that appeared meanwhile.
func addOps(list []string, name string) []op {
	if len(list) == 0 {
		return []op{
			{opTest, finalizersPath, null},
			{opAdd, finalizersPath, encode([]string{name})},
		}
	}
	return []op{{opAdd, finalizersPath + "/-", encode(name)}}
}

// removeOps takes out every entry that match accepts. Highest index first, so the indices of those still to come stay
// true; each is tested, so a list that moved meanwhile fails the patch and nobody else's entry is hit.
func removeOps(list []string, match func(string) bool) []op {
	var ops []op
	for i, entry := range slices.Backward(list) {
		if match(entry) {
			ops = append(ops, entryTest(i, entry), op{Op: opRemove, Path: entryPath(i)})
		}
	}
	return ops
}

// renameOps replaces former names by name, in place, so others keep their order; when name is there already, and for
// every former name after the first, the entry is removed.
func renameOps(list, former []string, name string) []op {
	isFormer := func(entry string) bool { return slices.Contains(former, entry) }
	keep := -1
	if !slices.Contains(list, name) {
		keep = slices.IndexFunc(list, isFormer)
	}
	var ops []op
	for i, entry := range slices.Backward(list) {
		switch {
		case i == keep:
			ops = append(ops, entryTest(i, entry), op{opReplace, entryPath(i), encode(name)})
		case isFormer(entry):
			ops = append(ops, entryTest(i, entry), op{Op: opRemove, Path: entryPath(i)})
		}
	}
	return ops
}

// annotationOps changes one annotation from what it was seen to be to value; an empty value removes it.
func annotationOps(seen map[string]string, key, value string) []op {
	path := annotationsPath + "/" + escape(key)
	old, present := seen[key]
	switch {
	case !present && value == "":
		return nil
	case present && value == "":
		return []op{{opTest, path, encode(old)}, {Op: opRemove, Path: path}}
	case present:
		return []op{{opTest, path, encode(old)}, {opReplace, path, encode(value)}}
	case len(seen) == 0: // the map is absent on the server, which stores no empty ones
		return []op{
			{opTest, annotationsPath, null},
			{opAdd, annotationsPath, encode(map[string]string{key: value})},
		}
	}
	return []op{{opTest, path, null}, {opAdd, path, encode(value)}}
}

func entryPath(i int) string { return finalizersPath + "/" + strconv.Itoa(i) }

func entryTest(i int, entry string) op { return op{opTest, entryPath(i), encode(entry)} }

// escape makes a key a JSON pointer token (RFC 6901).
func escape(key string) string {
	return strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
}
