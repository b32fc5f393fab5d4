// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversiontest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// schema is what the generator knows of an OpenAPI v3 schema.
type schema struct {
	Type        string             `json:"type"`
	Format      string             `json:"format"`
	Properties  map[string]*schema `json:"properties"`
	Required    []string           `json:"required"`
	Items       *schema            `json:"items"`
	Additional  json.RawMessage    `json:"additionalProperties"`
	Enum        []any              `json:"enum"`
	Minimum     *float64           `json:"minimum"`
	Maximum     *float64           `json:"maximum"`
	MinItems    int                `json:"minItems"`
	MaxItems    *int               `json:"maxItems"`
	MaxLength   *int               `json:"maxLength"`
	Nullable    bool               `json:"nullable"`
	Preserve    bool               `json:"x-kubernetes-preserve-unknown-fields"`
	IntOrString bool               `json:"x-kubernetes-int-or-string"`
	ListType    string             `json:"x-kubernetes-list-type"`
	MapKeys     []string           `json:"x-kubernetes-list-map-keys"`
}

// definition is a CustomResourceDefinition.
type definition struct {
	group, kind string
	versions    []string
	schemas     map[string]*schema
}

func readDefinition(crd []byte) (*definition, error) {
	var d struct {
		Spec struct {
			Group string `json:"group"`
			Names struct {
				Kind string `json:"kind"`
			} `json:"names"`
			Versions []struct {
				Name   string `json:"name"`
				Schema struct {
					Root *schema `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(crd, &d); err != nil {
		return nil, fmt.Errorf("read the definition: it is no JSON (YAML is made JSON by sigs.k8s.io/yaml): %w", err)
	}
	out := &definition{group: d.Spec.Group, kind: d.Spec.Names.Kind, schemas: map[string]*schema{}}
	for _, v := range d.Spec.Versions {
		if v.Schema.Root == nil {
			return nil, fmt.Errorf("read the definition: version %s has no schema", v.Name)
		}
		out.versions = append(out.versions, v.Name)
		out.schemas[v.Name] = v.Schema.Root
	}
	if len(out.versions) < 2 {
		return nil, fmt.Errorf("read the definition: %d versions, nothing to convert", len(out.versions))
	}
	return out, nil
}

func (s *schema) additional() *schema {
	if len(s.Additional) == 0 || s.Additional[0] != '{' {
		return nil
	}
	var a schema
	if json.Unmarshal(s.Additional, &a) != nil {
		return nil
	}
	return &a
}

// object is a random object of a version, without apiVersion, kind and metadata.
func (d *definition) object(r *rand.Rand, version string) map[string]any {
	m, _ := d.schemas[version].value(r, 0).(map[string]any)
	if m == nil {
		m = map[string]any{}
	}
	for _, k := range []string{"apiVersion", "kind", "metadata"} {
		delete(m, k)
	}
	return m
}

func metadata(r *rand.Rand, name string) map[string]any {
	m := map[string]any{"name": name, "namespace": "default"}
	if r.IntN(2) == 0 {
		m["labels"] = map[string]any{"app": []string{"a", "b", "c"}[r.IntN(3)]}
	}
	if r.IntN(2) == 0 {
		m["annotations"] = map[string]any{"example.com/note": word(r)}
	}
	return m
}

// complete adds what makes a document of a body.
func (d *definition) complete(body, metadata map[string]any, version string) []byte {
	m := map[string]any{"apiVersion": d.group + "/" + version, "kind": d.kind}
	for k, v := range body {
		m[k] = v
	}
	if metadata != nil {
		m["metadata"] = metadata
	}
	return encode(m)
}

// word is a string from few, so that equal ones meet.
func word(r *rand.Rand) string {
	return []string{"a", "b", "c", "db", "x<y&z", "ünï", "0"}[r.IntN(7)]
}

func (s *schema) value(r *rand.Rand, depth int) any {
	if s.Nullable && r.IntN(8) == 0 {
		return nil
	}
	if len(s.Enum) > 0 {
		return s.Enum[r.IntN(len(s.Enum))]
	}
	if s.IntOrString {
		if r.IntN(2) == 0 {
			return json.Number(fmt.Sprint(r.IntN(100)))
		}
		return fmt.Sprintf("%d%%", r.IntN(100))
	}
	switch s.Type {
	case "object":
		return s.members(r, depth)
	case "array":
		return s.items(r, depth)
	case "integer":
		return json.Number(fmt.Sprint(s.integer(r)))
	case "number":
		return json.Number([]string{"0", "1", "0.5", "1.25", "-3", "100000"}[r.IntN(6)])
	case "boolean":
		return r.IntN(2) == 0
	case "string":
		return s.str(r)
	}
	if s.Preserve {
		return anything(r, depth)
	}
	return nil
}

func (s *schema) integer(r *rand.Rand) int64 {
	low, high := int64(0), int64(6)
	if s.Minimum != nil {
		low = int64(*s.Minimum)
		high = low + 6
	}
	if s.Maximum != nil {
		high = min(high, int64(*s.Maximum))
	}
	if s.Maximum == nil && s.Format == "int64" && r.IntN(10) == 0 {
		return 9007199254740993 // a float64 cannot hold it
	}
	return low + r.Int64N(high-low+1)
}

func (s *schema) str(r *rand.Rand) string {
	switch s.Format {
	case "date-time":
		return fmt.Sprintf("2026-03-0%dT10:00:0%dZ", 1+r.IntN(9), r.IntN(10))
	case "duration":
		return []string{"30s", "60s", "1m0s", "1h"}[r.IntN(4)]
	case "byte":
		return "aGk="
	}
	w := word(r)
	if r.IntN(12) == 0 {
		w = ""
	}
	if s.MaxLength != nil && len(w) > *s.MaxLength {
		return ""
	}
	return w
}

func (s *schema) members(r *rand.Rand, depth int) any {
	m := map[string]any{}
	for _, name := range sortedKeys(s.Properties) {
		if name == "metadata" && depth == 0 {
			continue
		}
		if slices.Contains(s.Required, name) || r.IntN(10) < 7-depth/2 {
			m[name] = s.Properties[name].value(r, depth+1)
		}
	}
	if a := s.additional(); a != nil {
		for range r.IntN(4) {
			m[word(r)] = a.value(r, depth+1)
		}
	}
	if s.Preserve && r.IntN(2) == 0 {
		m["extra"] = anything(r, depth+1)
	}
	return m
}

func (s *schema) items(r *rand.Rand, depth int) any {
	n := s.MinItems + r.IntN(5)
	if s.MaxItems != nil {
		n = min(n, *s.MaxItems)
	}
	list := make([]any, 0, n)
	for range n {
		if item := s.item(r, depth, list); item != nil {
			list = append(list, item)
		}
	}
	return list
}

// item is a new item for a list, nil if none is found that the list takes.
func (s *schema) item(r *rand.Rand, depth int, list []any) any {
	for range 8 {
		item := s.Items.value(r, depth+1)
		m, _ := item.(map[string]any)
		for _, k := range s.MapKeys {
			if m != nil && m[k] == nil {
				m[k] = s.Items.Properties[k].value(r, depth+2)
			}
		}
		taken := slices.ContainsFunc(list, func(other any) bool {
			switch {
			case len(s.MapKeys) > 0:
				return keyOf(other, s.MapKeys) == keyOf(item, s.MapKeys)
			case s.ListType == "set":
				return string(encode(other)) == string(encode(item))
			}
			return false
		})
		if !taken {
			return item
		}
	}
	return nil
}

func keyOf(item any, keys []string) string {
	m, _ := item.(map[string]any)
	var b strings.Builder
	for _, k := range keys {
		b.Write(encode(m[k]))
		b.WriteByte(0)
	}
	return b.String()
}

func anything(r *rand.Rand, depth int) any {
	if depth > 4 {
		return word(r)
	}
	switch r.IntN(5) {
	case 0:
		return map[string]any{word(r): anything(r, depth+1)}
	case 1:
		return []any{anything(r, depth+1)}
	case 2:
		return json.Number(fmt.Sprint(r.IntN(9)))
	case 3:
		return r.IntN(2) == 0
	}
	return word(r)
}

// edit changes one thing in a value of the schema: a member is set, changed or removed, an item is inserted, removed,
// moved or changed. The value it is given is not changed.
func (s *schema) edit(r *rand.Rand, v any, depth int) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, x := range v {
			out[k] = x
		}
		var names []string
		for _, name := range sortedKeys(s.Properties) {
			if depth > 0 || name != "apiVersion" && name != "kind" && name != "metadata" {
				names = append(names, name)
			}
		}
		a := s.additional()
		if a != nil {
			names = append(names, word(r))
		}
		if len(names) == 0 {
			return out
		}
		name := names[r.IntN(len(names))]
		p := s.Properties[name]
		if p == nil {
			p = a
		}
		old, there := out[name]
		switch {
		case !there || old == nil:
			out[name] = p.value(r, depth+1)
		case r.IntN(6) == 0 && !slices.Contains(s.Required, name):
			delete(out, name)
		default:
			out[name] = p.edit(r, old, depth+1)
		}
		return out
	case []any:
		return s.editList(r, v, depth)
	}
	return s.value(r, depth)
}

func (s *schema) editList(r *rand.Rand, list []any, depth int) any {
	out := slices.Clone(list)
	switch op := r.IntN(4); {
	case op == 0 || len(out) == 0:
		if s.MaxItems != nil && len(out) >= *s.MaxItems {
			return out
		}
		if item := s.item(r, depth, out); item != nil {
			out = slices.Insert(out, r.IntN(len(out)+1), item)
		}
	case op == 1 && len(out) > s.MinItems:
		i := r.IntN(len(out))
		out = slices.Delete(out, i, i+1)
	case op == 2:
		i := r.IntN(len(out))
		x := out[i]
		out = slices.Insert(slices.Delete(out, i, i+1), r.IntN(len(out)), x)
	default:
		i := r.IntN(len(out))
		x := s.Items.edit(r, out[i], depth+1)
		rest := slices.Delete(slices.Clone(out), i, i+1)
		for _, other := range rest {
			if len(s.MapKeys) > 0 && keyOf(other, s.MapKeys) == keyOf(x, s.MapKeys) ||
				s.ListType == "set" && string(encode(other)) == string(encode(x)) {
				return out
			}
		}
		out[i] = x
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
