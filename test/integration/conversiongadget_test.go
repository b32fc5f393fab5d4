// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ashlar-go/ashlar/conversion"
)

func gadgetKind(group string) schema.GroupKind { return schema.GroupKind{Group: group, Kind: "Gadget"} }

// A kind in four versions: every step renames, reshapes, adds and drops.
type (
	Meta struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata,omitempty"`
	}

	GadgetA struct { // v1alpha1
		Meta   `json:",inline"`
		Spec   SpecA   `json:"spec,omitempty"`
		Status StatusA `json:"status,omitempty"`
	}
	SpecA struct {
		Replicas       int32             `json:"replicas,omitempty"`
		Host           string            `json:"host,omitempty"`
		TimeoutSeconds int64             `json:"timeoutSeconds,omitempty"`
		Tags           map[string]string `json:"tags,omitempty"`
		Rules          []RuleA           `json:"rules,omitempty" keys:"name"`
		Ports          []PortA           `json:"ports,omitempty"`
		Args           []string          `json:"args,omitempty"`
		Legacy         string            `json:"legacy,omitempty"`
		Suspend        *bool             `json:"suspend,omitempty"`
	}
	RuleA struct {
		Name string `json:"name"`
		Port int32  `json:"port,omitempty"`
	}
	PortA struct {
		Port int32 `json:"port,omitempty"`
	}
	StatusA struct {
		Ready *int32 `json:"ready,omitempty"`
	}

	GadgetB struct { // v1beta1
		Meta   `json:",inline"`
		Spec   SpecB   `json:"spec,omitempty"`
		Status StatusB `json:"status,omitempty"`
	}
	SpecB struct {
		Replicas       int32             `json:"replicas,omitempty"`
		Endpoint       *EndpointB        `json:"endpoint,omitempty"`
		TimeoutSeconds int64             `json:"timeoutSeconds,omitempty"`
		Tags           map[string]string `json:"tags,omitempty"`
		Rules          []RuleB           `json:"rules,omitempty" keys:"name"`
		Ports          []PortB           `json:"ports,omitempty"`
		Args           []string          `json:"args,omitempty"`
		Legacy         string            `json:"legacy,omitempty"`
		Mode           string            `json:"mode,omitempty"`
		Suspend        *bool             `json:"suspend,omitempty"`
	}
	EndpointB struct {
		Host string `json:"host"`
		TLS  bool   `json:"tls,omitempty"`
	}
	RuleB struct {
		Name string `json:"name"`
		Port int32  `json:"port,omitempty"`
		CIDR string `json:"cidr,omitempty"`
	}
	PortB struct {
		Port    int32  `json:"port,omitempty"`
		Comment string `json:"comment,omitempty"`
	}
	StatusB struct {
		Ready *int32 `json:"ready,omitempty"`
		Phase string `json:"phase,omitempty"`
	}

	GadgetC struct { // v1
		Meta   `json:",inline"`
		Spec   SpecC   `json:"spec,omitempty"`
		Status StatusB `json:"status,omitempty"`
	}
	SpecC struct {
		Scale    *Scale            `json:"scale,omitempty"`
		Endpoint *EndpointB        `json:"endpoint,omitempty"`
		Timeout  *metav1.Duration  `json:"timeout,omitempty"`
		Tags     map[string]string `json:"tags,omitempty"`
		Rules    []RuleC           `json:"rules,omitempty" keys:"name"`
		Ports    []PortB           `json:"ports,omitempty"`
		Args     []string          `json:"args,omitempty"`
		Mode     string            `json:"mode,omitempty"`
		Tier     string            `json:"tier,omitempty"`
		Budget   *int64            `json:"budget,omitempty"`
		Suspend  *bool             `json:"suspend,omitempty"`
	}
	Scale struct {
		Min int32 `json:"min"`
		Max int32 `json:"max,omitempty"`
	}
	RuleC struct {
		Name   string            `json:"name"`
		Port   int32             `json:"port,omitempty"`
		CIDR   string            `json:"cidr,omitempty"`
		Labels map[string]string `json:"labels,omitempty"`
	}

	GadgetD struct { // v2
		Meta   `json:",inline"`
		Spec   SpecD   `json:"spec,omitempty"`
		Status StatusB `json:"status,omitempty"`
	}
	SpecD struct {
		Scale    *Scale            `json:"scale,omitempty"`
		Endpoint *EndpointB        `json:"endpoint,omitempty"`
		Timeout  *metav1.Duration  `json:"timeout,omitempty"`
		Tags     map[string]string `json:"tags,omitempty"`
		Rules    []RuleC           `json:"rules,omitempty" keys:"name"`
		Ports    []PortD           `json:"ports,omitempty"`
		Args     []string          `json:"args,omitempty"`
		Tier     *Tier             `json:"tier,omitempty"` // an object now; mode is gone
		Budget   *int64            `json:"budget,omitempty"`
		Suspend  *bool             `json:"suspend,omitempty"`
	}
	Tier struct {
		Name   string `json:"name"`
		Weight int32  `json:"weight,omitempty"`
	}
	PortD struct {
		Port    int32  `json:"port,omitempty"`
		Comment string `json:"comment,omitempty"`
		Proto   string `json:"proto,omitempty"`
	}
)

