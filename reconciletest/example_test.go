// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/ashlar-go/ashlar/reconciletest"
)

// With a testing.TB in place of nil every violation fails the test; with nil they are only recorded.
func ExampleNewLawTransport() {
	laws := reconciletest.NewLawTransport(nil, &server{})
	c := http.Client{Transport: laws}

	r, _ := http.NewRequest(http.MethodDelete, "https://server/apis/batch/v1/namespaces/shop/jobs/backup", nil)
	resp, err := c.Do(r)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	for _, v := range laws.Violations() {
		fmt.Println(v.Law, "–", v.What)
	}
	// Output:
	// law 1 DeletePolicy – no propagation policy
	// law 2 DeletePreconditions – no uid and no resourceVersion precondition
}

func ExampleLawTransport_Wrap() {
	laws := reconciletest.NewLawTransport(nil, nil)
	// In a test: config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return laws.Wrap(rt) })
	cached, live := http.Client{Transport: laws.Wrap(&server{})}, http.Client{Transport: laws.Wrap(&server{})}

	for _, c := range []*http.Client{&cached, &live} {
		r, _ := http.NewRequest(http.MethodPut, "https://server/api/v1/namespaces/shop/configmaps/a", strings.NewReader("{}"))
		r.Header.Set("Content-Type", "application/json")
		resp, err := c.Do(r)
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
	}
	fmt.Println(len(laws.Violations()), "violations of both clients together")
	// Output:
	// 2 violations of both clients together
}

func ExampleWithForeign() {
	laws := reconciletest.NewLawTransport(nil, &server{},
		reconciletest.WithForeign(func(w reconciletest.Write) bool { return w.Namespace == "kube-system" }),
		reconciletest.WithExempt(schema.GroupResource{Group: "example.com", Resource: "heartbeats"}))
	r, _ := http.NewRequest(http.MethodPost, "https://server/api/v1/namespaces/kube-system/secrets", strings.NewReader("{}"))
	resp, err := (&http.Client{Transport: laws}).Do(r)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	fmt.Println(laws.Violations()[0])
	// Output:
	// law 8 ForeignWrite: create secrets.v1 kube-system: the object is foreign (the object belongs to somebody else)
}

func ExampleLaw_Why() {
	fmt.Println(reconciletest.DeleteOnce.Why())
	// Output:
	// a second delete can put foregroundDeletion back and wedge the object
}

func ExampleNewMutationDetector() {
	ctx := context.Background()
	cache := reconciletest.NewMutationDetector(fake.NewClientBuilder().WithObjects(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "settings"},
		Data:       map[string]string{"mode": "calm"},
	}).Build())

	cm := &corev1.ConfigMap{}
	if err := cache.Get(ctx, client.ObjectKey{Namespace: "shop", Name: "settings"}, cm); err != nil {
		fmt.Println(err)
		return
	}
	cm.Data["mode"] = "wild" // the mistake: without a DeepCopy this is everybody's map

	fmt.Println(cache.Check())
	// Output:
	// check ConfigMap shop/settings: data[mode] changed from "calm" to "wild" in a shared object
}

func ExampleMutationDetector_Guard() {
	labels := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"app": "web"}}}
	d := reconciletest.NewMutationDetector(nil)
	d.Guard(labels)
	delete(labels.Labels, "app") // the function under test
	fmt.Println(d.Check())
	// Output:
	// check ConfigMap a: metadata.labels[app] changed from "web" to nothing in a shared object
}

func ExampleWithExempt() {
	laws := reconciletest.NewLawTransport(nil, &server{},
		reconciletest.WithExempt(schema.GroupResource{Group: "example.com", Resource: "heartbeats"}))
	r, _ := http.NewRequest(http.MethodPut, "https://server/apis/example.com/v1/namespaces/shop/heartbeats/a", strings.NewReader("{}"))
	resp, err := (&http.Client{Transport: laws}).Do(r)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	fmt.Println(len(laws.Violations()), "violations")
	// Output:
	// 0 violations
}

func ExampleNewStrictServer() {
	server, err := reconciletest.NewStrictServer([]reconciletest.Resource{{
		GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Database"}, Plural: "databases",
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := client.New(&rest.Config{Host: "https://strict", Transport: server}, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	db := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Database",
		"metadata": map[string]any{"namespace": "shop", "name": "orders", "finalizers": []any{"example.com/cleanup"}},
	}}
	if err := c.Create(ctx, db); err != nil {
		fmt.Println(err)
		return
	}
	if err := c.Delete(ctx, db); err != nil {
		fmt.Println(err)
		return
	}
	late := []byte(`[{"op":"add","path":"/metadata/finalizers/-","value":"example.com/late"}]`)
	fmt.Println(c.Patch(ctx, db, client.RawPatch("application/json-patch+json", late)))
	// Output:
	// Database.example.com "orders" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers [example.com/late]
}

func ExampleStrictServer_Collect() {
	server, err := reconciletest.NewStrictServer([]reconciletest.Resource{{
		GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Plural: "configmaps", NoStatus: true,
	}}, reconciletest.WithClock(func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }))
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := client.New(&rest.Config{
		Host: "https://strict", Transport: server, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	}, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "child",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "of-a-dead-owner"}},
	}}
	if err := c.Create(context.Background(), child); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(server.Collect())
	// Output:
	// [deleted ConfigMap shop/child, whose owners are gone]
}

// Everything that reads through the detector gets the same object, as from an informer's cache.
func ExampleMutationDetector_Get() {
	shared := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "settings"}, Data: map[string]string{"mode": "calm"}}
	cache := reconciletest.NewMutationDetector(fake.NewClientBuilder().WithObjects(shared).Build())
	got := &corev1.ConfigMap{}
	if err := cache.Get(context.Background(), client.ObjectKeyFromObject(shared), got); err != nil {
		fmt.Println(err)
		return
	}
	got.Data["mode"] = "wild"
	again := &corev1.ConfigMap{}
	if err := cache.Get(context.Background(), client.ObjectKeyFromObject(shared), again); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(again.Data["mode"])
	// Output:
	// wild
}

func ExampleMutationDetector_List() {
	cache := reconciletest.NewMutationDetector(fake.NewClientBuilder().WithObjects(
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}, Data: map[string]string{"mode": "calm"}},
	).Build())
	list := &corev1.ConfigMapList{}
	if err := cache.List(context.Background(), list); err != nil {
		fmt.Println(err)
		return
	}
	list.Items[0].Data["mode"] = "wild" // the maps of an item are shared
	fmt.Println(cache.Check())
	// Output:
	// check ConfigMap shop/a: data[mode] changed from "calm" to "wild" in a shared object
}

func ExampleMutationDetector_Check() {
	cache := reconciletest.NewMutationDetector(fake.NewClientBuilder().Build())
	fmt.Println(cache.Check())
	// Output:
	// <nil>
}

// The rules of the API server, against a server of your own.
func ExampleRules() {
	rules, err := reconciletest.Rules()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(rules[0].Name+":", rules[0].Reason)
	// for _, rule := range rules { t.Run(rule.Name, func(t *testing.T) { rule.Run(t, transport, "https://127.0.0.1:6443", namespaceOf(t)) }) }

	// Output:
	// create sets system fields: uid, version, generation 1, and status belongs to its subresource
}
