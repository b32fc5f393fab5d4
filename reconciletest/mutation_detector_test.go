// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/ashlar-go/ashlar/reconciletest"
)

func deployment() *appsv1.Deployment {
	replicas := int32(2)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web", UID: "u1", Labels: map[string]string{"app": "web"},
			Finalizers: []string{"a/x", "b/y", "c/z"}, CreationTimestamp: metav1.Time{Time: time.Unix(1_700_000_000, 0)},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "web", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{
					corev1.ResourceMemory: resource.MustParse("64Mi"),
				}},
			}}}},
		},
	}
}

func detector(t *testing.T, objs ...client.Object) *reconciletest.MutationDetector {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Join(appsv1.AddToScheme(s), corev1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	return reconciletest.NewMutationDetector(fake.NewClientBuilder().WithScheme(s).WithObjects(objs...).Build())
}

var webKey = client.ObjectKey{Namespace: "shop", Name: "web"}

// fields lists what Check names.
func fields(t *testing.T, d *reconciletest.MutationDetector) []string {
	t.Helper()
	err := d.Check()
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("got %T, want joined errors", err)
	}
	var out []string
	for _, e := range joined.Unwrap() {
		var m *reconciletest.MutationError
		if !errors.As(e, &m) {
			t.Fatalf("got %T, want a MutationError", e)
		}
		out = append(out, m.Object+" "+m.Field+" "+m.Was+" → "+m.Is)
	}
	return out
}

