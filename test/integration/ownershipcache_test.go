// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/ownership"
	"github.com/ashlar-go/ashlar/ownership/apply"
)

// A manager's cache that strips managedFields, with the index, behind real watches.
func TestOwnershipThroughAStrippingCache(t *testing.T) {
	t.Parallel()
	l := newChildLab(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	informers, err := cache.New(cluster.Config(), cache.Options{Scheme: cluster.Scheme, DefaultTransform: cache.TransformStripManagedFields(),
		DefaultNamespaces: map[string]cache.Config{cache.AllNamespaces: {}}})
	if err != nil {
		t.Fatal(err)
	}
	cached, err := client.New(cluster.Config(), client.Options{Scheme: cluster.Scheme, Cache: &client.CacheOptions{Reader: informers}})
	if err != nil {
		t.Fatal(err)
	}
	counted := l.client(readsThrough{l.judged, cached})
	applier := func() *apply.Applier {
		a, err := apply.New(counted, cluster.Client, l.set)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := applier()
	if err := first.Index(ctx, informers); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- informers.Start(ctx) }()
	defer func() { cancel(); <-stopped }()
	if !informers.WaitForCacheSync(ctx) {
		t.Fatal("the cache did not start")
	}
	for range 5 { // at once, whatever the cache has seen
		l.pass(first, ownership.Policy{}, l.stored()...)
	}
	l.until("the pods are ready and nothing is written", func() bool {
		l.taken()
		res := l.pass(first, ownership.Policy{}, l.stored()...)
		return len(l.taken()) == 0 && res.Condition("Ready", "StatefulSet").Status == metav1.ConditionTrue
	})
	before := l.versions(l.stored()[:3])
	second := applier()
	if err := second.Index(ctx, nowhere{}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		for _, d := range l.pass(second, ownership.Policy{}, l.stored()...).Decisions {
			if d.Verb != ownership.Keep {
				t.Errorf("a restarted process: %s", d)
			}
		}
	}
	if w := l.taken(); len(w) != 0 || l.versions(l.stored()[:3]) != before {
		t.Errorf("a restarted process wrote %v", w)
	}
	l.pass(second, ownership.Policy{}, l.secret("login", "key", "changed"))
	l.until("the changed child and the pruned ones are there", func() bool {
		res := l.pass(second, ownership.Policy{}, l.secret("login", "key", "changed"))
		return len(res.Decisions) == 1 && res.Decisions[0].Verb == ownership.Keep
	})
}

// readsThrough reads from a cache and writes, and watches, past it.
type readsThrough struct {
	client.WithWatch
	cached client.Client
}

func (r readsThrough) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return r.cached.Get(ctx, key, o, opts...)
}

func (r readsThrough) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	return r.cached.List(ctx, l, opts...)
}

type nowhere struct{}

func (nowhere) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return nil
}

func (l *childLab) versions(objs []client.Object) string {
	var b strings.Builder
	for _, o := range objs {
		c := o.DeepCopyObject().(client.Object)
		fmt.Fprintf(&b, "%T %s %s\n", c, c.GetName(), l.get(c).GetResourceVersion())
	}
	return b.String()
}
