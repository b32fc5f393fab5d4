// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// openAPI is the part of an OpenAPI v3 document that Check reads.
type openAPI struct {
	Paths      map[string]map[string]json.RawMessage `json:"paths"`
	Components struct {
		Schemas map[string]*schemaNode `json:"schemas"`
	} `json:"components"`
}

type schemaNode struct {
	Ref        string                    `json:"$ref"`
	AllOf      []*schemaNode             `json:"allOf"` // a reference with siblings is wrapped in it
	Properties map[string]*schemaNode    `json:"properties"`
	Default    json.RawMessage           `json:"default"`
	ListType   string                    `json:"x-kubernetes-list-type"`
	MapKeys    []string                  `json:"x-kubernetes-list-map-keys"`
	Preserve   bool                      `json:"x-kubernetes-preserve-unknown-fields"`
	Kinds      []schema.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
}

func (g *Group) readOpenAPI(ctx context.Context, gv schema.GroupVersion) (*openAPI, error) {
	raw, err := g.settings.schema(ctx, gv)
	if err != nil {
		return nil, err
	}
	doc := &openAPI{}
	if err := json.Unmarshal(raw, doc); err != nil {
		return nil, err
	}
	return doc, nil
}

// resolve follows references, at most 16; nil when there is nothing at the end. A default beside a reference wins.
func (d *openAPI) resolve(n *schemaNode) *schemaNode {
	var outer json.RawMessage
	for range 16 {
		if n == nil {
			return nil
		}
		if outer == nil {
			outer = n.Default
		}
		switch {
		case n.Ref != "":
			n = d.Components.Schemas[n.Ref[strings.LastIndexByte(n.Ref, '/')+1:]]
		case len(n.AllOf) == 1 && len(n.Properties) == 0:
			n = n.AllOf[0]
		default:
			end := *n
			end.Default = outer
			return &end
		}
	}
	return nil
}

func (d *openAPI) property(n *schemaNode, name string) *schemaNode {
	if n = d.resolve(n); n == nil {
		return nil
	}
	return n.Properties[name]
}

func (d *openAPI) check(w *core, resource string) []error {
	var errs []error
	say := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s %s: %s", w.version, w.gvk.Kind, fmt.Sprintf(format, args...)))
	}
	served := false
	for path, item := range d.Paths {
		if _, ok := item["patch"]; ok && strings.HasSuffix(path, "/"+resource+"/{name}/status") {
			served = true
		}
	}
	if !served {
		say("it has no status subresource, so a status write changes nothing or answers 404")
	}
	var root *schemaNode
	for _, s := range d.Components.Schemas {
		for _, k := range s.Kinds {
			if k == w.gvk {
				root = s
			}
		}
	}
	if root == nil {
		say("the OpenAPI v3 document has no schema of it")
		return errs
	}
	status := d.resolve(d.property(root, "status"))
	if status == nil {
		say("its schema has no status")
		return errs
	}
	o := &w.owned
	if len(o.index) > 0 {
		list := root
		for _, p := range o.path {
			list = d.property(list, p)
		}
		// The list type sits beside a reference, so it is read before resolving.
		path := strings.Join(o.path, ".")
		switch {
		case list == nil:
			say("its schema has no %s", path)
		case list.ListType != "map" || len(list.MapKeys) != 1 || list.MapKeys[0] != "type":
			say("%s is not x-kubernetes-list-type: map keyed by type, so writers overwrite each other's conditions", path)
		}
	}
	for _, f := range o.fields {
		if status.Properties[f] == nil && !status.Preserve {
			say("its schema has no status.%s, so the server drops it", f)
		}
	}
	if o.primary {
		if status.Properties[observedGeneration] == nil && !status.Preserve {
			say("its schema has no status.observedGeneration")
		} else if !strings.Contains(w.gvk.Group, ".") || defaultsObserved(status.Default) {
			// Built-in kinds have no such default and their users know it.
		} else {
			say("status has no default {observedGeneration: -1}, so kstatus takes a new object for Current before the first write")
		}
	}
	return errs
}

// defaultsObserved says whether a default of status sets an observedGeneration no object has.
func defaultsObserved(raw json.RawMessage) bool {
	var d struct {
		ObservedGeneration *int64 `json:"observedGeneration"`
	}
	return json.Unmarshal(raw, &d) == nil && d.ObservedGeneration != nil && *d.ObservedGeneration < 0
}
