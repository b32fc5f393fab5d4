// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/json"
)

// crd is what Check reads of a CustomResourceDefinition.
type crd struct {
	Kind string `json:"kind"`
	Spec struct {
		Group string `json:"group"`
		Names struct {
			Kind string `json:"kind"`
		} `json:"names"`
		PreserveUnknownFields bool `json:"preserveUnknownFields"`
		Conversion            *struct {
			Strategy string `json:"strategy"`
			Webhook  *struct {
				ConversionReviewVersions []string `json:"conversionReviewVersions"`
				ClientConfig             *struct {
					URL     string `json:"url"`
					Service *struct {
						Name string `json:"name"`
						Path string `json:"path"`
						Port *int   `json:"port"`
					} `json:"service"`
					CABundle []byte `json:"caBundle"`
				} `json:"clientConfig"`
			} `json:"webhook"`
		} `json:"conversion"`
		Versions []struct {
			Name   string `json:"name"`
			Served bool   `json:"served"`
			Schema *struct {
				OpenAPIV3Schema *property `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
	Status struct {
		StoredVersions []string `json:"storedVersions"`
	} `json:"status"`
}

type property struct {
	Properties           map[string]*property `json:"properties"`
	Items                *property            `json:"items"`
	AdditionalProperties any                  `json:"additionalProperties"`
	Preserve             bool                 `json:"x-kubernetes-preserve-unknown-fields"`
	Embedded             bool                 `json:"x-kubernetes-embedded-resource"`
	MapKeys              []string             `json:"x-kubernetes-list-map-keys"`
}

// Check compares the converter with a CustomResourceDefinition, which is JSON: what a client reads at start-up, or a
// manifest after sigs.k8s.io/yaml.YAMLToJSON in a test. YAML itself is not read: its parser would come with every operator.
// The error joins one sentence for each finding:
//
//   - a version of spec.versions, served or not, or of status.storedVersions, that the converter does not know;
//   - a conversion that is not by webhook, or by a webhook that cannot be called: no v1 review, no path, no caBundle;
//   - a field of a Go type that the schema of its version does not have: the API server prunes it before the webhook
//     sees it;
//   - map keys of a list in a schema that the converter was not told (WithListKeys).
func (c *Converter) Check(raw []byte) error {
	var d crd
	if err := json.UnmarshalCaseSensitivePreserveInts(raw, &d); err != nil {
		return fmt.Errorf("check conversion of %s: the definition is no JSON (YAML is made JSON by sigs.k8s.io/yaml): %w", c.gk, err)
	}
	var errs []error
	found := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if d.Kind != "CustomResourceDefinition" || d.Spec.Group != c.gk.Group || d.Spec.Names.Kind != c.gk.Kind {
		return fmt.Errorf("check conversion of %s: the document is a %s for %s.%s", c.gk, d.Kind, d.Spec.Names.Kind, d.Spec.Group)
	}
	var versions []string
	for _, v := range d.Spec.Versions {
		versions = append(versions, v.Name)
	}
	if len(versions) > 1 {
		c.checkWebhook(&d, found)
	}
	for _, v := range d.Spec.Versions {
		if c.knows(v.Name) != nil {
			found("version %s is in spec.versions (served: %t) and in no pair; every other version needs a way to and from it", v.Name, v.Served)
			continue
		}
		if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			continue
		}
		if s := c.sides[v.Name]; s != nil && s.info != nil {
			c.checkFields(v.Name, s.info, v.Schema.OpenAPIV3Schema, "", nil, found)
		}
		c.checkKeys(v.Name, v.Schema.OpenAPIV3Schema, "", found)
	}
	for _, v := range d.Status.StoredVersions {
		if c.knows(v) != nil && !slices.Contains(versions, v) {
			found("version %s is in status.storedVersions and in no pair: objects may still be stored in it", v)
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("check conversion of %s: %w", c.gk, errors.Join(errs...))
	}
	return nil
}

func (c *Converter) checkWebhook(d *crd, found func(string, ...any)) {
	if d.Spec.PreserveUnknownFields {
		found("spec.preserveUnknownFields is true, and the API server allows no webhook then")
	}
	conv := d.Spec.Conversion
	if conv == nil || conv.Strategy != "Webhook" || conv.Webhook == nil || conv.Webhook.ClientConfig == nil {
		found("spec.conversion is not by webhook: the API server changes apiVersion and nothing else")
		return
	}
	if !slices.Contains(conv.Webhook.ConversionReviewVersions, "v1") {
		found("spec.conversion.webhook.conversionReviewVersions is %q and has no v1", conv.Webhook.ConversionReviewVersions)
	}
	cc := conv.Webhook.ClientConfig
	switch {
	case (cc.URL == "") == (cc.Service == nil):
		found("spec.conversion.webhook.clientConfig needs either a url or a service")
	case cc.URL != "" && !strings.HasPrefix(cc.URL, "https://"):
		found("spec.conversion.webhook.clientConfig.url %q is not https", cc.URL)
	case cc.Service != nil && cc.Service.Path == "":
		found("spec.conversion.webhook.clientConfig.service has no path: the API server would post to /")
	case cc.Service != nil && cc.Service.Port != nil && (*cc.Service.Port < 1 || *cc.Service.Port > 65535):
		found("spec.conversion.webhook.clientConfig.service.port is %d", *cc.Service.Port)
	}
	if block, _ := pem.Decode(cc.CABundle); block == nil {
		found("spec.conversion.webhook.clientConfig.caBundle is no certificate: the API server would trust its own roots only")
	}
}

// checkFields looks for fields of a type that a schema does not have.
func (c *Converter) checkFields(version string, t *typeInfo, p *property, path string, above []*typeInfo, found func(string, ...any)) {
	t = t.deref()
	if t.opaque || p == nil || p.Preserve || p.Embedded || slices.Contains(above, t) {
		return
	}
	above = append(slices.Clip(above), t)
	switch {
	case t.byName != nil && p.AdditionalProperties == nil:
		for i := range t.fields {
			f := &t.fields[i]
			if path == "" && outside(f.name) {
				continue
			}
			at := join(path, f.name)
			child, ok := p.Properties[f.name]
			if !ok {
				found("the schema of %s has no %s, which %s has: the API server prunes it before the conversion sees it", version, at, t.t)
				continue
			}
			c.checkFields(version, f.info, child, at, above, found)
		}
	case t.elem != nil && p.Items != nil:
		c.checkFields(version, t.elem, p.Items, path, above, found)
	}
}

func (c *Converter) checkKeys(version string, p *property, path string, found func(string, ...any)) {
	if p == nil {
		return
	}
	if len(p.MapKeys) > 0 && !slices.Equal(slices.Sorted(slices.Values(c.keys[version][path])), slices.Sorted(slices.Values(p.MapKeys))) {
		found("the schema of %s tells the items of %s apart by %q, the converter by %q: use WithListKeys", version, path, p.MapKeys, c.keys[version][path])
	}
	c.checkKeys(version, p.Items, path, found)
	var names []string
	for name := range p.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		c.checkKeys(version, p.Properties[name], join(path, name), found)
	}
}