// broken makes every gadget with the legacy value "broken" one that no function converts.
var broken atomic.Bool

func aToB(_ context.Context, in *GadgetA, out *GadgetB) error {
	if in.Spec.Legacy == "broken" && broken.Load() {
		return errors.New("legacy is broken")
	}
	a, b := &in.Spec, &out.Spec
	b.Replicas, b.TimeoutSeconds, b.Tags, b.Args, b.Legacy, b.Suspend = a.Replicas, a.TimeoutSeconds, a.Tags, a.Args, a.Legacy, a.Suspend
	if a.Host != "" {
		b.Endpoint = &EndpointB{Host: a.Host}
	}
	for _, r := range a.Rules {
		b.Rules = append(b.Rules, RuleB{Name: r.Name, Port: r.Port})
	}
	for _, p := range a.Ports {
		b.Ports = append(b.Ports, PortB{Port: p.Port})
	}
	out.Status.Ready = in.Status.Ready
	return nil
}

func bToA(_ context.Context, in *GadgetB, out *GadgetA) error {
	a, b := &out.Spec, &in.Spec
	a.Replicas, a.TimeoutSeconds, a.Tags, a.Args, a.Legacy, a.Suspend = b.Replicas, b.TimeoutSeconds, b.Tags, b.Args, b.Legacy, b.Suspend
	if b.Endpoint != nil {
		a.Host = b.Endpoint.Host
	}
	for _, r := range b.Rules {
		a.Rules = append(a.Rules, RuleA{Name: r.Name, Port: r.Port})
	}
	for _, p := range b.Ports {
		a.Ports = append(a.Ports, PortA{Port: p.Port})
	}
	out.Status.Ready = in.Status.Ready
	return nil
}

func bToC(_ context.Context, in *GadgetB, out *GadgetC) error {
	b, c := &in.Spec, &out.Spec
	c.Endpoint, c.Tags, c.Args, c.Ports, c.Mode, c.Suspend = b.Endpoint, b.Tags, b.Args, b.Ports, b.Mode, b.Suspend
	if b.Replicas != 0 {
		c.Scale = &Scale{Min: b.Replicas, Max: b.Replicas}
	}
	if b.TimeoutSeconds != 0 {
		c.Timeout = &metav1.Duration{Duration: time.Duration(b.TimeoutSeconds) * time.Second}
	}
	for _, r := range b.Rules {
		c.Rules = append(c.Rules, RuleC{Name: r.Name, Port: r.Port, CIDR: r.CIDR})
	}
	out.Status = in.Status
	return nil
}

func cToB(_ context.Context, in *GadgetC, out *GadgetB) error {
	b, c := &out.Spec, &in.Spec
	b.Endpoint, b.Tags, b.Args, b.Ports, b.Mode, b.Suspend = c.Endpoint, c.Tags, c.Args, c.Ports, c.Mode, c.Suspend
	if c.Scale != nil {
		b.Replicas = c.Scale.Min
	}
	if c.Timeout != nil {
		b.TimeoutSeconds = int64(c.Timeout.Duration / time.Second)
	}
	for _, r := range c.Rules {
		b.Rules = append(b.Rules, RuleB{Name: r.Name, Port: r.Port, CIDR: r.CIDR})
	}
	out.Status = in.Status
	return nil
}

