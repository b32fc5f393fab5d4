// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownershiptest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/ownership"
	"github.com/ashlar-go/ashlar/ownership/ownershiptest"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func subject(t *testing.T) ownershiptest.Subject {
	t.Helper()
	set, err := ownership.New("children", corev1.SchemeGroupVersion.WithKind("Service"), []ownership.Kind{
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap")},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret"), Carrier: ownership.Label},
		{GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("StatefulSet")},
		{GroupVersionKind: rbacv1.SchemeGroupVersion.WithKind("RoleBinding")},
		{GroupVersionKind: rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), Cluster: true},
		{GroupVersionKind: batchv1.SchemeGroupVersion.WithKind("Job"), NeededByCleanup: true},
	}, ownership.WithFinalizer("example.com/web"))
	if err != nil {
		t.Fatal(err)
	}
	return ownershiptest.Subject{
		Set: set, Scheme: scheme.Scheme,
		Owner: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "orders", UID: "1"}},
		Desired: func(o client.Object) []client.Object {
			meta := metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName()}
			held := meta
			held.Finalizers = []string{"example.com/slow"}
			labels := map[string]string{"app": o.GetName()}
			return []client.Object{
				&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"mode": "fast"}},
				&corev1.Secret{ObjectMeta: held, StringData: map[string]string{"key": "value"}},
				&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{ServiceName: o.GetName(), Selector: &metav1.LabelSelector{MatchLabels: labels},
					Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
						Containers: []corev1.Container{{Name: "db", Image: "db:1", Args: []string{"-v"}, Env: []corev1.EnvVar{{Name: "A", Value: "b"}}}}}}}},
				&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "r"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "u"}}},
				&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "orders-reader"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, Resources: []string{"nodes"}}}},
				&batchv1.Job{ObjectMeta: meta},
			}
		},
	}
}

func TestCheck(t *testing.T) { ownershiptest.Check(t, subject(t)) }

// failing collects what a law reports.
type failing struct {
	testing.TB
	said []string
}

func (f *failing) Helper()                        {}
func (f *failing) Errorf(format string, a ...any) { f.said = append(f.said, fmt.Sprintf(format, a...)) }
func (f *failing) Fatal(a ...any) {
	f.said = append(f.said, fmt.Sprint(a...))
	runtime.Goexit()
}

func (f *failing) Fatalf(format string, a ...any) { f.Fatal(fmt.Sprintf(format, a...)) }

func TestLawsCanFail(t *testing.T) {
	t.Parallel()
	n := 0
	counting := func(client.Object) []client.Object {
		n++
		return []client.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "x"}, Data: map[string]string{"n": fmt.Sprint(n)}}}
	}
	tests := []struct {
		law, reason string
		desired     func(client.Object) []client.Object
		want        string
	}{
		{"desired objects are legal", "a kind the set does not declare", func(client.Object) []client.Object { return []client.Object{&corev1.Pod{}} }, "kind is not declared"},
		{"desired objects are reproducible", "a counter in the content", counting, "not computed alike twice"},
		{"one pass converges", "a counter in the content", counting, "a second pass would write"},
		{"order does not matter", "a counter in the content", counting, "declared in reverse a pass would write"},
	}
	for _, test := range tests {
		s := subject(t)
		s.Desired = test.desired
		f := &failing{}
		done := make(chan struct{})
		go func() {
			defer close(done)
			ownershiptest.Law(f, test.law, s)
		}()
		<-done
		if got := strings.Join(f.said, "\n"); !strings.Contains(got, test.want) {
			t.Errorf("%s (%s): got %q", test.law, test.reason, got)
		}
	}
}

func TestWorld(t *testing.T) {
	t.Parallel()
	s := subject(t)
	w := &ownershiptest.World{}
	owner := s.Owner.DeepCopyObject().(client.Object)
	owner.SetFinalizers([]string{s.Set.Finalizer()})
	config := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "x"}}
	p, err := s.Set.Plan(owner, []ownership.Object{config}, nil, ownership.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Carry(p); err != nil {
		t.Fatal(err)
	}
	stored := w.Get(p.Decisions[0].Ref)
	if stored == nil || stored.GetUID() == "" || stored.GetResourceVersion() == "" || len(w.Live()) != 1 {
		t.Fatalf("got %v", stored)
	}
	if err := w.Carry(p); err == nil {
		t.Error("a second create of the same object must fail, as on a server")
	}
	p.Decisions[0].Verb, p.Decisions[0].UID = ownership.Prune, "other"
	if err := w.Carry(p); err == nil {
		t.Error("a delete decided on another incarnation must fail")
	}
	p.Decisions[0].UID = stored.GetUID()
	if err := w.Carry(p); err != nil || w.Get(p.Decisions[0].Ref) != nil {
		t.Errorf("got %v", err)
	}
}