func TestMutationDetectorNamesTheField(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		do     func(d *appsv1.Deployment)
		want   []string
	}{
		"nothing": {
			reason: "reading is allowed",
			do: func(d *appsv1.Deployment) {
				_ = d.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().String()
			},
		},
		"label": {
			reason: "maps are shared",
			do:     func(d *appsv1.Deployment) { d.Labels["app"] = "db" },
			want:   []string{`Deployment shop/web metadata.labels[app] "web" → "db"`},
		},
		"new label": {
			reason: "an added key",
			do:     func(d *appsv1.Deployment) { d.Labels["tier"] = "1" },
			want:   []string{`Deployment shop/web metadata.labels[tier] nothing → "1"`},
		},
		"pointer": {
			reason: "what a pointer points to is shared",
			do:     func(d *appsv1.Deployment) { *d.Spec.Replicas = 5 },
			want:   []string{`Deployment shop/web spec.replicas 2 → 5`},
		},
		"compaction in place": {
			reason: "removing from the middle of a shared slice moves the rest for everybody",
			do: func(d *appsv1.Deployment) {
				d.Finalizers = append(d.Finalizers[:0], d.Finalizers[1:]...)
			},
			want: []string{
				`Deployment shop/web metadata.finalizers[0] "a/x" → "b/y"`,
				`Deployment shop/web metadata.finalizers[1] "b/y" → "c/z"`,
			},
		},
		"deep": {
			reason: "the path leads all the way",
			do:     func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "evil" },
			want:   []string{`Deployment shop/web spec.template.spec.containers[0].image "" → "evil"`},
		},
		"quantity": {
			reason: "a quantity is one value, not a struct",
			do: func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory] = resource.MustParse("1Gi")
			},
			want: []string{`Deployment shop/web spec.template.spec.containers[0].resources.limits[memory] "64Mi" → "1Gi"`},
		},
		"scalar of the copy": {
			reason: "the struct is the reader's own, as with a cache",
			do:     func(d *appsv1.Deployment) { d.Generation = 9; d.Labels = map[string]string{} },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := detector(t, deployment())
			got := &appsv1.Deployment{}
			if err := d.Get(t.Context(), webKey, got); err != nil {
				t.Fatal(err)
			}
			tc.do(got)
			if diff := cmp.Diff(tc.want, fields(t, d)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestMutationDetectorSharesLikeACache(t *testing.T) {
	t.Parallel()
	d := detector(t, deployment())
	var first, second appsv1.Deployment
	var list appsv1.DeploymentList
	if err := errors.Join(d.Get(t.Context(), webKey, &first), d.Get(t.Context(), webKey, &second), d.List(t.Context(), &list)); err != nil {
		t.Fatal(err)
	}
	first.Labels["app"] = "db"
	if second.Labels["app"] != "db" || list.Items[0].Labels["app"] != "db" {
		t.Errorf("a second reader got %q, a lister %q: one version of an object is one object", second.Labels["app"], list.Items[0].Labels["app"])
	}
	if got := fields(t, d); len(got) != 1 {
		t.Errorf("got %q, want the one field once", got)
	}
}

// decodingReader writes into the object it is given, as a live client does.
type decodingReader struct {
	client.Reader
	n int
}

func (r *decodingReader) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	r.n++
	data := fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q,"resourceVersion":"%d","labels":{"read":"%d"}}}`, key.Name, key.Namespace, r.n, r.n)
	return json.Unmarshal([]byte(data), obj)
}

func TestMutationDetectorReadingAgainIsNoMutation(t *testing.T) {
	t.Parallel()
	d := reconciletest.NewMutationDetector(&decodingReader{})
	obj := &appsv1.Deployment{}
	for range 2 {
		if err := d.Get(t.Context(), webKey, obj); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Check(); err != nil {
		t.Errorf("the second read overwrote what the first had shared: %v", err)
	}
}

func TestMutationDetectorListedItems(t *testing.T) {
	t.Parallel()
	d := detector(t, deployment())
	var list appsv1.DeploymentList
	if err := d.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	*list.Items[0].Spec.Replicas = 1
	if got := fields(t, d); len(got) != 1 || !strings.Contains(got[0], "spec.replicas 2 → 1") {
		t.Errorf("got %q, want the replicas of the listed item", got)
	}
}

func TestMutationDetectorUnstructured(t *testing.T) {
	t.Parallel()
	d := detector(t, deployment())
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("apps/v1")
	u.SetKind("Deployment")
	if err := d.Get(t.Context(), webKey, u); err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedField(u.Object, "db", "metadata", "labels", "app"); err != nil {
		t.Fatal(err)
	}
	unstructured.RemoveNestedField(u.Object, "spec", "replicas")
	want := []string{
		`Deployment shop/web metadata.labels.app "web" → "db"`,
		`Deployment shop/web spec.replicas 2 → nothing`,
	}
	if diff := cmp.Diff(want, fields(t, d)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMutationDetectorGuardsArguments(t *testing.T) {
	t.Parallel()
	d := reconciletest.NewMutationDetector(nil)
	obj := deployment()
	d.Guard(obj)
	if err := d.Check(); err != nil {
		t.Fatal(err)
	}
	obj.Generation = 3
	obj.CreationTimestamp = metav1.Time{Time: time.Unix(1_700_000_001, 0)}
	want := []string{
		`Deployment shop/web metadata.generation 0 → 3`,
		`Deployment shop/web metadata.creationTimestamp "2023-11-14T22:13:20Z" → "2023-11-14T22:13:21Z"`,
	}
	if diff := cmp.Diff(want, fields(t, d)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMutationDetectorReportsAtMostTenFields(t *testing.T) {
	t.Parallel()
	d := reconciletest.NewMutationDetector(nil)
	obj := deployment()
	d.Guard(obj)
	for _, k := range strings.Split("abcdefghijklmnop", "") {
		obj.Labels[k] = k
	}
	if got := fields(t, d); len(got) != 10 {
		t.Errorf("got %d fields, want 10", len(got))
	}
}

func TestMutationDetectorPassesErrorsOn(t *testing.T) {
	t.Parallel()
	d := detector(t)
	if err := d.Get(t.Context(), webKey, &appsv1.Deployment{}); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("got %v, want the reader's not found", err)
	}
	if err := d.Check(); err != nil {
		t.Errorf("nothing was handed out: %v", err)
	}
}
