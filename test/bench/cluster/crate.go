// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ashlar-go/ashlar/conversion"
)

const crateGroup = "crates.example.com"

type (
	// OldCrate is stored.
	OldCrate struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata,omitempty"`

		Spec struct {
			Replicas int32             `json:"replicas,omitempty"`
			Host     string            `json:"host,omitempty"`
			Config   map[string]string `json:"config,omitempty"`
		} `json:"spec,omitempty"`
		Status CrateStatus `json:"status,omitempty"`
	}
	// Crate is read.
	Crate struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata,omitempty"`

		Spec struct {
			Scale    *CrateScale       `json:"scale,omitempty"`
			Endpoint *CrateEndpoint    `json:"endpoint,omitempty"`
			Config   map[string]string `json:"config,omitempty"`
		} `json:"spec,omitempty"`
		Status CrateStatus `json:"status,omitempty"`
	}
	// CrateScale was a number.
	CrateScale struct {
		Min int32 `json:"min"`
	}
	// CrateEndpoint was a string.
	CrateEndpoint struct {
		Host string `json:"host"`
	}
	// CrateStatus is the same in both.
	CrateStatus struct {
		Ready int32 `json:"ready,omitempty"`
	}
)

func crateKind(i int) string   { return fmt.Sprintf("Crate%d", i) }
func cratePlural(i int) string { return strings.ToLower(crateKind(i)) + "s" }
func cratePath(i int, version string) string {
	return "/apis/" + crateGroup + "/" + version + "/namespaces/default/" + cratePlural(i)
}

func crateConverter(i int) (*conversion.Converter, error) {
	b := conversion.New(schema.GroupKind{Group: crateGroup, Kind: crateKind(i)})
	conversion.Pair(b, "v1alpha1", "v1", func(_ context.Context, in *OldCrate, out *Crate) error {
		if in.Spec.Replicas != 0 {
			out.Spec.Scale = &CrateScale{Min: in.Spec.Replicas}
		}
		if in.Spec.Host != "" {
			out.Spec.Endpoint = &CrateEndpoint{Host: in.Spec.Host}
		}
		out.Spec.Config, out.Status = in.Spec.Config, in.Status
		return nil
	}, func(_ context.Context, in *Crate, out *OldCrate) error {
		if in.Spec.Scale != nil {
			out.Spec.Replicas = in.Spec.Scale.Min
		}
		if in.Spec.Endpoint != nil {
			out.Spec.Host = in.Spec.Endpoint.Host
		}
		out.Spec.Config, out.Status = in.Spec.Config, in.Status
		return nil
	})
	return b.Build()
}

// crate is an object of about two kilobytes, managedFields included once it is stored.
func crate(i, k int) []byte {
	var config strings.Builder
	for n := range 16 {
		if n > 0 {
			config.WriteByte(',')
		}
		fmt.Fprintf(&config, `"key-%02d":"value %02d of crate %04d"`, n, n, k)
	}
	return fmt.Appendf(nil, `{"apiVersion":"%s/v1alpha1","kind":"%s","metadata":{"name":"c%04d","labels":{"app":"crate"}},"spec":{"replicas":%d,"host":"db-%d","config":{%s}},"status":{"ready":2}}`,
		crateGroup, crateKind(i), k, 1+k%5, k, config.String())
}

// crateCRD has schemas that keep what they do not know, so that an echo costs the API server as much.
func crateCRD(i int, url string, ca []byte, description string) map[string]any {
	var versions []any
	for _, v := range []string{"v1alpha1", "v1"} {
		open := m{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
		versions = append(versions, m{
			"name": v, "served": true, "storage": v == "v1alpha1",
			"schema": m{"openAPIV3Schema": m{"type": "object", "description": description, "properties": m{"spec": open, "status": open}}},
		})
	}
	return m{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": m{"name": cratePlural(i) + "." + crateGroup},
		"spec": m{
			"group": crateGroup, "scope": "Namespaced", "versions": versions,
			"names": m{"kind": crateKind(i), "listKind": crateKind(i) + "List", "plural": cratePlural(i), "singular": strings.ToLower(crateKind(i))},
			"conversion": m{"strategy": "Webhook", "webhook": m{
				"conversionReviewVersions": []string{"v1"}, "clientConfig": m{"url": url, "caBundle": ca},
			}},
		},
	}
}
