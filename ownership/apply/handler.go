// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Handler maps events of children to their owner, whatever carries the claim: across namespaces, and to cluster-scoped
// owners. Use it with Watches for every declared kind. It looks nothing up: the declaration knows the owner's scope.
// WithSettle spaces bursts of events.
func (a *Applier) Handler() handler.EventHandler {
	return handler.WithLowPriorityWhenUnchanged[client.Object, reconcile.Request](toOwner{a})
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

type toOwner struct{ a *Applier }

func (h toOwner) Create(_ context.Context, e event.CreateEvent, q queue) { h.add(e.Object, q) }

func (h toOwner) Generic(_ context.Context, e event.GenericEvent, q queue) { h.add(e.Object, q) }

func (h toOwner) Delete(_ context.Context, e event.DeleteEvent, q queue) {
	if e.Object != nil {
		h.a.mem.forget(e.Object.GetUID())
	}
	h.add(e.Object, q)
}

// Update tells both owners when a child changed hands.
func (h toOwner) Update(_ context.Context, e event.UpdateEvent, q queue) {
	was, had := h.request(e.ObjectOld)
	is, has := h.request(e.ObjectNew)
	if had && (!has || was != is) {
		h.queue(was, q)
	}
	if has {
		h.queue(is, q)
	}
}

func (h toOwner) add(o client.Object, q queue) {
	if r, ok := h.request(o); ok {
		h.queue(r, q)
	}
}

func (h toOwner) queue(r reconcile.Request, q queue) {
	if wait := h.a.pace.wait(r, h.a.settle); wait > 0 {
		q.AddAfter(r, wait)
		return
	}
	q.Add(r)
}

// pace remembers when an owner was queued last, or is going to be.
type pace struct {
	mu   sync.Mutex
	last map[reconcile.Request]time.Time
	many int // entries at which the past ones are thrown out
}

// wait is how long the next event of an owner has to, for events to be d apart; 0 when the last one is that long ago.
func (p *pace) wait(r reconcile.Request, d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.last) >= p.many {
		if p.last == nil {
			p.last = map[reconcile.Request]time.Time{}
		}
		maps.DeleteFunc(p.last, func(_ reconcile.Request, at time.Time) bool { return now.Sub(at) >= d })
		p.many = max(1024, 2*len(p.last))
	}
	at, known := p.last[r]
	switch {
	case !known || now.Sub(at) >= d:
		at = now
	case !at.After(now):
		at = at.Add(d)
	}
	p.last[r] = at
	return at.Sub(now)
}

func (h toOwner) request(o client.Object) (reconcile.Request, bool) {
	if o == nil {
		return reconcile.Request{}, false
	}
	n, ok := h.a.set.RequestFor(o)
	return reconcile.Request{NamespacedName: n}, ok
}
