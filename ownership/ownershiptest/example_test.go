// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownershiptest_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"testing"

	"github.com/ashlar-go/ashlar/ownership"
	"github.com/ashlar-go/ashlar/ownership/ownershiptest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/reconciletest"
)

// printer stands for *testing.T, which an example does not have.
type printer struct{ testing.TB }

func (printer) Helper()                           {}
func (printer) Context() context.Context          { return context.Background() }
func (printer) Failed() bool                      { return false }
func (printer) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// What is computed from anything but the owner changes with every pass.
func ExampleCheck() {
	set, _ := ownership.New("children", corev1.SchemeGroupVersion.WithKind("Service"), []ownership.Kind{
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap")}})
	calls := 0
	ownershiptest.Check(printer{}, ownershiptest.Subject{
		Set:   set,
		Owner: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "orders", UID: "1"}},
		Desired: func(o client.Object) []client.Object {
			calls++
			return []client.Object{&corev1.ConfigMap{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
				ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: "x"},
				Data:       map[string]string{"calls": strconv.Itoa(calls)},
			}}
		},
	})
	// Output:
	// ConfigMap team-a/x is not computed alike twice: every pass would write it
	// a second pass would write:
	// Update ConfigMap team-a/x: the declaration changed
	//
	// declared in reverse a pass would write:
	// Update ConfigMap team-a/x: the declaration changed
}

// A walk of fifty steps on an API server in memory.
func ExampleWalk() {
	kind := corev1.SchemeGroupVersion.WithKind
	server, err := reconciletest.NewStrictServer([]reconciletest.Resource{
		{GroupVersionKind: kind("ConfigMap"), Plural: "configmaps", NoStatus: true},
		{GroupVersionKind: kind("Secret"), Plural: "secrets", NoStatus: true},
		{GroupVersionKind: kind("ServiceAccount"), Plural: "serviceaccounts", NoStatus: true},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := client.New(&rest.Config{Host: "https://strict", QPS: -1}, client.Options{HTTPClient: &http.Client{Transport: server}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ownershiptest.Walk{
		Client: c, Namespace: "team-a", Seed: 1, Steps: 50, Collect: func(context.Context) { server.Collect() },
	}.Run(printer{})
	fmt.Println("fifty steps")
	// Output:
	// fifty steps
}

func ExampleWorld() {
	set, _ := ownership.New("children", corev1.SchemeGroupVersion.WithKind("Service"), []ownership.Kind{
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap")}})
	owner := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "orders", UID: "1"}}
	config := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "x"}}

	world := &ownershiptest.World{}
	for range 2 {
		plan, _ := set.Plan(owner, []ownership.Object{config}, world.Live(), ownership.Policy{})
		fmt.Print(plan)
		if err := world.Carry(plan); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// Create ConfigMap team-a/x: does not exist
	// Keep ConfigMap team-a/x: as declared
}
