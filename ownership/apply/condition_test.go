// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/ownership"
	"github.com/ashlar-go/ashlar/ownership/apply"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestConditionReasons(t *testing.T) {
	t.Parallel()
	foreign := configMap("taken")
	foreign.UID = "foreign"
	leaving := configMap("leaving")
	leaving.UID, leaving.Finalizers = "leaving", []string{"example.com/slow"}
	s := newServer(t, false, database(), foreign, leaving)
	if err := s.Delete(t.Context(), leaving.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	s.before = func(r *request) error {
		if r.Name == "broken" {
			return apierrors.NewInternalError(errors.New("boom"))
		}
		return nil
	}
	a := newApplier(t, s)
	tests := map[string]struct {
		reason  string
		desired []client.Object
		kind    string
		status  metav1.ConditionStatus
		why     string
		text    string
	}{
		"applied":        {"all there", []client.Object{configMap("a"), configMap("b")}, "ConfigMap", metav1.ConditionTrue, apply.ReasonApplied, "2 ConfigMap"},
		"none desired":   {"nothing is missing", []client.Object{configMap("a")}, "Job", metav1.ConditionTrue, apply.ReasonNoneDesired, "no Job"},
		"undeclared":     {"a typing mistake must not read as health", nil, "Configmap", metav1.ConditionUnknown, apply.ReasonNotApplied, "declares no kind Configmap"},
		"with group":     {"two groups may share a kind", []client.Object{configMap("a")}, "ConfigMap.", metav1.ConditionTrue, apply.ReasonApplied, ""},
		"other group":    {"two groups may share a kind", []client.Object{configMap("a")}, "StatefulSet.example.com", metav1.ConditionUnknown, apply.ReasonNotApplied, ""},
		"conflict":       {"the object is named", []client.Object{configMap("a"), configMap("taken")}, "ConfigMap", metav1.ConditionFalse, apply.ReasonConflict, "ConfigMap team-a/taken"},
		"leaving":        {"the name is still taken", []client.Object{configMap("leaving")}, "ConfigMap", metav1.ConditionFalse, apply.ReasonWaiting, "ConfigMap team-a/leaving: terminating"},
		"failed request": {"worse than a conflict", []client.Object{configMap("taken"), configMap("broken")}, "ConfigMap", metav1.ConditionFalse, apply.ReasonApplyFailed, "create ConfigMap team-a/broken"},
		"not current":    {"applied is not enough", []client.Object{job("backup")}, "Job", metav1.ConditionFalse, apply.ReasonWaiting, "Job team-a/backup: not started"},
	}
	for name, test := range tests {
		res, _ := a.Sync(t.Context(), database(), test.desired, ownership.Policy{AllowEmpty: true})
		c := res.Condition("X", test.kind)
		if c.Type != "X" || c.Status != test.status || c.Reason != test.why || !strings.Contains(c.Message, test.text) || c.ObservedGeneration != 7 {
			t.Errorf("%s (%s): got %+v", name, test.reason, c)
		}
	}
	res, err := a.Sync(t.Context(), database(), []client.Object{configMap("")}, ownership.Policy{})
	if c := res.Condition("X", "ConfigMap"); err == nil || c.Status != metav1.ConditionUnknown || c.Reason != apply.ReasonNotApplied || c.ObservedGeneration != 7 {
		t.Errorf("a pass that planned nothing: got %+v, %v", c, err)
	}
}

// TestCurrent holds Condition against the rules kstatus publishes, on replies as a server would give them.
func TestCurrent(t *testing.T) {
	t.Parallel()
	two := int32(2)
	meta1 := metav1.ObjectMeta{Namespace: "team-a", Name: "x"}
	sts := func(st appsv1.StatefulSetStatus) client.Object {
		return &appsv1.StatefulSet{ObjectMeta: meta1, Spec: appsv1.StatefulSetSpec{Replicas: &two}, Status: st}
	}
	dep := func(st appsv1.DeploymentStatus) client.Object {
		d := int32(600)
		return &appsv1.Deployment{ObjectMeta: meta1, Spec: appsv1.DeploymentSpec{Replicas: &two, ProgressDeadlineSeconds: &d}, Status: st}
	}
	widget := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	custom := func(status map[string]any) client.Object {
		u := &unstructured.Unstructured{Object: map[string]any{"status": status}}
		u.SetGroupVersionKind(widget)
		u.SetNamespace("team-a")
		u.SetName("x")
		u.SetGeneration(3)
		return u
	}
	cond := func(typ, status string) map[string]any {
		return map[string]any{"conditions": []any{map[string]any{"type": typ, "status": status, "reason": "R", "message": "because"}}}
	}
	tests := map[string]struct {
		reason string
		obj    client.Object
		want   string // "" is current
	}{
		"statefulset, nothing yet":   {"no status at all", sts(appsv1.StatefulSetStatus{}), "0 of 2 replicas exist"},
		"statefulset, not ready":     {"pods exist", sts(appsv1.StatefulSetStatus{Replicas: 2, ReadyReplicas: 1}), "1 of 2 replicas are ready"},
		"statefulset, too many":      {"scaling down", sts(appsv1.StatefulSetStatus{Replicas: 3, ReadyReplicas: 3}), "1 replicas too many"},
		"statefulset, rolling":       {"two revisions", sts(appsv1.StatefulSetStatus{Replicas: 2, ReadyReplicas: 2, CurrentReplicas: 2, CurrentRevision: "a", UpdateRevision: "b"}), "a new revision"},
		"statefulset, ready":         {"done", sts(appsv1.StatefulSetStatus{Replicas: 2, ReadyReplicas: 2, CurrentReplicas: 2, CurrentRevision: "a", UpdateRevision: "a"}), ""},
		"deployment, old generation": {"the controller has not looked yet", dep(appsv1.DeploymentStatus{ObservedGeneration: 2}), "generation 1 is not observed yet"},
		"deployment, deadline": {"it says so itself", dep(appsv1.DeploymentStatus{ObservedGeneration: 1, Conditions: []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded", Message: "too slow"}}}), "Failed too slow"},
		"deployment, unavailable": {"replicas are not enough", dep(appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2}), "0 of 2 replicas are available"},
		"deployment, ready": {"done", dep(appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2, Conditions: []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable"}, {Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue}}}), ""},
		"daemonset, unobserved": {"kstatus asks for it", &appsv1.DaemonSet{ObjectMeta: meta1}, "not observed yet"},
		"daemonset, ready":      {"done", &appsv1.DaemonSet{ObjectMeta: meta1, Status: appsv1.DaemonSetStatus{ObservedGeneration: 1, DesiredNumberScheduled: 1, CurrentNumberScheduled: 1, UpdatedNumberScheduled: 1, NumberAvailable: 1, NumberReady: 1}}, ""},
		"replicaset":            {"too few", &appsv1.ReplicaSet{ObjectMeta: meta1, Spec: appsv1.ReplicaSetSpec{Replicas: &two}, Status: appsv1.ReplicaSetStatus{FullyLabeledReplicas: 2}}, "availableReplicas is 0 of 2"},
		"job, failed":           {"its condition", &batchv1.Job{ObjectMeta: meta1, Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Message: "no"}}}}, "Failed no"},
		"job, running":          {"kstatus calls a started job current", &batchv1.Job{ObjectMeta: meta1, Status: batchv1.JobStatus{StartTime: &metav1.Time{Time: metav1.Now().Time}}}, ""},
		"pod, pending":          {"a phase", &corev1.Pod{ObjectMeta: meta1, Status: corev1.PodStatus{Phase: corev1.PodPending}}, "phase is Pending"},
		"pod, running":          {"running is not ready", &corev1.Pod{ObjectMeta: meta1, Status: corev1.PodStatus{Phase: corev1.PodRunning}}, "running, not ready"},
		"pod, crash loop": {"it will not get better by itself", &corev1.Pod{ObjectMeta: meta1, Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
			{Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}}}, "Failed container c is in a crash loop"},
		"pod, ready":          {"done", &corev1.Pod{ObjectMeta: meta1, Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}, ""},
		"claim, pending":      {"a phase", &corev1.PersistentVolumeClaim{ObjectMeta: meta1, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}}, "phase is Pending"},
		"claim, bound":        {"done", &corev1.PersistentVolumeClaim{ObjectMeta: meta1, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}, ""},
		"load balancer":       {"no address", &corev1.Service{ObjectMeta: meta1, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}, "no cluster IP"},
		"service":             {"nothing to wait for", &corev1.Service{ObjectMeta: meta1}, ""},
		"custom, silent":      {"a kind without conditions is current", custom(map[string]any{}), ""},
		"custom, unobserved":  {"cluster-api#9299: an old observation is not current", custom(map[string]any{"observedGeneration": int64(2)}), "generation 3 is not observed yet, 2 is"},
		"custom, reconciling": {"abnormal-true", custom(cond("Reconciling", "True")), "because"},
		"custom, stalled":     {"abnormal-true", custom(cond("Stalled", "True")), "Failed because"},
		"custom, not ready":   {"the last resort", custom(cond("Ready", "Unknown")), "because"},
		"custom, ready":       {"the last resort", custom(cond("Ready", "True")), ""},
		"custom, other":       {"an unknown condition says nothing", custom(cond("Synced", "False")), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.obj.GetGeneration() == 0 {
				test.obj.SetGeneration(1)
			}
			c := conditionOf(t, test.obj)
			want := metav1.ConditionFalse
			if test.want == "" {
				want = metav1.ConditionTrue
			}
			got := strings.TrimPrefix(c.Message, test.obj.GetObjectKind().GroupVersionKind().Kind)
			if c.Reason == apply.ReasonFailed {
				got = "Failed " + got
			}
			text, failed := strings.CutPrefix(test.want, "Failed ")
			if c.Status != want || !strings.Contains(got, text) || failed != (c.Reason == apply.ReasonFailed) {
				t.Errorf("%s: got %s %s: %s", test.reason, c.Status, c.Reason, c.Message)
			}
		})
	}
}
