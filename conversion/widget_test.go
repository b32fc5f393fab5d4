// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ashlar-go/ashlar/conversion"
)

var widgets = schema.GroupKind{Group: "example.com", Kind: "Widget"}

// The kind of most tests in two versions of different shape.
type (
	OldWidget struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata,omitempty"`
		Spec              OldSpec   `json:"spec"`
		Status            OldStatus `json:"status,omitempty"`
	}
	OldSpec struct {
		Replicas       int32             `json:"replicas,omitempty"`
		Endpoint       string            `json:"endpoint,omitempty"` // host:port
		TimeoutSeconds int64             `json:"timeoutSeconds,omitempty"`
		Config         map[string]string `json:"config,omitempty"`
		Rules          []OldRule         `json:"rules,omitempty"`
		Note           string            `json:"note,omitempty"`   // gone in the new version
		At             *metav1.MicroTime `json:"at,omitempty"`     // in both
		Grants         []Grant           `json:"grants,omitempty"` // one in the new version
		Paused         bool              `json:"paused,omitempty"`
	}
	OldRule struct {
		Name string `json:"name,omitempty"`
		Port int32  `json:"port,omitempty"`
	}
	OldStatus struct {
		ReadyReplicas *int32 `json:"readyReplicas,omitempty"`
	}

	NewWidget struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata,omitempty"`
		Spec              NewSpec   `json:"spec"`
		Status            NewStatus `json:"status,omitempty"`
	}
	NewSpec struct {
		ScalePolicy *ScalePolicy      `json:"scalePolicy,omitempty"`
		Endpoint    *Endpoint         `json:"address,omitempty"`
		Timeout     *metav1.Duration  `json:"timeout,omitempty"`
		Config      map[string]string `json:"config,omitempty"`
		Rules       []NewRule         `json:"rules,omitempty"`
		At          *metav1.MicroTime `json:"at,omitempty"`
		Grant       *Grant            `json:"grant,omitempty"`
		Tier        string            `json:"tier,omitempty"` // new
		Big         *int64            `json:"big,omitempty"`  // new
		Paused      bool              `json:"paused,omitempty"`
		Debug       Debug             `json:"debug,omitempty"` // a struct: encoding/json always writes it
	}
	ScalePolicy struct {
		Min int32 `json:"min"`
		Max int32 `json:"max,omitempty"`
	}
	Endpoint struct {
		Host string `json:"host"`
		Port int32  `json:"port,omitempty"`
	}
	Debug struct {
		Level string `json:"level,omitempty"`
	}
	NewRule struct {
		Name string   `json:"name,omitempty"`
		Port int32    `json:"port,omitempty"`
		CIDR string   `json:"cidr,omitempty"` // new
		Tags []string `json:"tags,omitempty"` // new
	}
	Grant struct {
		Role string `json:"role,omitempty"`
	}
	NewStatus struct {
		ReadyReplicas *int32 `json:"readyReplicas,omitempty"`
		Phase         string `json:"phase,omitempty"` // new
	}
)

func up(_ context.Context, in *OldWidget, out *NewWidget) error {
	if in.Spec.Replicas != 0 {
		out.Spec.ScalePolicy = &ScalePolicy{Min: in.Spec.Replicas, Max: in.Spec.Replicas}
	}
	if host, port, ok := strings.Cut(in.Spec.Endpoint, ":"); in.Spec.Endpoint != "" {
		out.Spec.Endpoint = &Endpoint{Host: host}
		if ok {
			n, err := strconv.ParseInt(port, 10, 32)
			if err != nil {
				return fmt.Errorf("endpoint %q has no port", in.Spec.Endpoint)
			}
			out.Spec.Endpoint.Port = int32(n)
		}
	}
	if in.Spec.TimeoutSeconds != 0 {
		out.Spec.Timeout = &metav1.Duration{Duration: time.Duration(in.Spec.TimeoutSeconds) * time.Second}
	}
	for _, r := range in.Spec.Rules {
		out.Spec.Rules = append(out.Spec.Rules, NewRule{Name: r.Name, Port: r.Port})
	}
	g, err := conversion.One(in.Spec.Grants)
	if err != nil {
		return err
	}
	out.Spec.Grant = g
	out.Spec.Config, out.Spec.At, out.Spec.Paused = in.Spec.Config, in.Spec.At, in.Spec.Paused
	conversion.Shadow(&out.Status.ReadyReplicas, in.Status.ReadyReplicas)
	return nil
}

