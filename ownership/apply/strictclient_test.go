// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/ashlar-go/ashlar/ownership/apply"
	"github.com/ashlar-go/ashlar/reconciletest"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// strictClient talks to a reconciletest.StrictServer, where field management is the server's, and counts applies and
// patches. Everything it sends is held against the laws of writing.
type strictClient struct {
	client.Client
	sent *atomic.Int64
}

func strictServer(t *testing.T) (*reconciletest.StrictServer, strictClient) {
	t.Helper()
	s, err := reconciletest.NewStrictServer([]reconciletest.Resource{
		{GroupVersionKind: databaseKind, Plural: "databases"},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Plural: "configmaps", NoStatus: true},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret"), Plural: "secrets", NoStatus: true},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ServiceAccount"), Plural: "serviceaccounts", NoStatus: true},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Namespace"), Plural: "namespaces", Cluster: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	sent := &atomic.Int64{}
	laws := reconciletest.NewLawTransport(t, s)
	count := roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPatch {
			sent.Add(1)
		}
		return laws.RoundTrip(r)
	})
	c, err := client.New(&rest.Config{Host: "https://strict", QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}},
		client.Options{Scheme: testScheme(), HTTPClient: &http.Client{Transport: count}})
	if err != nil {
		t.Fatal(err)
	}
	return s, strictClient{c, sent}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (c strictClient) requests() int { return int(c.sent.Load()) }

func (c strictClient) owner(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	o := database()
	o.SetName(name)
	o.SetUID("")
	if err := c.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return o
}

func (c strictClient) live(t *testing.T, o client.Object) client.Object {
	t.Helper()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	return o
}

func (c strictClient) applier(t *testing.T, cache client.Client) *apply.Applier {
	t.Helper()
	a, err := apply.New(cache, c, newSet(t))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// lagging reads what was then.
type lagging struct {
	client.Client
	then client.Reader
}

func (l lagging) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return l.then.Get(ctx, key, o, opts...)
}

func (l lagging) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return l.then.List(ctx, list, opts...)
}
