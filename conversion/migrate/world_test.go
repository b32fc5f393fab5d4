// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/conversion/migrate"
	"github.com/ashlar-go/ashlar/reconciletest"
)

const crdName = "widgets.example.com"

var (
	crdKind    = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	widgetKind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	svmKind    = schema.GroupVersionKind{Group: "storagemigration.k8s.io", Version: "v1", Kind: "StorageVersionMigration"}
)

// world is a strict server with a CRD on it, whose requests are seen and can be answered differently.
type world struct {
	t      *testing.T
	server *reconciletest.StrictServer
	client client.Client
	crd    *unstructured.Unstructured

	mu     sync.Mutex
	writes []string                                   // method and path
	answer func(*http.Request, []byte) *metav1.Status // nil result: the server's
}

func newWorld(t *testing.T, delegate bool, stored ...string) *world {
	t.Helper()
	kinds := []reconciletest.Resource{
		{GroupVersionKind: crdKind, Plural: "customresourcedefinitions", Cluster: true},
		{GroupVersionKind: widgetKind, Plural: "widgets"},
		{GroupVersionKind: svmKind, Plural: "storageversionmigrations", Cluster: true},
	}
	w := &world{t: t}
	var err error
	if w.server, err = reconciletest.NewStrictServer(kinds); err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(crdKind, meta.RESTScopeRoot)
	mapper.Add(widgetKind, meta.RESTScopeNamespace)
	if delegate {
		mapper.Add(svmKind, meta.RESTScopeRoot)
	}
	laws := reconciletest.NewLawTransport(t, w)
	w.client, err = client.New(&rest.Config{Host: "https://strict", QPS: -1}, client.Options{
		HTTPClient: &http.Client{Transport: laws}, Scheme: runtime.NewScheme(), Mapper: mapper,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.crd = &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": crdName},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced",
			"names": map[string]any{"kind": "Widget", "plural": "widgets"},
			"versions": []any{
				map[string]any{"name": "v1alpha1", "served": true, "storage": false, "subresources": map[string]any{"status": map[string]any{}}},
				map[string]any{"name": "v1", "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}}},
			},
		},
	}}
	w.crd.SetGroupVersionKind(crdKind)
	w.must(w.client.Create(t.Context(), w.crd))
	w.store(stored...)
	w.taken()
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// store sets status.storedVersions.
func (w *world) store(versions ...string) {
	w.t.Helper()
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": w.crd.GetResourceVersion()},
		"status":   map[string]any{"storedVersions": versions},
	})
	w.must(err)
	w.must(w.client.Status().Patch(w.t.Context(), w.crd, client.RawPatch("application/merge-patch+json", body)))
}

func (w *world) stored() []string {
	w.t.Helper()
	w.must(w.client.Get(w.t.Context(), client.ObjectKey{Name: crdName}, w.crd))
	list, _, err := unstructured.NestedStringSlice(w.crd.Object, "status", "storedVersions")
	w.must(err)
	return list
}

// widgets creates n of them, written by kubectl at v1.
func (w *world) widgets(n int) {
	w.t.Helper()
	for i := range n {
		w.widget(fmt.Sprintf("w%03d", i), map[string]any{"size": int64(i)})
	}
	w.taken()
}

func (w *world) widget(name string, spec map[string]any, managers ...metav1.ManagedFieldsEntry) *unstructured.Unstructured {
	w.t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(widgetKind)
	o.SetNamespace("shop")
	o.SetName(name)
	w.must(w.client.Create(w.t.Context(), o, client.FieldOwner("kubectl")))
	if managers != nil {
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": o.GetResourceVersion(), "managedFields": managers}})
		w.must(err)
		w.must(w.client.Patch(w.t.Context(), o, client.RawPatch("application/merge-patch+json", body)))
	}
	return o
}

func (w *world) get(name string) *unstructured.Unstructured {
	w.t.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(widgetKind)
	w.must(w.client.Get(w.t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, o))
	return o
}

// at is an entry of managedFields.
func at(manager, version string) metav1.ManagedFieldsEntry {
	when := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "example.com/" + version, Time: &when,
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:size":{}}}`),
	}
}

func (w *world) migrator(opts ...migrate.Option) *migrate.Migrator {
	w.t.Helper()
	m, err := migrate.New(w.client, w.client, crdName, opts...)
	w.must(err)
	return m
}

// taken returns the writes since it was called last.
func (w *world) taken() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.writes
	w.writes = nil
	return out
}

func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	w.mu.Lock()
	if r.Method != http.MethodGet {
		w.writes = append(w.writes, r.Method+" "+r.URL.Path)
	}
	answer := w.answer
	w.mu.Unlock()
	if answer != nil {
		if status := answer(r, body); status != nil {
			status.Kind, status.APIVersion, status.Status = "Status", "v1", metav1.StatusFailure
			raw, err := json.Marshal(status)
			return &http.Response{
				StatusCode: int(status.Code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
				Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(raw)),
			}, err
		}
	}
	return w.server.RoundTrip(r)
}

func refuse(code int32, reason metav1.StatusReason) *metav1.Status {
	return &metav1.Status{Code: code, Reason: reason, Message: strings.ToLower(string(reason))}
}
