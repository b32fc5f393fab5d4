// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"context"
	"fmt"
	"time"

	"github.com/ashlar-go/ashlar/ownership"
	"github.com/ashlar-go/ashlar/ownership/apply"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// example is what a reconciler has: an owner it has read, and an Applier made once from the manager's client and its
// API reader. A Service serves as the owner here.
func example() (*corev1.Service, *apply.Applier, client.Client) {
	owner := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "orders", UID: "1", Generation: 3, Finalizers: []string{"example.com/web"}}}
	other := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "billing", UID: "2", Finalizers: []string{"example.com/web"}}}
	taken := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "taken", UID: "9"}}
	c := fake.NewClientBuilder().WithScheme(testScheme()).WithObjects(owner, other, taken).Build()
	set, err := ownership.New("children", corev1.SchemeGroupVersion.WithKind("Service"), []ownership.Kind{
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap")},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret"), Carrier: ownership.Label},
	}, ownership.WithFinalizer("example.com/web"))
	if err != nil {
		panic(err)
	}
	children, err := apply.New(c, c, set)
	if err != nil {
		panic(err)
	}
	return owner, children, c
}

func exampleConfig(name, mode string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}, Data: map[string]string{"mode": mode}}
}

func exampleSecret(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}}
}

func ExampleApplier_Sync() {
	ctx := context.Background()
	owner, children, _ := example()
	for _, mode := range []string{"fast", "fast", "slow"} {
		kids, err := children.Sync(ctx, owner, []client.Object{exampleConfig("orders", mode)}, ownership.Policy{})
		fmt.Println(kids.Decisions[0].Verb, len(kids.Objects()), kids.RequeueAfter, err)
	}
	// Output:
	// Create 1 0s <nil>
	// Keep 1 0s <nil>
	// Update 1 0s <nil>
}

func ExampleApplier_Plan() {
	ctx := context.Background()
	owner, children, c := example()
	plan, err := children.Plan(ctx, owner, []client.Object{exampleConfig("orders", "fast"), exampleConfig("taken", "fast")}, ownership.Policy{})
	fmt.Print(plan)
	list := &corev1.ConfigMapList{}
	fmt.Println(err, plan.Empty(), c.List(ctx, list), len(list.Items)) // a preview writes nothing
	// Output:
	// Create ConfigMap team-a/orders: does not exist
	// Conflict ConfigMap team-a/taken: exists and nobody controls it; Policy.Adopt would take it over
	// <nil> false <nil> 1
}

func ExampleApplier_Apply() {
	ctx := context.Background()
	owner, children, _ := example()
	plan, err := children.Plan(ctx, owner, []client.Object{exampleConfig("orders", "fast")}, ownership.Policy{})
	if err != nil {
		fmt.Println(err)
		return
	}
	kids, err := children.Apply(ctx, plan)
	fmt.Println(kids.Objects()[0].GetName(), kids.Objects()[0].GetResourceVersion() != "", err)
	// Output:
	// orders true <nil>
}

func ExampleResult_Condition() {
	ctx := context.Background()
	owner, children, _ := example()
	kids, _ := children.Sync(ctx, owner, []client.Object{exampleConfig("taken", "fast"), exampleSecret("login")}, ownership.Policy{})
	for _, kind := range []string{"ConfigMap", "Secret"} {
		c := kids.Condition(kind+"Ready", kind)
		fmt.Println(c.Type, c.Status, c.Reason, c.ObservedGeneration)
		fmt.Println(" ", c.Message)
	}
	// Output:
	// ConfigMapReady False Conflict 3
	//   ConfigMap team-a/taken: exists and nobody controls it; Policy.Adopt would take it over
	// SecretReady True Applied 3
	//   1 Secret applied and current
}

func ExampleApplier_Teardown() {
	ctx := context.Background()
	owner, children, _ := example()
	_, _ = children.Sync(ctx, owner, []client.Object{exampleSecret("login")}, ownership.Policy{})
	owner.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	for range 2 { // a cleanup step answers Wait until Done
		kids, err := children.Teardown(ctx, owner, schema.GroupKind{Kind: "Secret"})
		fmt.Println(kids.Done(), len(kids.Decisions), err)
	}
	// Output:
	// false 1 <nil>
	// true 0 <nil>
}

