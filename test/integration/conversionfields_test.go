// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/ashlar-go/ashlar/conversion/conversiontest"
)

// managers decide who owns what, by the API server's own code, which converts an object to the version of every manager on
// the way.
type managers struct {
	group, kind string
	handler     http.Handler
	fields      map[string]*managedfields.FieldManager // by version
}

// newManagers reads the kind and the schemas of a definition.
func newManagers(h http.Handler, crd []byte) (*managers, error) {
	var d struct {
		Spec struct {
			Group    string
			Names    struct{ Kind string }
			Versions []struct {
				Name   string
				Schema struct {
					Root map[string]any `json:"openAPIV3Schema"`
				}
			}
		}
	}
	if err := json.Unmarshal(crd, &d); err != nil {
		return nil, err
	}
	m := &managers{group: d.Spec.Group, kind: d.Spec.Names.Kind, handler: h, fields: map[string]*managedfields.FieldManager{}}
	schemas := map[string]any{}
	for _, v := range d.Spec.Versions {
		object := v.Schema.Root
		object["x-kubernetes-group-version-kind"] = []any{map[string]any{"group": m.group, "version": v.Name, "kind": m.kind}}
		object["properties"].(map[string]any)["metadata"] = map[string]any{
			"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": map[string]any{
				"labels":      map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}},
				"annotations": map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}},
			}}
		schemas[v.Name] = object
	}
	types, err := converterOf(managedfields.NewTypeConverter, schemas)
	if err != nil {
		return nil, err
	}
	for _, v := range d.Spec.Versions {
		gvk := schema.GroupVersionKind{Group: m.group, Version: v.Name, Kind: m.kind}
		m.fields[v.Name], err = managedfields.NewDefaultCRDFieldManager(types, m, m, m, gvk, gvk.GroupVersion(), "", nil)
		if err != nil {
			return nil, err
		}
	}
	return m, nil
}

// applying is a server with managedFields.
type applying struct {
	*conversiontest.Server
	*managers
}

// converterOf reads schemas into whatever type the constructor takes: naming that type would cost a requirement.
func converterOf[S any](construct func(map[string]*S, bool) (managedfields.TypeConverter, error), schemas map[string]any) (managedfields.TypeConverter, error) {
	data, err := json.Marshal(schemas)
	if err != nil {
		return nil, err
	}
	var typed map[string]*S
	if err := json.Unmarshal(data, &typed); err != nil {
		return nil, err
	}
	return construct(typed, false)
}

// goClient is the manager of all who do not apply.
const goClient = "Go-http-client"

func parsed(raw []byte) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	return u, u.UnmarshalJSON(raw)
}

// live is an object at a version, an empty one if it is not there.
func (a applying) live(ctx context.Context, version, name string) (u *unstructured.Unstructured, there bool, err error) {
	raw, err := a.Get(ctx, version, name)
	if errors.Is(err, conversiontest.ErrNotFound) {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion(a.group + "/" + version)
		u.SetKind(a.kind)
		return u, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	u, err = parsed(raw)
	return u, true, err
}

// managed is an object that is written by a client, with managedFields.
func (a applying) managed(ctx context.Context, version string, raw []byte) ([]byte, error) {
	obj, err := parsed(raw)
	if err != nil {
		return nil, err
	}
	live, _, err := a.live(ctx, version, obj.GetName())
	if err != nil {
		return nil, err
	}
	out, err := a.fields[version].Update(live, obj, goClient)
	if err != nil {
		return nil, err
	}
	return out.(*unstructured.Unstructured).MarshalJSON()
}

func (a applying) Create(ctx context.Context, version string, obj []byte) error {
	raw, err := a.managed(ctx, version, obj)
	if err != nil {
		return err
	}
	return a.Server.Create(ctx, version, raw)
}

func (a applying) Update(ctx context.Context, version string, obj []byte) error {
	raw, err := a.managed(ctx, version, obj)
	if err != nil {
		return err
	}
	return a.Server.Update(ctx, version, raw)
}

// Patch is a write of what the patch makes of the object, before anything is converted: a change that conversions make is
// not the client's.
func (a applying) Patch(ctx context.Context, version, name string, patch []byte) error {
	live, _, err := a.live(ctx, version, name)
	if err != nil {
		return err
	}
	var p any
	d := json.NewDecoder(bytes.NewReader(patch))
	d.UseNumber()
	if err := d.Decode(&p); err != nil {
		return err
	}
	raw, err := json.Marshal(merged(live.Object, p))
	if err != nil {
		return err
	}
	return a.Update(ctx, version, raw)
}

// merged is RFC 7386.
func merged(target, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	t, _ := target.(map[string]any)
	out := maps.Clone(t)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range p {
		if v == nil {
			delete(out, k)
		} else {
			out[k] = merged(out[k], v)
		}
	}
	return out
}

// Apply merges a configuration into an object, whoever owns what it names.
func (a applying) Apply(ctx context.Context, version, manager string, raw []byte) error {
	config, err := parsed(raw)
	if err != nil {
		return err
	}
	live, there, err := a.live(ctx, version, config.GetName())
	if err != nil {
		return err
	}
	out, err := a.fields[version].Apply(live, config, manager, true)
	if err != nil {
		return fmt.Errorf("apply at %s by %s: %w", version, manager, err)
	}
	if hasNull(out.(*unstructured.Unstructured).Object) {
		return fmt.Errorf("apply at %s by %s: null: %w", version, manager, conversiontest.ErrInvalid)
	}
	obj, err := out.(*unstructured.Unstructured).MarshalJSON()
	switch {
	case err != nil:
		return err
	case there:
		return a.Server.Update(ctx, version, obj)
	}
	return a.Server.Create(ctx, version, obj)
}

// The rest is what the field manager asks of a scheme.

func (m *managers) ConvertToVersion(in runtime.Object, to runtime.GroupVersioner) (runtime.Object, error) {
	u := in.(*unstructured.Unstructured)
	gvk, ok := to.KindForGroupVersionKinds([]schema.GroupVersionKind{u.GroupVersionKind()})
	if !ok {
		return nil, fmt.Errorf("no version of %s for %v", u.GroupVersionKind(), to)
	}
	if gvk.Version == u.GroupVersionKind().Version {
		return u, nil
	}
	if len(u.Object) == 2 {
		// Nothing to convert: the API server asks nobody.
		out := u.DeepCopy()
		out.SetGroupVersionKind(gvk)
		return out, nil
	}
	raw, err := u.MarshalJSON()
	if err != nil {
		return nil, err
	}
	out, err := conversiontest.Review(context.Background(), m.handler, gvk.GroupVersion().String(), raw)
	if err != nil {
		return nil, err
	}
	return parsed(out[0])
}

// hasNull reports whether there is a null, which the schema of a gadget allows nowhere. Merging makes one of an object that
// has lost its last member, and an API server refuses it.
func hasNull(x any) bool {
	switch x := x.(type) {
	case nil:
		return true
	case map[string]any:
		for _, v := range x {
			if hasNull(v) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(x, hasNull)
	}
	return false
}

func (*managers) Default(runtime.Object) {}

func (*managers) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u, nil
}

func (*managers) Convert(in, _, _ any) error { return fmt.Errorf("convert %T: nobody asks this", in) }

func (*managers) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}