func down(_ context.Context, in *NewWidget, out *OldWidget) error {
	if in.Spec.ScalePolicy != nil {
		out.Spec.Replicas = in.Spec.ScalePolicy.Min
	}
	if e := in.Spec.Endpoint; e != nil {
		out.Spec.Endpoint = e.Host
		if e.Port != 0 {
			out.Spec.Endpoint += ":" + strconv.Itoa(int(e.Port))
		}
	}
	if in.Spec.Timeout != nil {
		out.Spec.TimeoutSeconds = int64(in.Spec.Timeout.Duration / time.Second)
	}
	for _, r := range in.Spec.Rules {
		out.Spec.Rules = append(out.Spec.Rules, OldRule{Name: r.Name, Port: r.Port})
	}
	if in.Spec.Grant != nil {
		out.Spec.Grants = []Grant{*in.Spec.Grant}
	}
	out.Spec.Config, out.Spec.At, out.Spec.Paused = in.Spec.Config, in.Spec.At, in.Spec.Paused
	conversion.Shadow(&out.Status.ReadyReplicas, in.Status.ReadyReplicas)
	return nil
}

func (w *OldWidget) DeepCopyObject() runtime.Object { c := *w; return &c }
func (w *NewWidget) DeepCopyObject() runtime.Object { c := *w; return &c }

// build makes a converter of the two versions.
func build(t testing.TB, opts ...conversion.Option) *conversion.Converter {
	t.Helper()
	b := conversion.New(widgets, opts...)
	conversion.Pair(b, "v1alpha1", "v1", up, down)
	c, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// convert must work, and leave the input as it is.
func convert(t testing.TB, c *conversion.Converter, in, to string) string {
	t.Helper()
	raw := []byte(in)
	out, err := c.Convert(t.Context(), raw, to)
	if err != nil {
		t.Fatalf("convert to %s: %v\n%s", to, err, in)
	}
	if string(raw) != in {
		t.Fatalf("the input was modified: %s", raw)
	}
	return string(out)
}

// plain is a document as Go values with exact numbers.
func plain(t testing.TB, raw string) any {
	t.Helper()
	var x any
	d := json.NewDecoder(strings.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&x); err != nil {
		t.Fatalf("%v\n%s", err, raw)
	}
	return x
}

func same(t testing.TB, want, got string) {
	t.Helper()
	if diff := cmp.Diff(plain(t, want), plain(t, got)); diff != "" {
		t.Errorf("(-want +got)\n%s\ngot %s", diff, got)
	}
}

// at is a value of a document; nil if it is not there.
func at(t testing.TB, raw string, path ...string) any {
	t.Helper()
	x := plain(t, raw)
	for _, p := range path {
		m, ok := x.(map[string]any)
		if !ok {
			return nil
		}
		x = m[p]
	}
	return x
}

func stashOf(t testing.TB, raw string) string {
	t.Helper()
	s, _ := at(t, raw, "metadata", "annotations", conversion.Annotation).(string)
	return s
}

func newWidget(spec string) string {
	return `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","namespace":"default","uid":"6c1e"},"spec":` + spec + `}`
}

func oldWidget(spec string) string {
	return `{"apiVersion":"example.com/v1alpha1","kind":"Widget","metadata":{"name":"a","namespace":"default","uid":"6c1e"},"spec":` + spec + `}`
}
