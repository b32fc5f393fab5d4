// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
)

// metadataSchema says how the fields of metadata merge.
const metadataSchema = `{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{
"annotations":{"type":"object","additionalProperties":{"type":"string"}},
"labels":{"type":"object","additionalProperties":{"type":"string"}},
"finalizers":{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"set"},
"ownerReferences":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["uid"],
 "items":{"type":"object","x-kubernetes-map-type":"atomic","properties":{"apiVersion":{"type":"string"},
 "kind":{"type":"string"},"name":{"type":"string"},"uid":{"type":"string"},"controller":{"type":"boolean"},
 "blockOwnerDeletion":{"type":"boolean"}}}}}}`

// openSchema is that of a kind about which nothing was said.
const openSchema = `{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{
"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{
 "conditions":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["type"],
 "items":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"type":{"type":"string"}}}}}}}}`

// manageFields makes the field managers of a kind.
func (k *kindStore) manageFields() error {
	text := k.Schema
	if len(text) == 0 {
		text = []byte(openSchema)
	}
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		return fmt.Errorf("read schema: %w", err)
	}
	var metadata any
	if err := json.Unmarshal([]byte(metadataSchema), &metadata); err != nil {
		return fmt.Errorf("read schema of metadata: %w", err)
	}
	properties, _ := object["properties"].(map[string]any)
	if properties == nil {
		properties = map[string]any{}
		object["properties"] = properties
	}
	properties["metadata"] = metadata
	properties["apiVersion"] = map[string]any{"type": "string"}
	properties["kind"] = map[string]any{"type": "string"}
	object["x-kubernetes-group-version-kind"] = []any{map[string]any{"group": k.Group, "version": k.Version, "kind": k.Kind}}

	types, err := converterOf(managedfields.NewTypeConverter, map[string]any{"object": object})
	if err != nil {
		return err
	}
	for _, sub := range []string{"", "status"} {
		h := fieldHelpers{}
		k.fields[sub], err = managedfields.NewDefaultCRDFieldManager(types, h, h, h, k.GroupVersionKind, k.GroupVersion(), sub, nil)
		if err != nil {
			return err
		}
	}
	return nil
}

// converterOf reads schemas into whatever type the constructor takes: naming that type would cost an import.
func converterOf[S any](construct func(map[string]*S, bool) (managedfields.TypeConverter, error), schemas map[string]any) (managedfields.TypeConverter, error) {
	data, err := json.Marshal(schemas)
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	var typed map[string]*S
	if err := json.Unmarshal(data, &typed); err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	return construct(typed, false)
}

// fieldHelpers are what a field manager asks of a scheme; with one version and unstructured objects there is nothing to
// do.
type fieldHelpers struct{}

// Default does nothing.
func (fieldHelpers) Default(runtime.Object) {}

// New returns an empty object of the kind.
func (fieldHelpers) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u, nil
}

// Convert refuses: there is one version.
func (fieldHelpers) Convert(in, _, _ any) error { return fmt.Errorf("convert %T: not served", in) }

// ConvertToVersion returns the object itself.
func (fieldHelpers) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

// ConvertFieldLabel returns the label itself.
func (fieldHelpers) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}