func ExampleApplier_Handler() {
	owner, children, c := example()
	_, _ = children.Sync(context.Background(), owner, []client.Object{exampleSecret("login")}, ownership.Policy{})
	login := exampleSecret("login")
	_ = c.Get(context.Background(), client.ObjectKeyFromObject(login), login)
	q := &recorder{}
	children.Handler().Create(context.Background(), event.CreateEvent{Object: login}, q)
	fmt.Println(q.got)
	// Output:
	// [team-a/orders]
}

func ExampleApplier_Index() {
	_, children, _ := example()
	fields := &indexer{fields: map[string]client.IndexerFunc{}} // mgr.GetFieldIndexer()
	err := children.Index(context.Background(), fields)
	fmt.Println(fields.field, len(fields.objs), err)
	// Output:
	// ashlar-go.github.io/owner-uid.children 2 <nil>
}

func ExampleApplier_HandOver() {
	ctx := context.Background()
	owner, children, c := example()
	_, _ = children.Sync(ctx, owner, []client.Object{exampleConfig("taken", "fast")}, ownership.Policy{Adopt: true})
	billing := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "billing"}}
	_ = c.Get(ctx, client.ObjectKeyFromObject(billing), billing)

	kids, err := children.HandOver(ctx, owner, billing, ownership.Ref{
		GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Namespace: "team-a", Name: "taken"})
	fmt.Println(kids.Decisions[0].Why, err)
	moved := exampleConfig("taken", "")
	_ = c.Get(ctx, client.ObjectKeyFromObject(moved), moved)
	fmt.Println(ownership.OwnerOf(moved))
	// Output:
	// handed over to Service team-a/billing <nil>
	// Service team-a/billing true
}

func ExampleApplier_Sweep() {
	ctx := context.Background()
	owner, _, c := example()
	set, _ := ownership.New("children", corev1.SchemeGroupVersion.WithKind("Service"), []ownership.Kind{
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret"), Carrier: ownership.Label},
	}, ownership.WithFinalizer("example.com/web"))
	children, _ := apply.New(c, c, set, apply.WithClock(func() time.Time { return time.Now().Add(time.Hour) }))
	_, _ = children.Sync(ctx, owner, []client.Object{exampleSecret("login")}, ownership.Policy{})

	owner.Finalizers = nil // by force: no cleanup runs
	_ = c.Update(ctx, owner)
	_ = c.Delete(ctx, owner)
	for leaked, err := range children.Sweep(ctx) {
		fmt.Println(leaked, err)
	}
	// Output:
	// Secret team-a/login <nil>
}

func ExampleApplier_Check() {
	_, children, _ := example()
	err := children.Check(context.Background()) // the fake client allows nothing
	fmt.Println(err != nil)
	// Output:
	// true
}

// One Applier serves every reconcile of the process. The second client reads live: mgr.GetAPIReader().
func ExampleNew() {
	_, _, c := example()
	set, err := ownership.New("children", corev1.SchemeGroupVersion.WithKind("Service"), []ownership.Kind{
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap")}})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = apply.New(c, c, set, apply.WithParallel(4), apply.WithPropagation(metav1.DeletePropagationForeground))
	fmt.Println(err)
	_, err = apply.New(c, nil, set)
	fmt.Println(err)
	// Output:
	// <nil>
	// new applier: client, live reader and set are required
}

// The index finds the children of an owner for code of your own, too.
func ExampleIndexField() {
	set, err := ownership.New("children", corev1.SchemeGroupVersion.WithKind("Service"), []ownership.Kind{
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap")}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(client.MatchingFields{apply.IndexField(set): "uid-of-the-owner"})
	// Output:
	// map[ashlar-go.github.io/owner-uid.children:uid-of-the-owner]
}
