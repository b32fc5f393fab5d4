// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
)

// Into converts a typed or unstructured object into another one, whose version it takes from apiVersion if that is set
// and else from the Go type. src is not modified, and dst shares nothing with it.
func (c *Converter) Into(ctx context.Context, src, dst runtime.Object) error {
	from, err := c.version(src)
	if err != nil {
		return fmt.Errorf("convert %T: %w", src, err)
	}
	to, err := c.version(dst)
	if err != nil {
		return fmt.Errorf("convert to %T: %w", dst, err)
	}
	var raw []byte
	if u, ok := src.(runtime.Unstructured); ok {
		raw, err = json.Marshal(u.UnstructuredContent())
	} else {
		raw, err = json.Marshal(src)
	}
	if err != nil {
		return fmt.Errorf("convert %T: %w", src, err)
	}
	if src.GetObjectKind().GroupVersionKind().Empty() {
		// An object read by a typed client has no TypeMeta.
		d := &doc{}
		if err := d.parse(raw); err != nil {
			return fmt.Errorf("convert %T: %w", src, err)
		}
		o := object{kind: c.gk.Kind, version: from, body: ref{d, 0}, meta: ref{d, 0}.get("metadata"), managed: none, stash: none}
		raw = o.append(nil, c.gk.WithVersion(from).GroupVersion().String(), "", false)
	}
	out, err := c.Convert(ctx, raw, to)
	if err != nil {
		return err
	}
	if u, ok := dst.(runtime.Unstructured); ok {
		var m map[string]any
		if err := kjson.UnmarshalCaseSensitivePreserveInts(out, &m); err != nil {
			return err
		}
		u.SetUnstructuredContent(m)
		return nil
	}
	v := reflect.ValueOf(dst).Elem()
	v.SetZero()
	if err := kjson.UnmarshalCaseSensitivePreserveInts(out, dst); err != nil {
		return fmt.Errorf("convert to %T: %w", dst, err)
	}
	return nil
}

// version is the version of an object that is passed to Into.
func (c *Converter) version(obj runtime.Object) (string, error) {
	if gvk := obj.GetObjectKind().GroupVersionKind(); !gvk.Empty() {
		if gvk.GroupKind() != c.gk {
			return "", fmt.Errorf("%w: %s; this converter is for %s", ErrUnknownKind, gvk.GroupKind(), c.gk)
		}
		return gvk.Version, c.knows(gvk.Version)
	}
	for _, version := range c.versions {
		if s := c.sides[version]; s != nil && s.info != nil && reflect.PointerTo(s.info.t) == reflect.TypeOf(obj) {
			return version, nil
		}
	}
	return "", fmt.Errorf("%w: the object has no apiVersion and no pair has its type", ErrUnknownVersion)
}
