// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	dbv1 "github.com/ashlar-go/ashlar/examples/database/api/v1"
)

// reconciler reads and writes an in-memory server that holds objs. Every write
// fails after refuse is set.
func reconciler(t *testing.T, refuse bool, objs ...client.Object) *Reconciler {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), dbv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objs...).WithStatusSubresource(&dbv1.Database{})
	if refuse {
		no := func(what string) error {
			t.Errorf("%s was sent", what)
			return errors.New("read only")
		}
		b = b.WithInterceptorFuncs(interceptor.Funcs{
			Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
				return no("a create")
			},
			Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
				return no("an update")
			},
			Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
				return no("a delete")
			},
			Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return no("a patch")
			},
			Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
				return no("an apply")
			},
		})
	}
	c := b.Build()
	r, err := assemble(&Reconciler{
		Client: c, live: c, events: events.NewFakeRecorder(100), log: logr.Discard(),
		now: func() time.Time { return time.Unix(1700000000, 0) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.RegisterMetrics(prometheus.NewRegistry()); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestPlanPrintsAndWritesNothing(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		objs   []client.Object
		want   []string
	}{
		"new": {
			reason: "everything is still to be made, the finalizer first",
			objs:   []client.Object{database()},
			want: []string{
				"Database shop/orders", "finalizer: Store",
				"Create ConfigMap shop/orders", "Create Service shop/orders", "Create StatefulSet shop/orders",
			},
		},
		"refused": {
			reason: "an unsupported version is not applied",
			objs:   []client.Object{database(func(db *dbv1.Database) { db.Spec.Version = "9.6" })},
			want:   []string{"refused: spec.version"},
		},
		"taken": {
			reason: "the plan names whoever has the name",
			objs: []client.Object{database(), &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders"},
			}},
			want: []string{"refused: Service shop/orders exists"},
		},
		"going": {
			reason: "the next step is named",
			objs: []client.Object{database(func(db *dbv1.Database) {
				db.Finalizers = []string{Finalizer}
				db.DeletionTimestamp = &metav1.Time{Time: time.Unix(1699999999, 0)}
			})},
			want: []string{"finalizer: Clean evidence"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			if err := reconciler(t, true, c.objs...).Plan(t.Context(), &out); err != nil {
				t.Fatal(err)
			}
			for _, w := range c.want {
				if !strings.Contains(out.String(), w) {
					t.Errorf("%s: the plan lacks %q:\n%s", c.reason, w, out.String())
				}
			}
		})
	}
}
