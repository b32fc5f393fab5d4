// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/ownership"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func typedStatefulSet() *appsv1.StatefulSet {
	two := int32(2)
	labels := map[string]string{"app": "orders", "tier": "db"}
	return &appsv1.StatefulSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "x", Labels: labels},
		Spec: appsv1.StatefulSetSpec{Replicas: &two, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "db", Image: "db:1", Args: []string{"-a", "-b"},
				Resources:     corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}},
				LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("http")}}},
			}}}}},
	}
}

// The quick hash spares the encoding of a declaration that has not changed; it must never spare one that has.
func TestMemoryDoesNotHideAChangedDeclaration(t *testing.T) {
	t.Parallel()
	s, err := ownership.New("children", databaseKind, []ownership.Kind{{GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("StatefulSet")}})
	if err != nil {
		t.Fatal(err)
	}
	owner := database()
	known := ownership.Evidence{}
	recall := ownership.Remembering(func(types.UID) (ownership.Evidence, bool) { return known, true })
	created := only(t, plan(t, s, owner, []ownership.Object{typedStatefulSet()}, nil, ownership.Policy{}, recall))
	live := created.Object.(*edited).DeepCopy()
	live.SetUID("c-x")
	live.SetResourceVersion("100")
	known = created.Evidence
	known.ResourceVersion = "100"
	if known.Quick == 0 {
		t.Fatal("no quick hash")
	}
	container := func(o *appsv1.StatefulSet) *corev1.Container { return &o.Spec.Template.Spec.Containers[0] }
	tests := map[string]struct {
		change func(*appsv1.StatefulSet)
		same   bool
	}{
		"nothing":          {func(*appsv1.StatefulSet) {}, true},
		"nil and empty":    {func(o *appsv1.StatefulSet) { o.Annotations = map[string]string{} }, true},
		"left-over status": {func(o *appsv1.StatefulSet) { o.ResourceVersion, o.UID = "7", "u" }, true},
		"pointer":          {func(o *appsv1.StatefulSet) { *o.Spec.Replicas = 3 }, false},
		"pointer gone":     {func(o *appsv1.StatefulSet) { o.Spec.Replicas = nil }, false},
		"text":             {func(o *appsv1.StatefulSet) { container(o).Image = "db:2" }, false},
		"order of a list":  {func(o *appsv1.StatefulSet) { container(o).Args = []string{"-b", "-a"} }, false},
		"shorter list":     {func(o *appsv1.StatefulSet) { container(o).Args = []string{"-a"} }, false},
		"joined texts":     {func(o *appsv1.StatefulSet) { container(o).Args = []string{"-a-b"} }, false},
		"swapped values":   {func(o *appsv1.StatefulSet) { o.Labels = map[string]string{"app": "db", "tier": "orders"} }, false},
		"quantity": {func(o *appsv1.StatefulSet) {
			container(o).Resources.Requests[corev1.ResourceMemory] = resource.MustParse("2Gi")
		}, false},
		"quantity, name": {func(o *appsv1.StatefulSet) {
			container(o).Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1Gi")}
		}, false},
		"int or string": {func(o *appsv1.StatefulSet) { container(o).LivenessProbe.HTTPGet.Port = intstr.FromInt32(80) }, false},
		"moved field":   {func(o *appsv1.StatefulSet) { o.Spec.ServiceName, o.Spec.Template.Spec.Hostname = "y", "" }, false},
		"bool":          {func(o *appsv1.StatefulSet) { o.Spec.Template.Spec.HostNetwork = true }, false},
	}
	for name, test := range tests {
		o := typedStatefulSet()
		test.change(o)
		d := only(t, plan(t, s, owner, []ownership.Object{o}, objects(live), ownership.Policy{}, recall))
		if (d.Verb == ownership.Keep) != test.same {
			t.Errorf("%s: got %s", name, d)
		}
	}
	other := database(func(u *edited) { u.SetName("billing") })
	if d := only(t, plan(t, s, other, []ownership.Object{typedStatefulSet()}, objects(live), ownership.Policy{}, recall)); d.Verb != ownership.Update {
		t.Errorf("another name of the owner: got %s", d)
	}
}
