// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// definition is what a CRD says that matters here.
type definition struct {
	name            string
	uid             types.UID
	resourceVersion string
	generation      int64
	group, kind     string
	plural          string
	storage         string
	versions        []string // of the spec
	served          []string
	stored          []string // status.storedVersions
	subresource     bool     // the storage version has a status subresource
}

var crdKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

func (m *Migrator) read(ctx context.Context) (*definition, error) {
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(crdKind)
	if err := m.live.Get(ctx, client.ObjectKey{Name: m.crd}, crd); err != nil {
		return nil, fmt.Errorf("read CustomResourceDefinition %s: %w", m.crd, err)
	}
	d := &definition{name: m.crd, uid: crd.GetUID(), resourceVersion: crd.GetResourceVersion(), generation: crd.GetGeneration()}
	d.group, _, _ = unstructured.NestedString(crd.Object, "spec", "group")
	d.kind, _, _ = unstructured.NestedString(crd.Object, "spec", "names", "kind")
	d.plural, _, _ = unstructured.NestedString(crd.Object, "spec", "names", "plural")
	d.stored, _, _ = unstructured.NestedStringSlice(crd.Object, "status", "storedVersions")
	list, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, item := range list {
		v, _ := item.(map[string]any)
		name, _ := v["name"].(string)
		d.versions = append(d.versions, name)
		if served, _ := v["served"].(bool); served {
			d.served = append(d.served, name)
		}
		if storage, _ := v["storage"].(bool); storage {
			d.storage = name
			_, d.subresource, _ = unstructured.NestedMap(v, "subresources", "status")
		}
	}
	if d.group == "" || d.kind == "" || d.storage == "" {
		return nil, fmt.Errorf("read CustomResourceDefinition %s: %w", m.crd, errors.New("spec.group, spec.names.kind or a storage version is missing"))
	}
	return d, nil
}

// served versions are the ones a manager may still be read at; fields recorded at any other are dead.
func (d *definition) dead(apiVersion string) bool {
	gv, err := schema.ParseGroupVersion(apiVersion)
	return err != nil || gv.Group != d.group || !slices.Contains(d.served, gv.Version)
}

func (d *definition) gvk() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: d.group, Version: d.storage, Kind: d.kind}
}

// settled says that nothing is stored at another version.
func (d *definition) settled() bool { return len(d.stored) == 1 && d.stored[0] == d.storage }
