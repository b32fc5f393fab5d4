// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/ownership"
	"github.com/ashlar-go/ashlar/ownership/apply"
)

// The collector never finds a child without an owner while it changes hands.
func TestOwnershipHandOver(t *testing.T) {
	t.Parallel()
	l := newChildLab(t)
	a := l.applier()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "x"}}
	l.pass(a, ownership.Policy{}, l.secret("x", "k", "v"), sa)
	to := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "heir", Finalizers: []string{ownershipFinalizer}}}
	if err := cluster.Client.Create(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		to.Finalizers = nil
		_ = cluster.Client.Update(context.WithoutCancel(t.Context()), to)
	})
	ref := func(kind string) ownership.Ref {
		return ownership.Ref{GroupVersionKind: corev1.SchemeGroupVersion.WithKind(kind), Namespace: l.ns, Name: "x"}
	}
	res, err := a.HandOver(t.Context(), l.owner, to, ref("Secret"), ref("ServiceAccount"))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range res.Decisions {
		if d.Verb != ownership.Update {
			t.Errorf("got %s", d)
		}
	}
	before := l.get(l.secret("x")).GetUID()
	if plan, err := a.Plan(t.Context(), l.owner, nil, ownership.Policy{AllowEmpty: true}); err != nil || len(plan.Decisions) != 0 {
		t.Errorf("the former owner would %s, %v", plan, err)
	}
	heir, err := a.Sync(t.Context(), to, []client.Object{l.secret("x", "k", "v"), sa}, ownership.Policy{})
	if err != nil || len(heir.Objects()) != 2 {
		t.Errorf("got %v, %v", heir.Decisions, err)
	}
	owner := l.owner.DeepCopy()
	l.get(owner)
	owner.Finalizers = nil
	if err := cluster.Client.Update(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Client.Delete(t.Context(), owner, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	l.until("the former owner is gone", func() bool { return l.gone(l.owner.DeepCopy()) })
	if after := l.get(l.secret("x")).GetUID(); after != before {
		t.Error("the child was lost")
	}
}

func TestOwnershipApplySetRecord(t *testing.T) {
	t.Parallel()
	l := newChildLab(t)
	set, err := ownership.New("bundle", corev1.SchemeGroupVersion.WithKind("ConfigMap"), []ownership.Kind{
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret"), Carrier: ownership.ApplySet},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ServiceAccount"), Carrier: ownership.ApplySet},
	}, ownership.WithFinalizer(ownershipFinalizer))
	if err != nil {
		t.Fatal(err)
	}
	a, err := apply.New(l.c, cluster.Client, set)
	if err != nil {
		t.Fatal(err)
	}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "x"}}
	pass := func(want string, writes int, desired ...client.Object) {
		t.Helper()
		l.get(l.owner)
		l.taken()
		if _, err := a.Sync(t.Context(), l.owner, desired, ownership.Policy{}); err != nil {
			t.Fatal(err)
		}
		w := l.taken()
		l.get(l.owner)
		if got := l.owner.Annotations["applyset.kubernetes.io/contains-group-kinds"]; got != want || len(w) != writes {
			t.Errorf("got %q, want %q, wrote %v", got, want, w)
		}
	}
	pass("Secret,ServiceAccount", 3, l.secret("x"), sa)
	pass("Secret,ServiceAccount", 0, l.secret("x"), sa)
	pass("Secret", 2, l.secret("x"))
	members := &corev1.SecretList{}
	id := ownership.ApplySetID(ownership.Ref{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Namespace: l.ns, Name: "owner"})
	if err := cluster.Client.List(t.Context(), members, client.MatchingLabels{"applyset.kubernetes.io/part-of": id}); err != nil || len(members.Items) != 1 {
		t.Errorf("%d members, %v", len(members.Items), err)
	}
}
