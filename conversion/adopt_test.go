// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiconversion "k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ashlar-go/ashlar/conversion"
	"github.com/ashlar-go/ashlar/conversion/conversiontest"
)

// What users already have: functions in a scheme, methods, spoke converters. Each must behave as a Pair does.

// adopted is what every way of adoption is held to: nothing is lost that the old version cannot hold, an edit wins, a
// failure names the object, and an API server takes the answer.
func adopted(t *testing.T, c *conversion.Converter) {
	t.Helper()
	if got := fmt.Sprint(c.Versions()); got != "[v1alpha1 v1]" {
		t.Errorf("versions %s", got)
	}
	out, err := conversiontest.Review(t.Context(), handler(t, c), "db.example.com/v1alpha1", []byte(ordersV1))
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(at(t, string(out[0]), "spec", "replicas")) != "3" {
		t.Errorf("down: %s", out[0])
	}
	back, err := conversiontest.Review(t.Context(), handler(t, c), "db.example.com/v1", out[0])
	if err != nil {
		t.Fatal(err)
	}
	same(t, ordersV1, string(back[0]))
	edited := convert(t, c, strings.Replace(string(out[0]), `"replicas":3`, `"replicas":7`, 1), "v1")
	if fmt.Sprint(at(t, edited, "spec", "scale", "max")) != "7" || at(t, edited, "spec", "tier") != "gold" {
		t.Errorf("after an edit: %s", edited)
	}
	_, err = c.Convert(t.Context(), []byte(badV1alpha1), "v1")
	if err == nil || !strings.Contains(err.Error(), "DB default/bad from v1alpha1 to v1: replicas must not be negative") {
		t.Errorf("a failure of the function: %v", err)
	}
}

