// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ashlar-go/ashlar/test/controlplane"
)

// childMode makes this binary start a control plane and wait to be killed.
const childMode = "CONTROLPLANE_TEST_CHILD"

// The one control plane that most tests share, and the admin's client.
var (
	cp     *controlplane.ControlPlane
	client kubernetes.Interface
)

func TestMain(m *testing.M) {
	os.Unsetenv("KUBEBUILDER_ASSETS") // the version is what is tested here
	if os.Getenv(childMode) != "" {
		child()
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if cp, err = controlplane.Start(context.Background(), controlplane.WithSetup(installWidgets)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	client = kubernetes.NewForConfigOrDie(cp.Config())
	code := m.Run()
	if err := cp.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// widgets is a custom resource that is there before the garbage collector is.
var widgets = schema.GroupVersionResource{Group: "test.example.org", Version: "v1", Resource: "widgets"}

func installWidgets(ctx context.Context, cfg *rest.Config) error {
	d, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets.test.example.org"},
		"spec": map[string]any{
			"group": "test.example.org", "scope": "Namespaced",
			"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
	crds := d.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	_, err = crds.Create(ctx, crd, metav1.CreateOptions{})
	return err
}

// eventually waits until done returns true, and fails with what it said last.
func eventually(t *testing.T, what string, done func(ctx context.Context) (ok bool, state any)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		ok, state := done(ctx)
		if ok {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%s: not within two minutes; at last %v", what, state)
		case <-cp.Done():
			t.Fatalf("%s: %v", what, cp.Err())
		}
	}
}

// namespace makes one for the test, and leaves it to the end of the control plane.
func namespace(t *testing.T) string {
	t.Helper()
	name := strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))
	name = strings.ReplaceAll(name, "_", "-")
	_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return name
}
