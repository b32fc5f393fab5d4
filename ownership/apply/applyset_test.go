// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/ownership"
	"github.com/ashlar-go/ashlar/ownership/apply"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	partOf  = "applyset.kubernetes.io/part-of"
	idKey   = "applyset.kubernetes.io/id"
	tooling = "applyset.kubernetes.io/tooling"
	inKinds = "applyset.kubernetes.io/contains-group-kinds"
	inSpace = "applyset.kubernetes.io/additional-namespaces"
)

// parentServer stores a ConfigMap as parent, a kind the fake can apply to.
func parentServer(t *testing.T) (*server, *corev1.ConfigMap, *apply.Applier) {
	t.Helper()
	parent := configMap("parent")
	parent.UID, parent.Finalizers = "owner-1", []string{finalizer}
	s := newServer(t, false, parent)
	set, err := ownership.New("bundle", corev1.SchemeGroupVersion.WithKind("ConfigMap"), []ownership.Kind{
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret"), Carrier: ownership.ApplySet},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Service"), Carrier: ownership.ApplySet},
	}, ownership.WithFinalizer(finalizer))
	if err != nil {
		t.Fatal(err)
	}
	a, err := apply.New(s.cache, s.live(), set)
	if err != nil {
		t.Fatal(err)
	}
	return s, s.must(t, parent).(*corev1.ConfigMap), a
}

func service(ns, name string) *corev1.Service {
	o := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "None"}}
	o.Namespace, o.Name = ns, name
	return o
}

