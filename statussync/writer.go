// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Writer writes what it owns of one kind's status. It is safe for concurrent use; calls for one object should come one
// after the other, as a workqueue gives them.
type Writer[P any] struct{ core *core }

// core is a Writer without its type parameter.
type core struct {
	group   *Group
	name    string
	manager string
	gvk     schema.GroupVersionKind
	version string // apiVersion
	owned   owned
	source  source
	memory  *memory
	served  atomic.Bool // a status write went through, so the subresource is there
}

// For declares a writer of one kind. kind is an empty object of the Go type that is passed to Sync later: a pointer to
// an API struct, or an *unstructured.Unstructured with its apiVersion and kind set.
//
// It is an error when
//
//   - the group has a writer of that name for the kind, or one that owns a condition type, a payload field or, both
//     being Primary, status.observedGeneration as well: under server-side apply they would remove each other's fields;
//   - P is no struct, marshals itself, has more than 64 fields, or has a field conditions or observedGeneration;
//   - a scalar of P has omitempty and no pointer: its zero value would be removed instead of written. Structs inside P
//     count, items of lists and maps and the types of Kubernetes itself do not;
//   - a condition type is illegal or declared twice, or there are more than 256;
//   - the Go type has no status, no list of metav1.Condition at the path, no status.observedGeneration for a Primary
//     writer, or lacks a field of P.
//
// It sends nothing.
func For[P any](g *Group, writer string, kind client.Object, owns Owns) (*Writer[P], error) {
	w, err := newCore(g, writer, kind, owns, reflect.TypeFor[P]())
	if err != nil {
		return nil, fmt.Errorf("make status writer %q: %w", writer, err)
	}
	return &Writer[P]{w}, nil
}

func newCore(g *Group, name string, kind client.Object, owns Owns, payload reflect.Type) (*core, error) {
	if g == nil {
		return nil, errors.New("group is nil")
	}
	if kind == nil || reflect.ValueOf(kind).Kind() != reflect.Pointer {
		return nil, errors.New("kind is no pointer to an object")
	}
	if err := checkName(name); err != nil {
		return nil, fmt.Errorf("writer name: %w", err)
	}
	if strings.Contains(name, "/") {
		return nil, errors.New("writer name: holds a /, which separates it from the group's")
	}
	w := &core{group: g, name: name, manager: g.manager + "/" + name, memory: newMemory(g.settings.remember)}
	if len(w.manager) > maxManager {
		return nil, fmt.Errorf("field manager %q is longer than %d bytes", w.manager, maxManager)
	}
	var err error
	if w.gvk, err = g.client.GroupVersionKindFor(kind); err != nil {
		return nil, fmt.Errorf("kind %T: %w", kind, err)
	}
	if w.gvk.Kind == "" || w.gvk.Version == "" {
		return nil, fmt.Errorf("kind %T: apiVersion or kind is not set", kind)
	}
	w.version = w.gvk.GroupVersion().String()
	fields, err := payloadFields(payload)
	if err != nil {
		return nil, err
	}
	if w.owned, err = newOwned(owns, fields); err != nil {
		return nil, err
	}
	if w.source, err = newSource(kind, &w.owned, fields, w.gvk); err != nil {
		return nil, fmt.Errorf("kind %s: %w", w.gvk.Kind, err)
	}
	return w, g.add(w)
}

// Sync makes obj's status say what is desired of it, in one request, or in none when obj says so already. obj is the
// object as read, from a cache or live; neither it nor d is changed. It must be the object the caller passes on: after a
// block that wrote it, that block's fresh object.
//
// Requests: 0 when nothing changed. 1 when something did. Each of at most two conflicts costs one live read and one
// more apply; then the outcome is Deferred. An object that is gone costs one more live read until this writer has written
// once: a kind without status subresource gives the same answer, and is an error. Removing what another manager owns too
// costs one JSON Patch before the apply; when managedFields are stripped from the cache it is the server's refusal that
// tells, one request later.
//
// A conflict is never an error, nor is an object that is gone, nor a newer verdict. Errors are those of the declaration
// (a condition that is not owned, a generation above the object's) and of the server: forbidden, invalid, unreachable.
// After an error the write may have happened nevertheless; the next Sync finds out.
func (w *Writer[P]) Sync(ctx context.Context, obj client.Object, d Desired[P]) (Result, error) {
	return w.core.sync(ctx, obj, wanted(d))
}

// Plan decides what Sync would do and does nothing. It uses what the writer remembers and sends no request.
func (w *Writer[P]) Plan(obj client.Object, d Desired[P]) (Plan, error) {
	return w.core.plan(obj, wanted(d))
}

// wanted drops the type parameter, in one allocation.
func wanted[P any](d Desired[P]) *want {
	both := &struct {
		want   want
		status P
	}{status: d.Status}
	both.want = want{generation: d.Generation, conditions: d.Conditions, payload: reflect.ValueOf(&both.status).Elem()}
	return &both.want
}

// Manager returns the field manager this writer applies as: group/writer.
func (w *Writer[P]) Manager() string { return w.core.manager }

// view reads obj, checks that it is one this writer can read and, when w is set, compares the payload.
func (c *core) view(obj client.Object, payload reflect.Value) (view, error) {
	if obj == nil || !c.source.holds(obj) {
		return view{}, fmt.Errorf("object is %T, the writer is for %T", obj, c.source.empty())
	}
	v := view{uid: obj.GetUID(), resourceVersion: obj.GetResourceVersion(), generation: obj.GetGeneration()}
	if v.uid == "" || v.resourceVersion == "" {
		return view{}, errors.New("object has no uid or resourceVersion: it was never read")
	}
	return c.source.read(obj, payload, v), nil
}

func (c *core) describe(obj client.Object) string {
	if obj == nil || !c.source.holds(obj) {
		return c.gvk.Kind
	}
	return c.gvk.Kind + " " + objectName(obj.GetNamespace(), obj.GetName())
}
