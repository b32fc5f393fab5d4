// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/ownership"
	"github.com/ashlar-go/ashlar/ownership/apply"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestNewApplier(t *testing.T) {
	t.Parallel()
	s := newServer(t, true)
	for name, make := range map[string]func() (*apply.Applier, error){
		"no client": func() (*apply.Applier, error) { return apply.New(nil, s.live(), newSet(t)) },
		"no reader": func() (*apply.Applier, error) { return apply.New(s.cache, nil, newSet(t)) },
		"no set":    func() (*apply.Applier, error) { return apply.New(s.cache, s.live(), nil) },
		"settle":    func() (*apply.Applier, error) { return apply.New(s.cache, s.live(), newSet(t), apply.WithSettle(-1)) },
		"parallel":  func() (*apply.Applier, error) { return apply.New(s.cache, s.live(), newSet(t), apply.WithParallel(0)) },
		"propagation": func() (*apply.Applier, error) {
			return apply.New(s.cache, s.live(), newSet(t), apply.WithPropagation("x"))
		},
	} {
		if _, err := make(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := newApplier(t, s).Apply(t.Context(), ownership.Plan{}); err == nil {
		t.Error("a plan without owner: no error")
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	database := databaseKind
	kind := func(k string) schema.GroupVersionKind { return corev1.SchemeGroupVersion.WithKind(k) }
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(database, meta.RESTScopeNamespace)
	m.Add(kind("ConfigMap"), meta.RESTScopeNamespace)
	m.Add(kind("Namespace"), meta.RESTScopeRoot)
	m.AddSpecific(kind("Endpoints"), corev1.SchemeGroupVersion.WithResource("endpoints"), corev1.SchemeGroupVersion.WithResource("endpoints"), meta.RESTScopeNamespace)
	tests := map[string]struct {
		reason string
		kinds  []ownership.Kind
		deny   string
		want   []string
		in     []string
	}{
		"good":          {"nothing to say", []ownership.Kind{{GroupVersionKind: kind("ConfigMap")}}, "", nil, nil},
		"found":         {"others create it", []ownership.Kind{{GroupVersionKind: kind("ConfigMap"), Found: true}}, "create configmaps", nil, nil},
		"found, needed": {"nor is it released", []ownership.Kind{{GroupVersionKind: kind("ConfigMap"), Found: true, NeededByCleanup: true}}, "patch configmaps", nil, nil},
		"found, not":    {"it may be released", []ownership.Kind{{GroupVersionKind: kind("ConfigMap"), Found: true}}, "patch configmaps", []string{"may not patch configmaps"}, nil},
		"in a namespace": {"a Role is enough where it is", []ownership.Kind{{GroupVersionKind: kind("ConfigMap")}}, "patch configmaps b",
			[]string{"may not patch configmaps in namespace b: "}, []string{"a", "b"}},
		"cluster-scoped in a namespace": {"no namespace has it", []ownership.Kind{{GroupVersionKind: kind("Namespace"), Cluster: true}}, "patch namespaces",
			[]string{"may not patch namespaces in the cluster"}, []string{"a"}},
		"not served":    {"a typing mistake", []ownership.Kind{{GroupVersionKind: kind("Configmap")}}, "", []string{"/v1, Kind=Configmap is not served"}, nil},
		"retired":       {"a kind that is gone needs no right", []ownership.Kind{{GroupVersionKind: kind("Old"), Retired: true}}, "", nil, nil},
		"scope":         {"the carrier would be wrong", []ownership.Kind{{GroupVersionKind: kind("Namespace")}}, "", []string{"cluster-scoped but declared namespaced"}, nil},
		"other scope":   {"the carrier would be wrong", []ownership.Kind{{GroupVersionKind: kind("ConfigMap"), Cluster: true}}, "", []string{"namespaced but declared cluster-scoped"}, nil},
		"plural":        {"the rules would name another resource", []ownership.Kind{{GroupVersionKind: kind("Endpoints")}}, "", nil, nil},
		"missing right": {"one sentence per verb", []ownership.Kind{{GroupVersionKind: kind("ConfigMap")}}, "delete configmaps", []string{"may not delete configmaps"}, nil},
		"owner's right": {"adoption reads the owner", []ownership.Kind{{GroupVersionKind: kind("ConfigMap")}}, "get databases", []string{"may not get databases.example.com"}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, err := ownership.New("children", database, test.kinds, ownership.WithFinalizer(finalizer))
			if err != nil {
				t.Fatal(err)
			}
			c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(testScheme()).WithRESTMapper(m).Build(), interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
					u := o.(*unstructured.Unstructured)
					verb, _, _ := unstructured.NestedString(u.Object, "spec", "resourceAttributes", "verb")
					resource, _, _ := unstructured.NestedString(u.Object, "spec", "resourceAttributes", "resource")
					ask := verb + " " + resource
					if ns, _, _ := unstructured.NestedString(u.Object, "spec", "resourceAttributes", "namespace"); ns != "" {
						ask += " " + ns
					}
					return unstructured.SetNestedField(u.Object, ask != test.deny, "status", "allowed")
				}})
			a, err := apply.New(c, c, set)
			if err != nil {
				t.Fatal(err)
			}
			err = a.Check(t.Context(), test.in...)
			if len(test.want) == 0 && err != nil {
				t.Errorf("%s: got %v", test.reason, err)
			}
			for _, w := range test.want {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("%s: got %v, want %q", test.reason, err, w)
				}
			}
		})
	}
}

