// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"context"
	"testing"

	"github.com/ashlar-go/ashlar/ownership"
	"github.com/ashlar-go/ashlar/ownership/apply"
	"github.com/ashlar-go/ashlar/reconciletest"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// What a cache without deep copies hands out is never changed, and what a result hands out is the caller's.
func TestSharedObjectsAreNotChanged(t *testing.T) {
	t.Parallel()
	s := newServer(t, false, database())
	shared := reconciletest.NewMutationDetector(s.WithWatch)
	c := interceptor.NewClient(s.WithWatch, interceptor.Funcs{Apply: s.apply, Delete: s.delete, Patch: s.patch,
		Get: func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return shared.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, _ client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			return shared.List(ctx, l, opts...)
		}})
	a, err := apply.New(c, s.live(), newSet(t))
	if err != nil {
		t.Fatal(err)
	}
	orphaned := configMap("orphan", "mode", "fast")
	orphaned.UID = "orphan"
	if err := s.Create(t.Context(), orphaned); err != nil {
		t.Fatal(err)
	}
	desired := append(rich(), configMap("orphan", "mode", "fast"), job("backup"))
	for _, p := range []ownership.Policy{{}, {Adopt: true}, {}, {AllowEmpty: true}} {
		if p.AllowEmpty {
			desired = nil
		}
		res, err := a.Sync(t.Context(), database(), desired, p)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range res.Objects() {
			if cm, ok := o.(*corev1.ConfigMap); ok {
				cm.Data["mine"] = "now"
			}
			o.SetLabels(map[string]string{"mine": "now"})
		}
	}
	if _, err := a.Teardown(t.Context(), dying("orphan")); err != nil {
		t.Fatal(err)
	}
	if err := shared.Check(); err != nil {
		t.Error(err)
	}
}
