// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/ashlar-go/ashlar/test/controlplane"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	const want = "v1.37.2"
	v, err := client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if v.GitVersion != want || v.Major != "1" || v.Minor != "37" {
		t.Errorf("the API server is %s (%s.%s), want %s", v.GitVersion, v.Major, v.Minor, want)
	}
	if cp.Version() != want {
		t.Errorf("the handle says %s, want %s", cp.Version(), want)
	}
	out, err := exec.CommandContext(t.Context(), cp.Kubectl(), "--kubeconfig", cp.Kubeconfig(), "version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Client Version: "+want) || !strings.Contains(string(out), "Server Version: "+want) {
		t.Errorf("kubectl version: %v\n%s", err, out)
	}
}

func podTemplate(labels map[string]string, restart corev1.RestartPolicy) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       corev1.PodSpec{RestartPolicy: restart, Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
}

func ptr[T any](v T) *T { return &v }

func TestStatefulSetWithVolumes(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	labels := map[string]string{"app": "db"}
	began := time.Now()
	_, err := client.AppsV1().StatefulSets(ns).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr[int32](2), ServiceName: "db", Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: podTemplate(labels, corev1.RestartPolicyAlways),
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "two ready replicas", func(ctx context.Context) (bool, any) {
		set, err := client.AppsV1().StatefulSets(ns).Get(ctx, "db", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return set.Status.ReadyReplicas == 2, set.Status
	})
	t.Logf("ready after %s", time.Since(began).Round(100*time.Millisecond))
	claims, err := client.CoreV1().PersistentVolumeClaims(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(claims.Items) != 2 {
		t.Errorf("there are %d claims, want 2", len(claims.Items))
	}
	for _, c := range claims.Items {
		if c.Status.Phase != corev1.ClaimBound || ptrValue(c.Spec.StorageClassName) != "kwok-volume" {
			t.Errorf("claim %s of class %q is %s", c.Name, ptrValue(c.Spec.StorageClassName), c.Status.Phase)
		}
	}

	// Protection is real: a claim stays as long as a pod uses it, and goes afterwards.
	if err := client.CoreV1().PersistentVolumeClaims(ns).Delete(t.Context(), "data-db-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().PersistentVolumeClaims(ns).Get(t.Context(), "data-db-1", metav1.GetOptions{}); err != nil {
		t.Errorf("the claim in use: %v", err)
	}
	if err := client.AppsV1().StatefulSets(ns).Delete(t.Context(), "db", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the claim is gone after its pod", func(ctx context.Context) (bool, any) {
		_, err := client.CoreV1().PersistentVolumeClaims(ns).Get(ctx, "data-db-1", metav1.GetOptions{})
		return apierrors.IsNotFound(err), err
	})
}

func ptrValue(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func TestJobSucceeds(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	began := time.Now()
	_, err := client.BatchV1().Jobs(ns).Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "backup"},
		Spec:       batchv1.JobSpec{Template: podTemplate(nil, corev1.RestartPolicyNever)},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Job is complete", func(ctx context.Context) (bool, any) {
		job, err := client.BatchV1().Jobs(ns).Get(ctx, "backup", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, c := range job.Status.Conditions {
			if c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue {
				return job.Status.Succeeded == 1, job.Status
			}
		}
		return false, job.Status
	})
	t.Logf("complete after %s", time.Since(began).Round(100*time.Millisecond))
}

// TestForegroundDeletion: the dependent goes first, and the owner waits for it.
func TestForegroundDeletion(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	maps := client.CoreV1().ConfigMaps(ns)
	owner, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "child", Finalizers: []string{"test.example.org/hold"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID, BlockOwnerDeletion: ptr(true)}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(t.Context(), "owner", metav1.DeleteOptions{PropagationPolicy: ptr(metav1.DeletePropagationForeground)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the garbage collector deletes the child", func(ctx context.Context) (bool, any) {
		child, err := maps.Get(ctx, "child", metav1.GetOptions{})
		return err == nil && child.DeletionTimestamp != nil, err
	})
	held, err := maps.Get(t.Context(), "owner", metav1.GetOptions{})
	if err != nil {
		t.Fatalf("the owner did not wait for the child: %v", err)
	}
	if len(held.Finalizers) != 1 || held.Finalizers[0] != metav1.FinalizerDeleteDependents {
		t.Errorf("the owner's finalizers are %v", held.Finalizers)
	}
	_, err = maps.Patch(t.Context(), "child", "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "both are gone", func(ctx context.Context) (bool, any) {
		_, err := maps.Get(ctx, "owner", metav1.GetOptions{})
		return apierrors.IsNotFound(err), err
	})
}

// TestSetupKindsAreCollectedAtOnce: without WithSetup this takes up to thirty seconds.
func TestSetupKindsAreCollectedAtOnce(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	d, err := dynamic.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	owner, err := d.Resource(widgets).Namespace(ns).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "test.example.org/v1", "kind": "Widget", "metadata": map[string]any{"name": "w"},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name:            "child",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "test.example.org/v1", Kind: "Widget", Name: "w", UID: owner.GetUID()}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := d.Resource(widgets).Namespace(ns).Delete(t.Context(), "w", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the child of a custom resource is collected", func(ctx context.Context) (bool, any) {
		_, err := client.CoreV1().ConfigMaps(ns).Get(ctx, "child", metav1.GetOptions{})
		return apierrors.IsNotFound(err), err
	})
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("it took %s: the kind was not known", took)
	}
}

func TestServiceAddressesAreMany(t *testing.T) {
	t.Parallel()
	svc, err := client.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if svc.Spec.ClusterIP != "10.0.0.1" {
		t.Errorf("the API server's Service has %s", svc.Spec.ClusterIP)
	}
	ns := namespace(t)
	_, err = client.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "far"},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.0.200.7", Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Errorf("an address beyond the first 256: %v", err)
	}
}

// TestOutage halts and resumes what a client sees as an outage. It disturbs every other test and runs alone.
func TestOutage(t *testing.T) {
	pid := cp.Pid(controlplane.APIServer)
	if err := cp.Halt(controlplane.APIServer); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err == nil {
		t.Error("a halted API server answers")
	}
	if err := cp.Resume(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Errorf("the same client, after the outage: %v", err)
	}
	if cp.Pid(controlplane.APIServer) == pid {
		t.Error("the process is the same")
	}
	if err := cp.Resume(t.Context(), controlplane.APIServer); err == nil {
		t.Error("resuming what runs is no error")
	}
	for _, c := range []controlplane.Component{controlplane.ControllerManager, controlplane.Kwok, controlplane.Scheduler} {
		if err := cp.Halt(c); err != nil {
			t.Fatal(err)
		}
		if err := cp.Resume(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if err := cp.Err(); err != nil {
		t.Errorf("an outage on purpose was taken for a death: %v", err)
	}
}

func TestEtcdMetrics(t *testing.T) {
	t.Parallel()
	text, err := cp.EtcdMetrics(t.Context())
	if err != nil || !strings.Contains(string(text), "etcd_debugging_mvcc_current_revision") {
		t.Errorf("got %d bytes, %v", len(text), err)
	}
}
