// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/ownership"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func exampleSet() *ownership.Set {
	set, err := ownership.New("children", schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Database"}, []ownership.Kind{
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap")},
		{GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("StatefulSet")},
		{GroupVersionKind: rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), Cluster: true},
		{GroupVersionKind: batchv1.SchemeGroupVersion.WithKind("Job"), NeededByCleanup: true},
	}, ownership.WithFinalizer("example.com/database"))
	if err != nil {
		panic(err)
	}
	return set
}

// exampleOwner stands for a Database; any type with object metadata serves.
func exampleOwner() ownership.Object {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team-a", Name: "orders", UID: "b7c3a1d2", Finalizers: []string{"example.com/database"}}}
}

func exampleConfig(name, mode string) *corev1.ConfigMap {
	return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}, Data: map[string]string{"mode": mode}}
}

func ExampleNew() {
	_, err := ownership.New("children", schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Database"}, []ownership.Kind{
		{GroupVersionKind: rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), Cluster: true, Carrier: ownership.Native},
	})
	fmt.Println(errors.Is(err, ownership.ErrIllegalReference))
	fmt.Println(err)
	// Output:
	// true
	// declare set "children": kind ClusterRole.rbac.authorization.k8s.io: native owner reference is not allowed: a cluster-scoped child cannot name a namespaced owner
}

func ExampleSet_Plan() {
	set, owner := exampleSet(), exampleOwner()
	theirs := exampleConfig("taken", "x")
	theirs.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "9", Controller: new(true)}}

	desired := []ownership.Object{exampleConfig("orders", "fast"), exampleConfig("taken", "fast")}
	plan, err := set.Plan(owner, desired, []ownership.Object{theirs}, ownership.Policy{})
	fmt.Print(plan)
	fmt.Println(err)
	fmt.Println(plan.Decisions[0].Object.GetOwnerReferences()[0].Name)
	// Output:
	// Create ConfigMap team-a/orders: does not exist
	// Conflict ConfigMap team-a/taken: controlled by Deployment team-a/web (uid 9)
	// <nil>
	// orders
}

func ExamplePolicy() {
	set, owner := exampleSet(), exampleOwner()
	plan, _ := set.Plan(owner, []ownership.Object{exampleConfig("a", "fast"), exampleConfig("b", "fast")}, nil, ownership.Policy{})
	live := []ownership.Object{plan.Decisions[0].Object, plan.Decisions[1].Object}

	plan, err := set.Plan(owner, nil, live, ownership.Policy{})
	var refused *ownership.PruneError
	fmt.Println(errors.As(err, &refused), plan.Empty())
	fmt.Println(err)
	plan, err = set.Plan(owner, nil, live, ownership.Policy{AllowEmpty: true})
	fmt.Print(plan)
	fmt.Println(err)
	// Output:
	// true true
	// prune members of Database team-a/orders: the desired set is empty and Policy.AllowEmpty is not set (2 of 2 members: ConfigMap team-a/a, ConfigMap team-a/b)
	// Prune ConfigMap team-a/a: not declared any more
	// Prune ConfigMap team-a/b: not declared any more
	// <nil>
}

func ExampleSet_Claim() {
	set, owner := exampleSet(), exampleOwner()
	labels, annotations := set.Claim(owner)
	volume := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", Labels: labels, Annotations: annotations}}
	fmt.Println(volume.Labels)
	fmt.Println(volume.Annotations)
	fmt.Println(ownership.OwnerOf(&volume))
	// Output:
	// map[ashlar-go.github.io/owner.children:b7c3a1d2]
	// map[ashlar-go.github.io/owner-ref.children:example.com/v1,Database,team-a,orders]
	// Database team-a/orders true
}

func ExampleSet_Teardown() {
	set := exampleSet()
	now := metav1.Now()
	owner := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "orders", UID: "b7c3a1d2", DeletionTimestamp: &now}}
	labels, annotations := set.Claim(owner)
	job := &batchv1.Job{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "backup", Labels: labels, Annotations: annotations}}

	plan, err := set.Teardown(owner, []ownership.Object{job}, []schema.GroupKind{{Group: "batch", Kind: "Job"}})
	fmt.Print(plan)
	fmt.Println(err)
	// Output:
	// Prune Job team-a/backup: the owner is being cleaned up
	// <nil>
}

func ExampleSet_Orphaned() {
	set := exampleSet()
	now := metav1.Now()
	owner := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "orders", UID: "b7c3a1d2", DeletionTimestamp: &now}}
	_, annotations := set.Claim(owner)
	child := exampleConfig("orders", "fast") // its owner reference was stripped, the annotation is still there
	child.Annotations = annotations
	fmt.Println(set.Orphaned(owner, []ownership.Object{child}))
	// Output:
	// true true
}