func TestSweep(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	gone := database()
	gone.SetName("gone")
	gone.SetUID("owner-9")
	anew := database() // the name exists under another uid
	anew.SetUID("owner-0")
	child := func(name string, owner client.Object, age time.Duration, edits ...func(*corev1.Secret)) *corev1.Secret {
		s := secret(name)
		s.UID, s.CreationTimestamp = "uid-"+s.UID, metav1.NewTime(now.Add(-age))
		s.Labels, s.Annotations = newSet(t).Claim(owner)
		for _, e := range edits {
			e(s)
		}
		return s
	}
	yes := true
	objs := []client.Object{database(),
		child("alive", database(), time.Hour), child("leaked", gone, time.Hour), child("leaked-by-name", anew, time.Hour),
		child("young", gone, 9*time.Minute),
		child("controlled", gone, time.Hour, func(s *corev1.Secret) {
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "u9", Controller: &yes}}
		}),
		child("terminating", gone, time.Hour, func(s *corev1.Secret) {
			s.Finalizers, s.DeletionTimestamp = []string{"example.com/x"}, &metav1.Time{Time: now}
		}),
		child("unnamed", gone, time.Hour, func(s *corev1.Secret) { s.Annotations = nil }),
	}
	run := func(s *server, live client.Reader, opts ...apply.Option) (found, failed []string) {
		t.Helper()
		a, err := apply.New(s.cache, live, newSet(t), append(opts, apply.WithClock(func() time.Time { return now }))...)
		if err != nil {
			t.Fatal(err)
		}
		for ref, err := range a.Sweep(t.Context()) {
			if err != nil {
				failed = append(failed, ref.Name)
			} else {
				found = append(found, ref.Name)
			}
		}
		slices.Sort(found)
		return found, failed
	}
	s := newServer(t, true, objs...)
	found, failed := run(s, s.live())
	if fmt.Sprint(found, failed) != "[leaked leaked-by-name] [unnamed]" || len(s.taken()) != 0 {
		t.Errorf("reported %v, failed %v", found, failed)
	}
	found, _ = run(s, s.live(), apply.WithSweepDelete())
	w := s.taken()
	if len(found) != 2 || len(w) != 2 || s.exists(t, secret("leaked")) || !s.exists(t, secret("alive")) {
		t.Errorf("found %v, wrote %v", found, w)
	}
	for _, r := range w {
		if r.UID == "" || r.Version == "" || r.Policy == "" {
			t.Errorf("got %+v", r)
		}
	}
	broken := interceptor.NewClient(newServer(t, true, objs...).WithWatch, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return apierrors.NewInternalError(errors.New("boom"))
		}})
	if found, failed := run(s, broken, apply.WithSweepDelete()); len(found) != 0 || len(failed) != 4 || len(s.taken()) != 0 {
		t.Errorf("an owner that cannot be read is no finding: %v, %v", found, failed)
	}
	a := newApplier(t, s)
	for range a.Sweep(t.Context()) {
		break // the caller may stop
	}
}