func cToD(_ context.Context, in *GadgetC, out *GadgetD) error {
	c, d := &in.Spec, &out.Spec
	d.Scale, d.Endpoint, d.Timeout, d.Tags, d.Rules, d.Args, d.Budget, d.Suspend = c.Scale, c.Endpoint, c.Timeout, c.Tags, c.Rules, c.Args, c.Budget, c.Suspend
	if c.Tier != "" {
		d.Tier = &Tier{Name: c.Tier}
	}
	for _, p := range c.Ports {
		d.Ports = append(d.Ports, PortD{Port: p.Port, Comment: p.Comment})
	}
	out.Status = in.Status
	return nil
}

func dToC(_ context.Context, in *GadgetD, out *GadgetC) error {
	c, d := &out.Spec, &in.Spec
	c.Scale, c.Endpoint, c.Timeout, c.Tags, c.Rules, c.Args, c.Budget, c.Suspend = d.Scale, d.Endpoint, d.Timeout, d.Tags, d.Rules, d.Args, d.Budget, d.Suspend
	if d.Tier != nil {
		c.Tier = d.Tier.Name
	}
	for _, p := range d.Ports {
		c.Ports = append(c.Ports, PortB{Port: p.Port, Comment: p.Comment})
	}
	out.Status = in.Status
	return nil
}

var gadgetVersions = []string{"v1alpha1", "v1beta1", "v1", "v2"}

// newGadgets makes a converter of the first n versions.
func newGadgets(t testing.TB, group string, n int) *conversion.Converter {
	t.Helper()
	var opts []conversion.Option
	for _, v := range gadgetVersions[:n] {
		opts = append(opts, conversion.WithListKeys(v, "spec.rules", "name"))
	}
	b := conversion.New(gadgetKind(group), opts...)
	conversion.Pair(b, "v1alpha1", "v1beta1", aToB, bToA)
	if n > 2 {
		conversion.Pair(b, "v1beta1", "v1", bToC, cToB)
	}
	if n > 3 {
		conversion.Pair(b, "v1", "v2", cToD, dToC)
	}
	c, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// gadgetCRD is the definition of the first n versions, with schemas made of the Go types.
func gadgetCRD(group string, n int, storage string, conversionOf map[string]any) []byte {
	types := []any{GadgetA{}, GadgetB{}, GadgetC{}, GadgetD{}}
	var versions []any
	for i, v := range gadgetVersions[:n] {
		versions = append(versions, map[string]any{
			"name": v, "served": true, "storage": v == storage,
			"subresources": map[string]any{},
			"schema":       map[string]any{"openAPIV3Schema": schemaOf(reflect.TypeOf(types[i]), "")},
		})
	}
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "gadgets." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced", "conversion": conversionOf, "versions": versions,
			"names": map[string]any{"kind": "Gadget", "plural": "gadgets", "singular": "gadget", "listKind": "GadgetList"},
		},
	})
	if err != nil {
		panic(err)
	}
	return raw
}

func schemaOf(t reflect.Type, keys string) map[string]any {
	if t == reflect.TypeFor[metav1.Duration]() {
		return map[string]any{"type": "string", "format": "duration"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem(), "")
	case reflect.Struct:
		props := map[string]any{}
		var required []string
		for i := range t.NumField() {
			f := t.Field(i)
			name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case f.Type == reflect.TypeFor[Meta]():
				props["metadata"] = map[string]any{"type": "object"}
				props["kind"], props["apiVersion"] = map[string]any{"type": "string"}, map[string]any{"type": "string"}
				continue
			case !strings.Contains(opts, "omitempty"):
				required = append(required, name)
			}
			props[name] = schemaOf(f.Type, f.Tag.Get("keys"))
		}
		out := map[string]any{"type": "object", "properties": props}
		if len(required) > 0 {
			out["required"] = required
		}
		return out
	case reflect.Slice:
		out := map[string]any{"type": "array", "maxItems": 6, "items": schemaOf(t.Elem(), "")}
		if keys != "" {
			out["x-kubernetes-list-type"], out["x-kubernetes-list-map-keys"] = "map", []string{keys}
		}
		return out
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem(), "")}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	}
	return map[string]any{"type": "integer", "format": "int" + strconv.Itoa(t.Bits())}
}
