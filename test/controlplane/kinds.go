// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// crdList is the part of a list of CustomResourceDefinitions that is read here: their Go types would cost a module.
type crdList struct {
	Items []struct {
		Spec struct {
			Group string `json:"group"`
			Names struct {
				Plural string `json:"plural"`
			} `json:"names"`
			Versions []struct {
				Name   string `json:"name"`
				Served bool   `json:"served"`
			} `json:"versions"`
		} `json:"spec"`
	} `json:"items"`
}

// kindsServed returns nil when discovery shows every version that a CustomResourceDefinition serves. The garbage
// collector takes its kinds from the same place when it starts; a definition that is only stored would come too late.
func (cp *ControlPlane) kindsServed(ctx context.Context) error {
	text, err := cp.client.Discovery().RESTClient().Get().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").DoRaw(ctx)
	if err != nil {
		return err
	}
	var crds crdList
	if err := json.Unmarshal(text, &crds); err != nil {
		return fmt.Errorf("read CustomResourceDefinitions: %w", err)
	}
	if len(crds.Items) == 0 {
		return nil
	}
	_, lists, err := cp.client.Discovery().ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return err
	}
	served := map[schema.GroupVersionResource]bool{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return err
		}
		for _, r := range list.APIResources {
			served[gv.WithResource(r.Name)] = true
		}
	}
	for _, crd := range crds.Items {
		for _, v := range crd.Spec.Versions {
			gvr := schema.GroupVersionResource{Group: crd.Spec.Group, Version: v.Name, Resource: crd.Spec.Names.Plural}
			if v.Served && !served[gvr] {
				return fmt.Errorf("%s is not served yet", gvr)
			}
		}
	}
	return nil
}
