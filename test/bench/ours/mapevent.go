// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/ashlar-go/ashlar/ownership/apply"
	"github.com/ashlar-go/ashlar/test/bench/load"
	"github.com/ashlar-go/ashlar/test/bench/side"
)

var mapEventBenches = []side.Bench{
	{Name: "ownership.mapevent", Prepare: func() (side.Work, error) { return mapEvent(true) }},
	{Name: "handler.enqueueforowner", Prepare: func() (side.Work, error) { return mapEvent(false) }},
}

// counter is a queue that counts what is added.
type counter struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	added int
	last  reconcile.Request
}

func (c *counter) Add(r reconcile.Request) { c.added++; c.last = r }

// mapEvent maps the update of a natively owned child to its owner.
func mapEvent(ours bool) (side.Work, error) {
	set, err := childSet()
	if err != nil {
		return side.Work{}, err
	}
	children, err := stored(set, 1)
	if err != nil {
		return side.Work{}, err
	}
	s := serve(children)
	c, err := clientOf(s)
	if err != nil {
		return side.Work{}, err
	}
	var h handler.EventHandler
	if ours {
		a, err := apply.New(c, c, set)
		if err != nil {
			return side.Work{}, err
		}
		h = a.Handler()
	} else {
		h = handler.EnqueueRequestForOwner(c.Scheme(), c.RESTMapper(), &Database{}, handler.OnlyControllerOwner())
	}
	var before, after *corev1.ConfigMap
	for _, cm := range children {
		before, after = cm, cm.DeepCopy()
	}
	after.ResourceVersion = "8"
	e := event.UpdateEvent{ObjectOld: client.Object(before), ObjectNew: client.Object(after)}
	q := &counter{}
	ctx := context.Background()
	want := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: load.OwnerNamespace, Name: load.OwnerName}}
	n := 0
	return side.Work{Do: func() error {
		n++
		h.Update(ctx, e, q)
		if q.added != n || q.last != want {
			return fmt.Errorf("%d requests after %d events, the last for %v", q.added, n, q.last)
		}
		return nil
	}}, nil
}
