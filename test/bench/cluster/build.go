// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var buildGroup = schema.GroupVersion{Group: "bench.example.com", Version: "v1"}

// Build is a kind with an artifact beside its conditions.
type Build struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Status BuildStatus `json:"status,omitempty"`
}

// BuildStatus is what was built, and from what.
type BuildStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Artifact           string             `json:"artifact,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// DeepCopyObject copies everything.
func (b *Build) DeepCopyObject() runtime.Object {
	c := *b
	b.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	c.Status.Conditions = slices.Clone(b.Status.Conditions)
	return &c
}

// BuildList is a list of builds.
type BuildList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Build `json:"items"`
}

// DeepCopyObject copies everything.
func (l *BuildList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = make([]Build, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopyObject().(*Build)
	}
	return &c
}

type m = map[string]any

func buildCRD() *unstructured.Unstructured {
	text := m{"type": "string"}
	whole := m{"type": "integer", "format": "int64"}
	condition := m{
		"type": "object", "required": []any{"type", "status", "lastTransitionTime", "reason", "message"},
		"properties": m{
			"type": text, "status": text, "reason": text, "message": text, "observedGeneration": whole,
			"lastTransitionTime": m{"type": "string", "format": "date-time"},
		},
	}
	status := m{"type": "object", "properties": m{
		"observedGeneration": whole, "artifact": text,
		"conditions": m{
			"type": "array", "items": condition,
			"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []any{"type"},
		},
	}}
	version := m{
		"name": "v1", "served": true, "storage": true, "subresources": m{"status": m{}},
		"schema": m{"openAPIV3Schema": m{"type": "object", "properties": m{
			"spec": m{"type": "object", "properties": m{"size": whole}}, "status": status,
		}}},
	}
	return &unstructured.Unstructured{Object: m{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": m{"name": "builds." + buildGroup.Group},
		"spec": m{
			"group": buildGroup.Group, "scope": "Namespaced", "versions": []any{version},
			"names": m{"kind": "Build", "listKind": "BuildList", "plural": "builds", "singular": "build"},
		},
	}}
}
