// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversiontest

import (
	"slices"
	"strings"
)

// forgotten is the path of a field that the input has, that both versions have by the same name and with the same type,
// and that the answer lacks; "" if there is none. The way back restores it, so no other law sees that a client of the
// other version does not. The schemas are those of both versions and of all that a path may lead through.
func forgotten(in, out any, schemas []*schema, path string, except []string) string {
	if in == nil || slices.Contains(except, strings.TrimPrefix(path, ".")) {
		return ""
	}
	for _, s := range schemas {
		if s == nil || s.Type != schemas[0].Type || s.Preserve || s.IntOrString != schemas[0].IntOrString {
			return ""
		}
	}
	switch in := in.(type) {
	case map[string]any:
		o, _ := out.(map[string]any)
		for _, name := range sortedKeys(in) {
			below := properties(schemas, name)
			if below == nil || in[name] == nil {
				continue
			}
			at := path + "." + name
			if _, ok := o[name]; !ok && !slices.Contains(except, strings.TrimPrefix(at, ".")) && alike(below) && !hollowed(in[name], below) {
				return strings.TrimPrefix(at, ".")
			}
			if found := forgotten(in[name], o[name], below, at, except); found != "" {
				return found
			}
		}
	case []any:
		o, _ := out.([]any)
		if len(o) != len(in) || len(schemas[0].MapKeys) == 0 {
			return "" // who is who?
		}
		var items []*schema
		for _, s := range schemas {
			items = append(items, s.Items)
		}
		for _, x := range in {
			if j := indexOf(o, x, schemas[0].MapKeys); j >= 0 {
				if found := forgotten(x, o[j], items, path, except); found != "" {
					return found
				}
			}
		}
	}
	return ""
}

// properties are the schemas of a member, nil if one of the versions does not name it.
func properties(schemas []*schema, name string) []*schema {
	var out []*schema
	for _, s := range schemas {
		p := s.Properties[name]
		if p == nil {
			return nil
		}
		out = append(out, p)
	}
	return out
}

// alike reports whether all versions have one type there.
func alike(schemas []*schema) bool {
	return !slices.ContainsFunc(schemas, func(s *schema) bool {
		return s.Type != schemas[0].Type || s.Format != schemas[0].Format
	})
}

// hollowed reports whether nothing of an object exists at every version, so that none of it has to be there.
func hollowed(in any, schemas []*schema) bool {
	m, ok := in.(map[string]any)
	if !ok || len(schemas[0].Properties) == 0 {
		return false
	}
	for name := range m {
		if below := properties(schemas, name); below != nil && alike(below) && !hollowed(m[name], below) {
			return false
		}
	}
	return true
}
