// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/ashlar-go/ashlar/ownership"
	"github.com/ashlar-go/ashlar/ownership/apply"
	"github.com/ashlar-go/ashlar/reconciletest"
)

const ownershipFinalizer = "example.com/hold"

// childLab is one owner in a namespace of its own, and a client that counts what the
// applier sends and can strip managedFields, as a cache does.
type childLab struct {
	*testing.T
	ns     string
	owner  *corev1.ConfigMap
	set    *ownership.Set
	c      client.Client
	strip  bool
	judged client.WithWatch // what c sends through

	mu     sync.Mutex
	writes []string
	before func(verb, name string) error
}

func newChildLab(t *testing.T) *childLab {
	t.Helper()
	l := &childLab{T: t, ns: namespace(t.Context(), t)}
	l.owner = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "owner", Finalizers: []string{ownershipFinalizer}}}
	if err := cluster.Client.Create(t.Context(), l.owner); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		o := l.owner.DeepCopy()
		if cluster.Client.Get(context.WithoutCancel(t.Context()), client.ObjectKeyFromObject(o), o) == nil {
			o.Finalizers = nil
			_ = cluster.Client.Update(context.WithoutCancel(t.Context()), o)
		}
	})
	set, err := ownership.New("lab", corev1.SchemeGroupVersion.WithKind("ConfigMap"), []ownership.Kind{
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret")},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Service")},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ServiceAccount"), Carrier: ownership.Label},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), Carrier: ownership.Label},
		{GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("StatefulSet")},
		{GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("Deployment")},
		{GroupVersionKind: rbacv1.SchemeGroupVersion.WithKind("RoleBinding")},
		{GroupVersionKind: rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), Cluster: true},
		{GroupVersionKind: batchv1.SchemeGroupVersion.WithKind("Job"), NeededByCleanup: true},
	}, ownership.WithFinalizer(ownershipFinalizer))
	if err != nil {
		t.Fatal(err)
	}
	l.set = set
	// Everything an applier sends is held against the laws of writing, on the wire.
	laws := reconciletest.NewLawTransport(t, nil)
	config := cluster.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return laws.Wrap(next) })
	judged, err := client.NewWithWatch(config, client.Options{Scheme: cluster.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	l.judged = judged
	l.c = l.client(judged)
	return l
}

func (l *childLab) client(c client.WithWatch) client.Client {
	note := func(verb, name string) error {
		l.mu.Lock()
		l.writes = append(l.writes, verb+" "+name)
		f := l.before
		l.mu.Unlock()
		if f != nil {
			return f(verb, name)
		}
		return nil
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, o, opts...)
			if l.strip {
				o.SetManagedFields(nil)
			}
			return err
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			if err == nil && l.strip {
				err = meta.EachListItem(list, func(o runtime.Object) error {
					o.(client.Object).SetManagedFields(nil)
					return nil
				})
			}
			return err
		},
		Apply: func(ctx context.Context, c client.WithWatch, ac runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			name := "?"
			if n, ok := ac.(interface{ GetName() string }); ok {
				name = n.GetName()
			}
			if err := note("apply", name); err != nil {
				return err
			}
			return c.Apply(ctx, ac, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := note("delete", o.GetName()); err != nil {
				return err
			}
			return c.Delete(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := note("patch", o.GetName()); err != nil {
				return err
			}
			return c.Patch(ctx, o, p, opts...)
		},
	})
}

func (l *childLab) applier() *apply.Applier {
	l.Helper()
	a, err := apply.New(l.c, cluster.Client, l.set)
	if err != nil {
		l.Fatal(err)
	}
	return a
}

// taken returns the writes so far and forgets them.
func (l *childLab) taken() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.writes
	l.writes = nil
	return w
}

func (l *childLab) pass(a *apply.Applier, p ownership.Policy, desired ...client.Object) apply.Result {
	l.Helper()
	res, err := a.Sync(l.Context(), l.owner, desired, p)
	if err != nil {
		l.Fatal(err)
	}
	return res
}

func (l *childLab) secret(name string, kv ...string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: name}, StringData: map[string]string{}}
	for i := 0; i+1 < len(kv); i += 2 {
		s.StringData[kv[i]] = kv[i+1]
	}
	return s
}

func (l *childLab) get(o client.Object) client.Object {
	l.Helper()
	if err := cluster.Client.Get(l.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		l.Fatal(err)
	}
	return o
}

func (l *childLab) gone(o client.Object) bool {
	l.Helper()
	err := cluster.Client.Get(l.Context(), client.ObjectKeyFromObject(o), o)
	if err != nil && !apierrors.IsNotFound(err) {
		l.Fatal(err)
	}
	return err != nil
}

func (l *childLab) until(what string, check func() bool) {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), patience)
	defer cancel()
	for tick := time.NewTicker(100 * time.Millisecond); !check(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			l.Fatalf("waited in vain until %s", what)
		}
	}
}

// stored are children that come back from the server with defaults, canonical
// quantities, allocated fields and a status.
func (l *childLab) stored() []client.Object {
	replicas := int32(2)
	labels := map[string]string{"app": l.ns}
	off := false
	pod := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
		AutomountServiceAccountToken: &off,
		Containers: []corev1.Container{{Name: "db", Image: "registry.example.com/db:1", Args: []string{"-v"},
			Env:   []corev1.EnvVar{{Name: "MODE", Value: "fast"}, {Name: "POD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}},
			Ports: []corev1.ContainerPort{{ContainerPort: 5432}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceMemory: resource.MustParse("0.5Gi"), corev1.ResourceCPU: resource.MustParse("0.1")}},
			VolumeMounts: []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}}}},
		Volumes: []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}}
	return []client.Object{
		l.secret("login", "key", "value"),
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "db"}, Spec: corev1.ServiceSpec{
			Selector: labels, ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Name: "pg", Port: 5432}}}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "db"}},
		&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "db"}, Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, ServiceName: "db", Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: pod}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "web"}, Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: pod}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "db"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "db", Namespace: l.ns}, {Kind: "User", Name: "someone"}},
			RoleRef:  rbacv1.RoleRef{Kind: "Role", Name: "db"}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: l.ns},
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}}}},
		&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "backup"}, Spec: batchv1.JobSpec{
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: &off,
				Containers: []corev1.Container{{Name: "b", Image: "registry.example.com/b:1"}}}}}},
	}
}
