// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/reconciletest"
)

// widgetCRD is the custom resource of the rules.
const widgetCRD = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
"metadata":{"name":"widgets.example.com"},
"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"widgets","singular":"widget","kind":"Widget","listKind":"WidgetList"},
"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},
"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{
"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{
"conditions":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["type"],
"items":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"required":["type"],"properties":{"type":{"type":"string"}}}}}}}}}}]}}`

// TestStrictServerIsLikeTheRealOne runs the rules that reconciletest.StrictServer keeps on an API server.
func TestStrictServerIsLikeTheRealOne(t *testing.T) {
	t.Parallel()
	crd := &unstructured.Unstructured{}
	if err := crd.UnmarshalJSON([]byte(widgetCRD)); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Client.Create(t.Context(), crd); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cluster.Client.Delete(background(t), crd, client.PropagationPolicy(metav1.DeletePropagationBackground))
	})
	config := cluster.Config()
	rt, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) { // until the resource is served, on every path
		probe := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"}}
		probe.SetNamespace(metav1.NamespaceDefault)
		probe.SetName("probe")
		err := cluster.Client.Create(t.Context(), probe)
		if err == nil || apierrors.IsAlreadyExists(err) {
			break
		}
		if time.Since(begin) > time.Minute {
			t.Fatal(err)
		}
	}
	rules, err := reconciletest.Rules()
	if err != nil {
		t.Fatal(err)
	}
	if len(rules) < 20 {
		t.Fatalf("%d rules, that cannot be all", len(rules))
	}
	for _, r := range rules {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "rule-"}}
			if err := cluster.Client.Create(t.Context(), ns); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { release(t, ns.Name+"-t") })
			r.Run(t, rt, config.Host, ns.Name)
		})
	}
}

// release lets go of the namespace that a rule holds terminating.
func release(t *testing.T, name string) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_ = cluster.Client.Patch(background(t), ns, mergePatch(`{"metadata":{"finalizers":null}}`))
}