func withFuncs(t *testing.T, s *runtime.Scheme, funcs map[[2]any]apiconversion.ConversionFunc) *runtime.Scheme {
	t.Helper()
	for types, f := range funcs {
		if err := s.AddConversionFunc(types[0], types[1], f); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

var directFuncs = map[[2]any]apiconversion.ConversionFunc{
	{(*AlphaDB)(nil), (*DB)(nil)}: func(a, b any, _ apiconversion.Scope) error {
		return dbUp(context.Background(), a.(*AlphaDB), b.(*DB))
	},
	{(*DB)(nil), (*AlphaDB)(nil)}: func(a, b any, _ apiconversion.Scope) error {
		return dbDown(context.Background(), a.(*DB), b.(*AlphaDB))
	},
}

func TestFromScheme(t *testing.T) {
	t.Parallel()
	b := conversion.New(databases())
	b.FromScheme(withFuncs(t, dbScheme(), directFuncs))
	c, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	adopted(t, c)
}

// internalDB is what conversion-gen converts by way of.
type internalDB struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Engine, Tier string
	Min, Max     int32
}

func (d *internalDB) DeepCopyObject() runtime.Object { c := *d; return &c }

// The functions of most projects convert to an internal version and from it.
func TestFromSchemeByTheInternalVersion(t *testing.T) {
	t.Parallel()
	s := dbScheme()
	s.AddKnownTypeWithName(databases().WithVersion(runtime.APIVersionInternal), &internalDB{})
	withFuncs(t, s, map[[2]any]apiconversion.ConversionFunc{
		{(*AlphaDB)(nil), (*internalDB)(nil)}: func(a, b any, _ apiconversion.Scope) error {
			in, out := a.(*AlphaDB), b.(*internalDB)
			if in.Spec.Replicas < 0 {
				return errors.New("replicas must not be negative")
			}
			out.ObjectMeta, out.Engine, out.Min, out.Max = in.ObjectMeta, in.Spec.Engine, in.Spec.Replicas, in.Spec.Replicas
			return nil
		},
		{(*internalDB)(nil), (*AlphaDB)(nil)}: func(a, b any, _ apiconversion.Scope) error {
			in, out := a.(*internalDB), b.(*AlphaDB)
			out.ObjectMeta, out.Spec.Engine, out.Spec.Replicas = in.ObjectMeta, in.Engine, in.Min
			return nil
		},
		{(*internalDB)(nil), (*DB)(nil)}: func(a, b any, _ apiconversion.Scope) error {
			in, out := a.(*internalDB), b.(*DB)
			out.ObjectMeta, out.Spec.Engine, out.Spec.Tier = in.ObjectMeta, in.Engine, in.Tier
			if in.Min > 0 || in.Max > 0 {
				out.Spec.Scale = &MinMax{in.Min, in.Max}
			}
			return nil
		},
		{(*DB)(nil), (*internalDB)(nil)}: func(a, b any, _ apiconversion.Scope) error {
			in, out := a.(*DB), b.(*internalDB)
			out.ObjectMeta, out.Engine, out.Tier = in.ObjectMeta, in.Spec.Engine, in.Spec.Tier
			if in.Spec.Scale != nil {
				out.Min, out.Max = in.Spec.Scale.Min, in.Spec.Scale.Max
			}
			return nil
		},
	})
	b := conversion.New(databases())
	b.FromScheme(s)
	c, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	adopted(t, c)
}

// A scheme's defaults are off unless a pair asks for them, and never for partial objects.
func TestFromSchemeDefaults(t *testing.T) {
	t.Parallel()
	s := withFuncs(t, dbScheme(), directFuncs)
	s.AddTypeDefaultingFunc(&DB{}, func(x any) {
		if db := x.(*DB); db.Spec.Tier == "" {
			db.Spec.Tier = "bronze"
		}
	})
	tier := func(metadata string, opts ...conversion.PairOption) any {
		b := conversion.New(databases())
		b.FromScheme(s, opts...)
		c, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		return at(t, convert(t, c, `{"apiVersion":"db.example.com/v1alpha1","kind":"DB","metadata":`+metadata+`,"spec":{"engine":"pg"}}`, "v1"), "spec", "tier")
	}
	byScheme := conversion.Defaults(func(obj any) { s.Default(obj.(runtime.Object)) })
	for name, tt := range map[string]struct {
		reason string
		got    any
		want   any
	}{
		"off":     {"a conversion is no admission", tier(`{"name":"a","uid":"1"}`), nil},
		"on":      {"it was asked for", tier(`{"name":"a","uid":"1"}`, byScheme), "bronze"},
		"partial": {"server-side apply would take the default for something somebody owns", tier(`{"name":"a"}`, byScheme), nil},
	} {
		if tt.got != tt.want {
			t.Errorf("%s (%s): tier is %v, want %v", name, tt.reason, tt.got, tt.want)
		}
	}
}

func TestFromSchemeRefuses(t *testing.T) {
	t.Parallel()
	one := map[[2]any]apiconversion.ConversionFunc{}
	for types, f := range directFuncs {
		if _, up := types[0].(*AlphaDB); up {
			one[types] = f
		}
	}
	for name, s := range map[string]*runtime.Scheme{"no functions": dbScheme(), "one way": withFuncs(t, dbScheme(), one), "no kind": runtime.NewScheme()} {
		b := conversion.New(databases())
		b.FromScheme(s)
		if _, err := b.Build(); err == nil || !strings.Contains(err.Error(), "DB.db.example.com") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFromConvertible(t *testing.T) {
	t.Parallel()
	b := conversion.New(databases(), conversion.WithScheme(dbScheme()))
	conversion.FromConvertible[hub, convertible](b, &DB{}, &AlphaDB{})
	c, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	adopted(t, c)
	// Without a scheme the prototypes say their versions.
	old, new := &AlphaDB{}, &DB{}
	old.APIVersion, old.Kind, new.APIVersion, new.Kind = "db.example.com/v1alpha1", "DB", "db.example.com/v1", "DB"
	b = conversion.New(databases())
	conversion.FromConvertible[hub, convertible](b, new, old)
	if c, err = b.Build(); err != nil {
		t.Fatal(err)
	}
	adopted(t, c)
	old.Kind = "Other"
	b = conversion.New(databases())
	conversion.FromConvertible[hub, convertible](b, new, old)
	if _, err := b.Build(); err == nil || !strings.Contains(err.Error(), "Other.db.example.com") {
		t.Errorf("a spoke of another kind: %v", err)
	}
}

// asked is a spoke converter that a context reaches.
type asked struct{ spoke }

func (asked) ConvertSpokeToHub(ctx context.Context, s runtime.Object, h *DB) error {
	if err := dbUp(ctx, s.(*AlphaDB), h); err != nil {
		return err
	}
	h.Spec.Tier, _ = ctx.Value(asked{}).(string)
	return nil
}

func TestFromSpokes(t *testing.T) {
	t.Parallel()
	b := conversion.New(databases(), conversion.WithScheme(dbScheme()))
	conversion.FromSpokes(b, &DB{}, spoke{})
	c, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	adopted(t, c)
	if c.Hub() != "v1" {
		t.Errorf("the hub is %q", c.Hub())
	}
	b = conversion.New(databases(), conversion.WithScheme(dbScheme()))
	conversion.FromSpokes(b, &DB{}, asked{})
	if c, err = b.Build(); err != nil {
		t.Fatal(err)
	}
	out, err := c.Convert(context.WithValue(t.Context(), asked{}, "silver"), []byte(`{"apiVersion":"db.example.com/v1alpha1","kind":"DB","metadata":{"name":"a"},"spec":{}}`), "v1")
	if err != nil || at(t, string(out), "spec", "tier") != "silver" {
		t.Errorf("%s, %v", out, err)
	}
}
