// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// MutationDetector is a reader that shares objects the way an informer cache without deep copies does: who reads the
// same version of an object twice gets the same maps, slices and pointers twice. It keeps a copy of everything it hands
// out, so that [MutationDetector.Check] can name the field that somebody changed.
//
// It is safe for concurrent use, except that Check reads what the callers hold: call it when they are done. Memory: two
// copies of each version of each object that was read, for as long as the detector lives.
type MutationDetector struct {
	reader client.Reader

	mu     sync.Mutex
	shared map[version]*sharedObject
	order  []*sharedObject
}

var _ client.Reader = (*MutationDetector)(nil)

// version is one version of one object, in one Go type: a cache too keeps typed and unstructured objects apart.
type version struct {
	goType          reflect.Type
	kind            schema.GroupVersionKind
	namespace, name string
	uid             types.UID
	resourceVersion string
}

// sharedObject is what callers share and what it was.
type sharedObject struct {
	label string
	live  runtime.Object
	was   runtime.Object
}

// NewMutationDetector returns a detector over a reader, such as a fake client or a manager's cache. The reader is asked
// once per call.
func NewMutationDetector(reader client.Reader) *MutationDetector {
	return &MutationDetector{reader: reader, shared: map[version]*sharedObject{}}
}

// Get reads an object and makes obj share its fields with everybody who reads the same version. Errors are the
// reader's.
func (d *MutationDetector) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	// Into a fresh object: a reader that decodes into what it is given would write into maps that are shared already.
	into, ok := fresh(obj).(client.Object)
	if !ok {
		return fmt.Errorf("get %s: %T is no pointer to an object", key, obj)
	}
	if err := d.reader.Get(ctx, key, into, opts...); err != nil {
		return err
	}
	d.share(into)
	assign(obj, into)
	return nil
}

// List reads a list and makes its items share their fields likewise. Errors are the reader's, and those of a list whose
// items cannot be reached.
func (d *MutationDetector) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	into, ok := fresh(list).(client.ObjectList)
	if !ok {
		return fmt.Errorf("list %T: no pointer to a list", list)
	}
	if err := d.reader.List(ctx, into, opts...); err != nil {
		return err
	}
	err := meta.EachListItem(into, func(item runtime.Object) error {
		if obj, ok := item.(client.Object); ok {
			d.share(obj)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("share items of %T: %w", list, err)
	}
	assign(list, into)
	return nil
}

// Guard watches objects that were not read through the detector, such as the arguments of the function under test. Here
// the struct itself is guarded too, not only what it points to.
func (d *MutationDetector) Guard(objs ...client.Object) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, obj := range objs {
		d.order = append(d.order, &sharedObject{label: label(obj), live: obj, was: obj.DeepCopyObject()})
	}
}

// share makes obj a shallow copy of the shared object of its version, which it becomes when there is none yet. An
// object without a resourceVersion has no version that could be shared and is guarded by itself.
func (d *MutationDetector) share(obj client.Object) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := version{
		goType: reflect.TypeOf(obj), kind: obj.GetObjectKind().GroupVersionKind(), namespace: obj.GetNamespace(),
		name: obj.GetName(), uid: obj.GetUID(), resourceVersion: obj.GetResourceVersion(),
	}
	if v.resourceVersion != "" {
		if s, ok := d.shared[v]; ok {
			assign(obj, s.live)
			return
		}
	}
	s := &sharedObject{label: label(obj), live: shallow(obj), was: obj.DeepCopyObject()}
	d.order = append(d.order, s)
	if v.resourceVersion != "" {
		d.shared[v] = s
	}
}

// fresh is an empty object of the same type and kind.
func fresh(obj runtime.Object) runtime.Object {
	o, _ := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(runtime.Object)
	if kind := obj.GetObjectKind().GroupVersionKind(); o != nil && !kind.Empty() {
		o.GetObjectKind().SetGroupVersionKind(kind)
	}
	return o
}

// shallow copies the struct and shares everything it refers to.
func shallow(obj runtime.Object) runtime.Object {
	c := reflect.New(reflect.TypeOf(obj).Elem())
	c.Elem().Set(reflect.ValueOf(obj).Elem())
	o, _ := c.Interface().(runtime.Object)
	return o
}

// assign is how a cache hands an object out: it copies the struct.
func assign(to, from runtime.Object) {
	reflect.ValueOf(to).Elem().Set(reflect.ValueOf(from).Elem())
}

// label names an object in a report. Typed objects often have no kind; then the Go type stands in.
func label(obj client.Object) string {
	kind := obj.GetObjectKind().GroupVersionKind().Kind
	if kind == "" {
		kind = reflect.TypeOf(obj).Elem().Name()
	}
	if obj.GetNamespace() == "" {
		return kind + " " + obj.GetName()
	}
	return kind + " " + obj.GetNamespace() + "/" + obj.GetName()
}

// MutationError is one field of a shared object that is not what was handed out.
type MutationError struct {
	// Object is kind and namespace/name.
	Object string
	// Field is the path in the words of the API, such as metadata.labels[app]; of an unstructured object likewise.
	Field string
	// Was and Is are the field's values, printed; "nothing" where there is none.
	Was, Is string
}

// Error is one sentence.
func (e *MutationError) Error() string {
	return fmt.Sprintf("check %s: %s changed from %s to %s in a shared object", e.Object, e.Field, e.Was, e.Is)
}

// Check compares everything handed out with what it was, in the order it was first read. It returns nil, or one
// [MutationError] per changed field, joined; at most 10 per object. Later calls report the same fields again.
//
// Not seen: an append into spare capacity of a shared slice, which changes no element that the others can see.
func (d *MutationDetector) Check() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, s := range d.order {
		for _, c := range diff(s.was, s.live) {
			errs = append(errs, &MutationError{Object: s.label, Field: c.path, Was: c.was, Is: c.is})
		}
	}
	return errors.Join(errs...)
}