func TestApplySetRecordIsASupersetBeforeAndShrinksAfter(t *testing.T) {
	t.Parallel()
	s, parent, a := parentServer(t)
	desired := []client.Object{secret("a"), service("team-b", "b")}
	res, err := a.Sync(t.Context(), parent, desired, ownership.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	w := s.taken()
	if len(w) != 3 || w[0].Name != "parent" || w[0].Force || w[0].UID != "owner-1" || w[0].Manager != "bundle.configmap-applyset" {
		t.Fatalf("one write of the parent, before the members, got %v", w)
	}
	id := ownership.ApplySetID(ownership.Ref{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Namespace: "team-a", Name: "parent"})
	parent = res.Owner.(*corev1.ConfigMap)
	if parent.Labels[idKey] != id || parent.Annotations[tooling] != "bundle.configmap/v1" ||
		parent.Annotations[inKinds] != "Secret,Service" || parent.Annotations[inSpace] != "team-b" {
		t.Errorf("got labels %v, annotations %v", parent.Labels, parent.Annotations)
	}
	if got := s.must(t, service("team-b", "b")).GetLabels()[partOf]; got != id {
		t.Errorf("the member carries %q", got)
	}

	res, err = a.Sync(t.Context(), parent, desired, ownership.Policy{})
	if w := s.taken(); err != nil || len(w) != 0 || res.Owner != nil {
		t.Errorf("a converged pass wrote %v, %v", w, err)
	}

	res, err = a.Sync(t.Context(), parent, desired[:1], ownership.Policy{})
	w = s.taken()
	if err != nil || len(w) != 2 || w[0].Verb != "delete" || w[1].Name != "parent" {
		t.Fatalf("one shrink, after the prune, got %v, %v", w, err)
	}
	parent = res.Owner.(*corev1.ConfigMap)
	if _, there := parent.Annotations[inSpace]; parent.Annotations[inKinds] != "Secret" || there {
		t.Errorf("got annotations %v", parent.Annotations)
	}
}

func TestApplySetRecordStaysAfterAFailure(t *testing.T) {
	t.Parallel()
	s, parent, a := parentServer(t)
	res, err := a.Sync(t.Context(), parent, []client.Object{secret("a"), service("team-a", "b")}, ownership.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	s.before = func(r *request) error {
		if r.Verb == "delete" {
			return apierrors.NewInternalError(errors.New("boom"))
		}
		return nil
	}
	if _, err = a.Sync(t.Context(), res.Owner, []client.Object{secret("a")}, ownership.Policy{}); err == nil {
		t.Fatal("no error")
	}
	if got := s.must(t, configMap("parent")).GetAnnotations()[inKinds]; got != "Secret,Service" {
		t.Errorf("got %q", got)
	}
}

func TestApplySetOfAnotherToolIsRefused(t *testing.T) {
	t.Parallel()
	for key, value := range map[string]string{tooling: "kubectl/v1.37.2", idKey: "applyset-other-v1"} {
		s, parent, a := parentServer(t)
		if key == tooling {
			parent.Annotations = map[string]string{key: value}
		} else {
			parent.Labels = map[string]string{key: value}
		}
		_, err := a.Sync(t.Context(), parent, []client.Object{secret("a")}, ownership.Policy{})
		if w := s.taken(); !errors.Is(err, ownership.ErrForeignTooling) || len(w) != 0 {
			t.Errorf("%s: got %v, writes %v", key, err, w)
		}
	}
}

func TestHandOver(t *testing.T) {
	t.Parallel()
	other := func(edits ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
		o := database()
		o.SetName("billing")
		o.SetUID("owner-2")
		for _, e := range edits {
			e(o)
		}
		return o
	}
	s := newServer(t, false, database(), other())
	a := newApplier(t, s)
	pass(t, a, configMap("config", "mode", "fast"), secret("login"), configMap("mine"))
	foreign := configMap("foreign")
	foreign.UID = "foreign"
	if err := s.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	ref := func(o client.Object, kind string) ownership.Ref {
		return ownership.Ref{GroupVersionKind: corev1.SchemeGroupVersion.WithKind(kind), Namespace: o.GetNamespace(), Name: o.GetName()}
	}
	members := []ownership.Ref{ref(configMap("config"), "ConfigMap"), ref(secret("login"), "Secret"), ref(foreign, "ConfigMap"), ref(configMap("none"), "ConfigMap")}
	s.taken()
	res, err := a.HandOver(t.Context(), database(), other(), members...)
	if err != nil {
		t.Fatal(err)
	}
	want := []ownership.Verb{ownership.Update, ownership.Update, ownership.Conflict, ownership.Wait}
	for i, d := range res.Decisions {
		if d.Verb != want[i] {
			t.Errorf("got %s, want %s", d, want[i])
		}
	}
	if w := s.taken(); len(w) != 2 {
		t.Errorf("got %v", w)
	}
	again, err := a.HandOver(t.Context(), database(), other(), members[:2]...)
	if w := s.taken(); err != nil || len(w) != 0 || again.Decisions[0].Verb != ownership.Keep {
		t.Errorf("a second time: %v, %v", again.Decisions, w)
	}
	// kustomize-controller#338: the old owner does not prune what moved, the new one keeps it as it is.
	if _, err := a.Sync(t.Context(), database(), []client.Object{configMap("mine")}, ownership.Policy{}); err != nil {
		t.Fatal(err)
	}
	got, err := a.Sync(t.Context(), other(), []client.Object{configMap("config", "mode", "fast"), secret("login")}, ownership.Policy{})
	if err != nil || len(got.Objects()) != 2 {
		t.Fatalf("got %v, %v", got.Decisions, err)
	}
	refs := s.must(t, configMap("config")).GetOwnerReferences()
	if len(refs) != 1 || refs[0].UID != "owner-2" || refs[0].Name != "billing" {
		t.Errorf("got %v", refs)
	}

	for name, test := range map[string]struct {
		to client.Object
		is error
	}{
		"gone":         {other(func(o *unstructured.Unstructured) { o.SetName("nobody") }), nil},
		"re-created":   {other(func(o *unstructured.Unstructured) { o.SetUID("owner-3") }), nil},
		"no finalizer": {other(func(o *unstructured.Unstructured) { o.SetFinalizers(nil) }), ownership.ErrNoFinalizer},
	} {
		from, to := database(), test.to
		if name == "no finalizer" {
			pass(t, a, configMap("mine"), secret("second"))
			members = []ownership.Ref{ref(secret("second"), "Secret")}
		}
		if _, err := a.HandOver(t.Context(), from, to, members...); err == nil || (test.is != nil && !errors.Is(err, test.is)) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
