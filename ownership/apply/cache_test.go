// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/ashlar-go/ashlar/ownership"
	"github.com/ashlar-go/ashlar/ownership/apply"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// blind is a cache that has not seen anything yet; writes reach the server.
func blind(s *server) client.Client {
	return interceptor.NewClient(s.WithWatch, interceptor.Funcs{
		Apply: s.apply, Delete: s.delete, Patch: s.patch,
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			return apierrors.NewNotFound(corev1.Resource("objects"), key.Name)
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil },
	})
}

// stale is a cache that stopped at a moment; writes reach the server.
func stale(s *server, then client.Client) client.Client {
	return interceptor.NewClient(s.WithWatch, interceptor.Funcs{
		Apply: s.apply, Delete: s.delete, Patch: s.patch,
		Get: func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return then.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, _ client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			return then.List(ctx, l, opts...)
		},
	})
}

type applyConfiguration = runtime.ApplyConfiguration

// reread replaces the reply with what is stored by now, as when a webhook changed the object during the request.
func reread(ctx context.Context, c client.Reader, ac applyConfiguration) error {
	raw, err := json.Marshal(ac)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		return err
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
		return err
	}
	if raw, err = u.MarshalJSON(); err != nil {
		return err
	}
	return json.Unmarshal(raw, ac)
}

// touchStatus changes what nobody declared, as controllers do all day.
func touchStatus(t *testing.T, s *server) {
	t.Helper()
	o := s.must(t, rich()[4].DeepCopyObject().(client.Object))
	notes := o.GetAnnotations()
	notes["example.com/touched"] += "."
	o.SetAnnotations(notes)
	if err := s.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

type schemeT = runtime.Scheme

func newScheme() *schemeT { return runtime.NewScheme() }

// indexer keeps what would be registered with a manager.
type indexer struct {
	objs   []client.Object
	fields map[string]client.IndexerFunc
	field  string
}

func (i *indexer) IndexField(_ context.Context, o client.Object, field string, f client.IndexerFunc) error {
	i.objs = append(i.objs, o)
	i.field = field
	i.fields[fmt.Sprintf("%T", o)] = f
	return nil
}

// newIndexedServer copies the objects of a server behind a client that knows the indexes.
func newIndexedServer(t *testing.T, idx *indexer, from *server) client.Client {
	t.Helper()
	b := fake.NewClientBuilder().WithScheme(testScheme()).WithReturnManagedFields()
	for _, o := range idx.objs {
		b = b.WithIndex(o, idx.field, idx.fields[fmt.Sprintf("%T", o)])
	}
	for _, o := range append(rich(), job("backup")) {
		b = b.WithObjects(from.must(t, o))
	}
	return b.Build()
}

// conditionOf plans the object against itself as stored and sums the result up.
func conditionOf(t *testing.T, o client.Object) metav1.Condition {
	t.Helper()
	gvk, err := apiutil.GVKForObject(o, testScheme())
	if err != nil {
		t.Fatal(err)
	}
	set, err := ownership.New("one", databaseKind, []ownership.Kind{{GroupVersionKind: gvk}})
	if err != nil {
		t.Fatal(err)
	}
	c := interceptor.NewClient(newServer(t, true).WithWatch, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return apierrors.NewNotFound(corev1.Resource("objects"), o.GetName())
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil },
		Apply: func(_ context.Context, _ client.WithWatch, ac runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
			o := o.DeepCopyObject().(client.Object)
			o.GetObjectKind().SetGroupVersionKind(gvk)
			o.SetUID("x")
			raw, err := json.Marshal(o)
			if err != nil {
				return err
			}
			return json.Unmarshal(raw, ac)
		},
	})
	a, err := apply.New(c, c, set)
	if err != nil {
		t.Fatal(err)
	}
	res, err := a.Sync(t.Context(), database(), []client.Object{o}, ownership.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	return res.Condition("Ready", gvk.Kind)
}
