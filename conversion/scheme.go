// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// FromScheme makes pairs of the functions that are registered in a scheme, as conversion-gen's AddConversionFuncs does:
// between two versions directly, or by way of the internal version. Which functions there are is found by converting empty
// objects; a pair is made where both directions exist. Two versions that already have a pair are left out.
//
// A context does not reach such functions. Defaulting is off, as everywhere; Defaults(func(obj any) { s.Default(obj.(runtime.Object)) })
// switches it on.
func (b *Builder) FromScheme(s *runtime.Scheme, opts ...PairOption) {
	b.scheme = s
	var versions []string
	for _, gv := range s.VersionsForGroupKind(b.gk) {
		if gv.Version != runtime.APIVersionInternal {
			versions = append(versions, gv.Version)
		}
	}
	slices.SortFunc(versions, compareVersions)
	found := 0
	for i, from := range versions {
		for _, to := range versions[i+1:] {
			up, down := b.schemeFunc(s, from, to), b.schemeFunc(s, to, from)
			if up == nil || down == nil || b.paired(from, to) {
				continue
			}
			found++
			b.pair(from, to, b.schemeNew(s, from), b.schemeNew(s, to), up, down, opts...)
		}
	}
	if found == 0 {
		b.errs = append(b.errs, fmt.Errorf("from scheme: no two of the versions %q of %s have conversion functions for each other", versions, b.gk))
	}
}

func (b *Builder) paired(from, to string) bool {
	return slices.ContainsFunc(b.edges, func(e *edge) bool { return e.from == from && e.to == to })
}

func (b *Builder) schemeNew(s *runtime.Scheme, version string) func() any {
	return func() any {
		obj, err := s.New(b.gk.WithVersion(version))
		if err != nil {
			return nil // it was there when the scheme was read
		}
		return obj
	}
}

// schemeFunc is the function from one version to another, nil if the scheme has none.
func (b *Builder) schemeFunc(s *runtime.Scheme, from, to string) func(context.Context, any, any) error {
	direct := func(_ context.Context, in, out any) error { return s.Convert(in, out, nil) }
	if b.probes(s, direct, from, to) {
		return direct
	}
	internal := b.gk.WithVersion(runtime.APIVersionInternal)
	if !s.Recognizes(internal) {
		return nil
	}
	through := func(_ context.Context, in, out any) error {
		between, err := s.New(internal)
		if err == nil {
			err = s.Convert(in, between, nil)
		}
		if err == nil {
			err = s.Convert(between, out, nil)
		}
		return err
	}
	if b.probes(s, through, from, to) {
		return through
	}
	return nil
}

// probes reports whether a function exists: the scheme says "unknown conversion" where it has none. Anything else, a
// failure or a panic over an empty object included, comes from a function that is there.
func (b *Builder) probes(s *runtime.Scheme, f func(context.Context, any, any) error, from, to string) (exists bool) {
	defer func() {
		if recover() != nil {
			exists = true
		}
	}()
	in, err := s.New(b.gk.WithVersion(from))
	if err != nil {
		return false
	}
	out, err := s.New(b.gk.WithVersion(to))
	if err != nil {
		return false
	}
	err = f(context.Background(), in, out)
	return err == nil || !strings.Contains(err.Error(), "unknown conversion")
}

// versionOf is the version of a prototype: of its TypeMeta, or of the scheme.
func (b *Builder) versionOf(x any) (string, error) {
	if v := reflect.ValueOf(x); v.Kind() == reflect.Pointer && v.IsNil() { // the type is enough
		x = reflect.New(v.Type().Elem()).Interface()
	}
	obj, ok := x.(runtime.Object)
	if !ok {
		return "", fmt.Errorf("%T is no runtime.Object", x)
	}
	if gvk := obj.GetObjectKind().GroupVersionKind(); gvk.Version != "" {
		if gvk.GroupKind() != b.gk {
			return "", fmt.Errorf("%T is of %s", x, gvk.GroupKind())
		}
		return gvk.Version, nil
	}
	if b.scheme == nil {
		return "", fmt.Errorf("the version of %T is unknown: set its TypeMeta, or use WithScheme", x)
	}
	kinds, _, err := b.scheme.ObjectKinds(obj)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(kinds, func(k schema.GroupVersionKind) bool { return k.GroupKind() == b.gk })
	if i < 0 {
		return "", fmt.Errorf("%T is registered as %v, not as %s", x, kinds, b.gk)
	}
	return kinds[i].Version, nil
}