func ExampleSet_Explain() {
	set, owner := exampleSet(), exampleOwner()
	plan, _ := set.Plan(owner, []ownership.Object{exampleConfig("orders", "fast")}, nil, ownership.Policy{})
	fmt.Print(set.Explain(owner, []ownership.Object{plan.Decisions[0].Object}))
	// Output:
	// Database team-a/orders (uid b7c3a1d2), set "children", field manager "children.database.example.com", holds finalizer example.com/database
	//   ConfigMap team-a/orders: ours by owner reference
}

func ExampleSet_Rules() {
	fmt.Print(exampleSet().Rules())
	// Output:
	// - apiGroups: [""]
	//   resources: [configmaps]
	//   verbs: [create, delete, get, list, patch, watch]
	// - apiGroups: ["apps"]
	//   resources: [statefulsets]
	//   verbs: [create, delete, get, list, patch, watch]
	// - apiGroups: ["batch"]
	//   resources: [jobs]
	//   verbs: [create, delete, get, list, patch, watch]
	// - apiGroups: ["example.com"]
	//   resources: [databases]
	//   verbs: [get]
	// - apiGroups: ["example.com"]
	//   resources: [databases/finalizers]
	//   verbs: [update]
	// - apiGroups: ["rbac.authorization.k8s.io"]
	//   resources: [clusterroles]
	//   verbs: [create, delete, get, list, patch, watch]
}

func ExampleOwnerOf() {
	child := exampleConfig("orders", "fast")
	child.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Database", Name: "orders", UID: "b7c3a1d2", Controller: new(true)}}
	owner, ok := ownership.OwnerOf(child)
	fmt.Println(owner, ok, owner.Group)
	// Output:
	// Database team-a/orders true example.com
}

func ExampleApplySetID() {
	fmt.Println(ownership.ApplySetID(ownership.Ref{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret"), Namespace: "test", Name: "my-set"}))
	// Output:
	// applyset-0eFHV8ySqp7XoShsGvyWFQD3s96yqwHmzc4e0HR1dsY-v1
}

func ExampleRemembering() {
	set, owner := exampleSet(), exampleOwner()
	desired := []ownership.Object{exampleConfig("orders", "fast")}
	first, _ := set.Plan(owner, desired, nil, ownership.Policy{})
	stored := first.Decisions[0].Object
	stored.SetUID("1")
	stored.SetResourceVersion("42")

	memory := map[types.UID]ownership.Evidence{"1": {ResourceVersion: "42", Hash: first.Decisions[0].Evidence.Hash}}
	again, _ := set.Plan(owner, desired, []ownership.Object{stored}, ownership.Policy{},
		ownership.Remembering(func(uid types.UID) (ownership.Evidence, bool) { e, ok := memory[uid]; return e, ok }))
	fmt.Print(again)
	// Output:
	// Keep ConfigMap team-a/orders: unchanged since our last write
}

func ExampleSet_RequestFor() {
	set, owner := exampleSet(), exampleOwner()
	labels, annotations := set.Claim(owner)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "orders-reader", Labels: labels, Annotations: annotations}}
	fmt.Println(set.RequestFor(role))
	// Output:
	// team-a/orders true
}

// Typed objects out of a cache have no TypeMeta; a manager's client knows their kind.
func ExampleKindOf() {
	set, err := ownership.New("children", corev1.SchemeGroupVersion.WithKind("Service"), []ownership.Kind{
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap")}})
	if err != nil {
		fmt.Println(err)
		return
	}
	owner := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "orders", UID: "1"}}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "x"}}
	_, err = set.Plan(owner, []ownership.Object{config}, nil, ownership.Policy{})
	fmt.Println(err)
	plan, err := set.Plan(owner, []ownership.Object{config}, nil, ownership.Policy{},
		ownership.KindOf(func(ownership.Object) (schema.GroupVersionKind, error) {
			return corev1.SchemeGroupVersion.WithKind("ConfigMap"), nil // mgr.GetClient().GroupVersionKindFor
		}))
	fmt.Print(plan)
	fmt.Println(err)
	// Output:
	// plan children of Service team-a/orders: *v1.ConfigMap team-a/x: apiVersion and kind: empty
	// Create ConfigMap team-a/x: does not exist
	// <nil>
}

// Volumes that a StatefulSet makes from a template are torn down, and never applied.
func ExampleKind_Verbs() {
	volumes := ownership.Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), Found: true}
	fmt.Println(volumes.Verbs())
	// Output:
	// [delete get list patch watch]
}

// A parent of kubectl's ApplySet is left alone.
func ExampleSet_ForeignTool() {
	set, err := ownership.New("bundle", corev1.SchemeGroupVersion.WithKind("ConfigMap"), []ownership.Kind{
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret"), Carrier: ownership.ApplySet},
	}, ownership.WithFinalizer("example.com/web"))
	if err != nil {
		fmt.Println(err)
		return
	}
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "orders", UID: "1",
		Annotations: map[string]string{"applyset.kubernetes.io/tooling": "kubectl/v1.37"}}}
	fmt.Println(set.ForeignTool(owner))
	// Output:
	// kubectl/v1.37
}
