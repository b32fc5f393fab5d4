// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/ownership"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

const finalizer = "example.com/database"

var (
	databaseKind  = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Database"}
	configMapKind = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	secretKind    = corev1.SchemeGroupVersion.WithKind("Secret")
	namespaceKind = corev1.SchemeGroupVersion.WithKind("Namespace")
	roleKind      = rbacv1.SchemeGroupVersion.WithKind("ClusterRole")
	jobKind       = schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}
)

func kinds() []ownership.Kind {
	return []ownership.Kind{
		{GroupVersionKind: configMapKind},
		{GroupVersionKind: secretKind, Carrier: ownership.Label},
		{GroupVersionKind: namespaceKind, Cluster: true},
		{GroupVersionKind: roleKind, Cluster: true},
		{GroupVersionKind: jobKind, NeededByCleanup: true},
	}
}

func newSet(t testing.TB, opts ...ownership.Option) *ownership.Set {
	t.Helper()
	s, err := ownership.New("children", databaseKind, kinds(), append([]ownership.Option{ownership.WithFinalizer(finalizer)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type edited = unstructured.Unstructured

type edit func(*edited)

func object(gvk schema.GroupVersionKind, ns, name string, edits ...edit) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(gvk)
	u.SetNamespace(ns)
	u.SetName(name)
	for _, e := range edits {
		e(u)
	}
	return u
}

func database(edits ...edit) *unstructured.Unstructured {
	u := object(databaseKind, "team-a", "orders", uid("u1"), finalizers(finalizer))
	for _, e := range edits {
		e(u)
	}
	return u
}

func configMap(name string, edits ...edit) *unstructured.Unstructured {
	return object(configMapKind, "team-a", name, append([]edit{set("1", "data", "a")}, edits...)...)
}

func uid(s string) edit { return func(u *unstructured.Unstructured) { u.SetUID(types.UID(s)) } }

func version(s string) edit { return func(u *unstructured.Unstructured) { u.SetResourceVersion(s) } }

func finalizers(f ...string) edit { return func(u *unstructured.Unstructured) { u.SetFinalizers(f) } }

func terminating() edit {
	return func(u *unstructured.Unstructured) {
		at := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
		u.SetDeletionTimestamp(&at)
	}
}

func set(v any, path ...string) edit {
	return func(u *unstructured.Unstructured) {
		if err := unstructured.SetNestedField(u.Object, v, path...); err != nil {
			panic(err)
		}
	}
}

func label(k, v string) edit {
	return func(u *unstructured.Unstructured) {
		l := u.GetLabels()
		if l == nil {
			l = map[string]string{}
		}
		l[k] = v
		u.SetLabels(l)
	}
}

func annotation(k, v string) edit {
	return func(u *unstructured.Unstructured) {
		l := u.GetAnnotations()
		if l == nil {
			l = map[string]string{}
		}
		l[k] = v
		u.SetAnnotations(l)
	}
}

func ref(apiVersion, kind, name, id string, controller bool) edit {
	return func(u *unstructured.Unstructured) {
		r := metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(id)}
		if controller {
			r.Controller = &controller
		}
		u.SetOwnerReferences(append(u.GetOwnerReferences(), r))
	}
}

// claimed makes the object a label-carried member of the owner.
func claimed(s *ownership.Set, owner ownership.Object) edit {
	return func(u *unstructured.Unstructured) {
		l, n := s.Claim(owner)
		for k, v := range l {
			label(k, v)(u)
		}
		for k, v := range n {
			annotation(k, v)(u)
		}
	}
}

// stored is what the server would hold after the declared object was applied.
func stored(t testing.TB, s *ownership.Set, owner ownership.Object, desired *unstructured.Unstructured, edits ...edit) *unstructured.Unstructured {
	t.Helper()
	p, err := s.Plan(owner, []ownership.Object{desired}, nil, ownership.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	u := p.Decisions[0].Object.(*unstructured.Unstructured).DeepCopy()
	u.SetUID("c-" + types.UID(desired.GetName()))
	u.SetResourceVersion("100")
	for _, e := range edits {
		e(u)
	}
	return u
}

func objects(in ...*unstructured.Unstructured) []ownership.Object {
	out := make([]ownership.Object, len(in))
	for i, o := range in {
		out[i] = o
	}
	return out
}

func plan(t testing.TB, s *ownership.Set, owner ownership.Object, desired, live []ownership.Object, p ownership.Policy, opts ...ownership.PlanOption) ownership.Plan {
	t.Helper()
	got, err := s.Plan(owner, desired, live, p, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// only is the single decision of a plan.
func only(t testing.TB, p ownership.Plan) ownership.Decision {
	t.Helper()
	if len(p.Decisions) != 1 {
		t.Fatalf("got %d decisions, want 1:\n%s", len(p.Decisions), p)
	}
	return p.Decisions[0]
}
