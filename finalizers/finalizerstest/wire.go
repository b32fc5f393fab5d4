// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizerstest

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kind of disturbance.
type kind int

const (
	none kind = iota
	dies
	diesAfter
	fails
	adds
	deletes
	twice
)

func (k kind) String() string {
	return [...]string{
		none: "undisturbed", dies: "the process dies before it sends", diesAfter: "the process dies after the server has acted",
		fails: "the request fails", adds: "another controller writes first", deletes: "the owner is deleted first",
		twice: "every pass is repeated by a second process",
	}[k]
}

type disturbance struct {
	kind kind
	at   int // number of the request
}

type request struct {
	text  string
	write bool
}

// wire is the connection of the code under test: it counts requests and breaks where it is told to.
type wire struct {
	client.Client
	disturbance

	disturb  func() error
	requests []request
	dead     bool
}

var errDead = errors.New("the process died")

func (w *wire) send(verb string, write bool, obj any, do func() error) error {
	if w.dead {
		return errDead
	}
	text := fmt.Sprintf("%s %T", verb, obj)
	if o, ok := obj.(client.Object); ok {
		text += " " + client.ObjectKeyFromObject(o).String()
	}
	n := len(w.requests)
	w.requests = append(w.requests, request{text: text, write: write})
	if n != w.at || w.kind == none || w.kind == twice {
		return do()
	}
	switch w.kind {
	case dies:
		w.dead = true
		return errDead
	case diesAfter:
		_ = do() // nobody is left to hear the answer
		w.dead = true
		return errDead
	case fails:
		return apierrors.NewInternalError(errors.New("request failed on purpose"))
	}
	if err := w.disturb(); err != nil {
		return fmt.Errorf("%s: %w", w.kind, err)
	}
	return do()
}

func (w *wire) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return w.send("get "+key.String(), false, nil, func() error { return w.Client.Get(ctx, key, obj, opts...) })
}

func (w *wire) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return w.send("list", false, list, func() error { return w.Client.List(ctx, list, opts...) })
}

func (w *wire) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return w.send("create", true, obj, func() error { return w.Client.Create(ctx, obj, opts...) })
}

func (w *wire) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	return w.send("delete", true, obj, func() error { return w.Client.Delete(ctx, obj, opts...) })
}

func (w *wire) DeleteAllOf(ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	return w.send("delete all of", true, obj, func() error { return w.Client.DeleteAllOf(ctx, obj, opts...) })
}

func (w *wire) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return w.send("update", true, obj, func() error { return w.Client.Update(ctx, obj, opts...) })
}

func (w *wire) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return w.send("patch", true, obj, func() error { return w.Client.Patch(ctx, obj, patch, opts...) })
}

func (w *wire) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return w.send("apply", true, obj, func() error { return w.Client.Apply(ctx, obj, opts...) })
}

func (w *wire) Status() client.SubResourceWriter { return w.SubResource("status") }

func (w *wire) SubResource(name string) client.SubResourceClient {
	return &subWire{SubResourceClient: w.Client.SubResource(name), wire: w, name: name}
}

// subWire is the same connection for one subresource.
type subWire struct {
	client.SubResourceClient

	wire *wire
	name string
}

func (s *subWire) Get(ctx context.Context, obj, sub client.Object, opts ...client.SubResourceGetOption) error {
	return s.wire.send("get "+s.name, false, obj, func() error { return s.SubResourceClient.Get(ctx, obj, sub, opts...) })
}

func (s *subWire) Create(ctx context.Context, obj, sub client.Object, opts ...client.SubResourceCreateOption) error {
	return s.wire.send("create "+s.name, true, obj, func() error { return s.SubResourceClient.Create(ctx, obj, sub, opts...) })
}

func (s *subWire) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	return s.wire.send("update "+s.name, true, obj, func() error { return s.SubResourceClient.Update(ctx, obj, opts...) })
}

func (s *subWire) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	return s.wire.send("patch "+s.name, true, obj, func() error { return s.SubResourceClient.Patch(ctx, obj, patch, opts...) })
}

func (s *subWire) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	return s.wire.send("apply "+s.name, true, obj, func() error { return s.SubResourceClient.Apply(ctx, obj, opts...) })
}
