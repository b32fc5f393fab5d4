// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/ownership"
	"github.com/ashlar-go/ashlar/ownership/apply"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestCreateOnTheWire(t *testing.T) {
	t.Parallel()
	s := newServer(t, false, database())
	a := newApplier(t, s)
	in := configMap("config", "mode", "fast")
	res := pass(t, a, in)
	writes := s.taken()
	if len(writes) != 1 {
		t.Fatalf("got %d writes: %v", len(writes), writes)
	}
	got := writes[0]
	if got.Verb != "apply" || got.Force || got.UID != "" || got.Version != "1" || got.Manager != "children.database.example.com" {
		t.Errorf("got %+v", got)
	}
	md := got.Body["metadata"].(map[string]any)
	hash := md["annotations"].(map[string]any)[ownership.AppliedAnnotation]
	want := map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"mode": "fast"},
		"metadata": map[string]any{
			"name": "config", "namespace": "team-a", "resourceVersion": "1",
			"annotations": map[string]any{ownership.AppliedAnnotation: hash, "ashlar-go.github.io/owner-ref.children": "example.com/v1,Database,team-a,orders"},
			"ownerReferences": []any{map[string]any{"apiVersion": "example.com/v1", "kind": "Database", "name": "orders", "uid": "owner-1",
				"controller": true, "blockOwnerDeletion": true}},
		},
	}
	if diff := cmp.Diff(want, got.Body); diff != "" {
		t.Errorf("the document is not what was declared plus the claim (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(configMap("config", "mode", "fast"), in); diff != "" {
		t.Errorf("the declared object was changed:\n%s", diff)
	}
	if len(res.Objects()) != 1 || res.Objects()[0].GetUID() == "" || res.RequeueAfter != 0 {
		t.Errorf("got objects %v, requeue %s", res.Objects(), res.RequeueAfter)
	}
	if _, ok := res.Objects()[0].(*corev1.ConfigMap); !ok {
		t.Errorf("got a %T, want the Go type the scheme knows", res.Objects()[0])
	}
}

func TestUpdateOnTheWire(t *testing.T) {
	t.Parallel()
	s := newServer(t, false, database())
	a := newApplier(t, s)
	pass(t, a, configMap("config", "mode", "fast"), secret("login"))
	created, login := s.must(t, configMap("config")), s.must(t, secret("login"))
	s.taken()
	changed := secret("login")
	changed.StringData["key"] = "other"
	pass(t, a, configMap("config", "mode", "slow"), changed)
	writes := s.taken()
	if len(writes) != 2 {
		t.Fatalf("got %d writes: %v", len(writes), writes)
	}
	native, label := writes[0], writes[1]
	if !native.Force || native.UID != string(created.GetUID()) || native.Version != created.GetResourceVersion() {
		t.Errorf("a native member is updated by uid and resourceVersion, got %+v", native)
	}
	if !label.Force || label.UID != string(login.GetUID()) || label.Version != login.GetResourceVersion() {
		t.Errorf("a label-carried member is updated by uid and resourceVersion, or a hand-over would be undone, got %+v", label)
	}
	if got := s.must(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "login"}}).(*corev1.Secret); string(got.Data["key"]) != "other" {
		t.Errorf("got data %q", got.Data)
	}
}

// rich holds what usually makes operators write for ever: defaults, quantities, nil slices, empty structs.
func rich() []client.Object {
	replicas := int32(2)
	labels := map[string]string{"app": "orders"}
	pod := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "db", Image: "db:1", Args: []string{"-v"},
			Env:   []corev1.EnvVar{{Name: "MODE", Value: "fast"}},
			Ports: []corev1.ContainerPort{{ContainerPort: 5432}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceMemory: resource.MustParse("1024Mi"), corev1.ResourceCPU: resource.MustParse("1000m")}}}},
		Volumes: []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}}
	return []client.Object{
		configMap("config", "mode", "fast"), secret("login"),
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "orders"}, Spec: corev1.ServiceSpec{
			Selector: labels, Ports: []corev1.ServicePort{{Port: 5432}}}},
		&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "orders"}, Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, ServiceName: "orders", Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: pod}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "orders"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "orders", Namespace: "team-a"}},
			RoleRef:  rbacv1.RoleRef{Kind: "Role", Name: "orders"}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "orders-reader"},
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}}}},
	}
}

// defaulted does to stored children what the API server, controllers and webhooks do.
func defaulted(t *testing.T, s *server) {
	t.Helper()
	sts := s.must(t, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "orders"}}).(*appsv1.StatefulSet)
	c := &sts.Spec.Template.Spec.Containers[0]
	c.ImagePullPolicy, c.Ports[0].Protocol = corev1.PullIfNotPresent, corev1.ProtocolTCP
	c.Env = append(c.Env, corev1.EnvVar{Name: "INJECTED", Value: "1"})
	sts.Spec.Template.Spec.Containers = append([]corev1.Container{{Name: "sidecar", Image: "mesh:1"}}, sts.Spec.Template.Spec.Containers...)
	sts.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists}}
	sts.Spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement
	sts.Annotations["mesh.example.com/injected"] = "true"
	sts.Status = appsv1.StatefulSetStatus{Replicas: 2, ReadyReplicas: 2}
	if err := s.Update(t.Context(), sts); err != nil {
		t.Fatal(err)
	}
	svc := s.must(t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "orders"}}).(*corev1.Service)
	svc.Spec.ClusterIP, svc.Spec.Type, svc.Spec.Ports[0].Protocol = "10.0.0.1", corev1.ServiceTypeClusterIP, corev1.ProtocolTCP
	if err := s.Update(t.Context(), svc); err != nil {
		t.Fatal(err)
	}
	rb := s.must(t, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "orders"}}).(*rbacv1.RoleBinding)
	rb.RoleRef.APIGroup = rbacv1.GroupName
	if err := s.Update(t.Context(), rb); err != nil {
		t.Fatal(err)
	}
}

func TestConvergedSendsNothing(t *testing.T) {
	t.Parallel()
	for name, strip := range map[string]bool{"full cache": false, "cache without managedFields": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, strip, database())
			a := newApplier(t, s)
			res := pass(t, a, rich()...)
			for _, d := range res.Decisions {
				if d.Verb != ownership.Create {
					t.Errorf("got %s", d)
				}
			}
			s.taken()
			pass(t, a, rich()...)
			if w := s.taken(); len(w) != 0 {
				t.Errorf("the second pass wrote %v", w)
			}
			defaulted(t, s)
			pass(t, a, rich()...)
			if w := s.taken(); len(w) != 0 {
				t.Errorf("after defaults and injections the same process wrote %v", w)
			}
			restarted := newApplier(t, s)
			for range 2 {
				pass(t, restarted, rich()...)
				if w := s.taken(); len(w) != 0 || s.gets != 0 {
					t.Errorf("after a restart %d live reads and writes %v", s.gets, w)
				}
			}
		})
	}
}

func TestDriftIsCorrected(t *testing.T) {
	t.Parallel()
	sts := func() *appsv1.StatefulSet {
		return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "orders"}}
	}
	rb := func() *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "orders"}}
	}
	tests := map[string]struct {
		reason string
		drift  func(*testing.T, *server) client.Object
		why    string
	}{
		"scalar": {"a declared scalar", func(t *testing.T, s *server) client.Object {
			o := s.must(t, sts()).(*appsv1.StatefulSet)
			*o.Spec.Replicas = 9
			return o
		}, ".spec.replicas differs"},
		"item of a keyed list": {"found by name behind an injected one", func(t *testing.T, s *server) client.Object {
			o := s.must(t, sts()).(*appsv1.StatefulSet)
			o.Spec.Template.Spec.Containers[1].Image = "db:evil"
			return o
		}, ".spec.template.spec.containers[0].image differs"},
		"removed item": {"a keyed list that lost ours", func(t *testing.T, s *server) client.Object {
			o := s.must(t, sts()).(*appsv1.StatefulSet)
			o.Spec.Template.Spec.Volumes = nil
			return o
		}, ".spec.template.spec.volumes differs"},
		"quantity": {"another amount, not another spelling", func(t *testing.T, s *server) client.Object {
			o := s.must(t, sts()).(*appsv1.StatefulSet)
			o.Spec.Template.Spec.Containers[1].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("2Gi")
			return o
		}, ".spec.template.spec.containers[0].resources.requests.memory differs"},
		"extra subject": {"a whole list: an extra subject is a hole", func(t *testing.T, s *server) client.Object {
			o := s.must(t, rb()).(*rbacv1.RoleBinding)
			o.Subjects = append(o.Subjects, rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "mallory"})
			return o
		}, ".subjects differs"},
		"label claim": {"our label is gone, the reference to the owner by name is not a claim", func(t *testing.T, s *server) client.Object {
			o := s.must(t, secret("login")).(*corev1.Secret)
			o.Data["key"] = []byte("stolen")
			return o
		}, ".data.key differs"},
		"annotation": {"the record of what was applied", func(t *testing.T, s *server) client.Object {
			o := s.must(t, configMap("config")).(*corev1.ConfigMap)
			o.Annotations[ownership.AppliedAnnotation] = "x"
			return o
		}, "the declaration changed"},
	}
	for name, test := range tests {
		for _, strip := range []bool{false, true} {
			for _, restart := range []bool{false, true} {
				s := newServer(t, strip, database())
				a := newApplier(t, s)
				pass(t, a, rich()...)
				defaulted(t, s)
				pass(t, a, rich()...)
				if err := s.Update(t.Context(), test.drift(t, s)); err != nil {
					t.Fatal(err)
				}
				if restart {
					a = newApplier(t, s)
				}
				s.taken()
				var got []string
				for _, d := range pass(t, a, rich()...).Decisions {
					if d.Verb != ownership.Keep {
						got = append(got, d.Verb.String()+": "+d.Why)
					}
				}
				if strings.Join(got, "; ") != "Update: "+test.why {
					t.Errorf("%s (%s; strip %t, restart %t): got %q", name, test.reason, strip, restart, got)
				}
				s.taken()
				pass(t, a, rich()...)
				if w := s.taken(); len(w) != 0 {
					t.Errorf("%s: not settled after one correction: %v", name, w)
				}
			}
		}
	}
}

// Kubernetes has no way to tell an apply "only if it exists": without the guard an unforced apply would take a namesake.
func TestForeignNamesakeIsConflictAndUntouched(t *testing.T) {
	t.Parallel()
	foreign := configMap("config", "theirs", "yes")
	foreign.UID = "foreign"
	for name, visible := range map[string]bool{"seen in the cache": true, "not in the cache": false} {
		s := newServer(t, false, database(), foreign.DeepCopy())
		if !visible {
			s.cache = blind(s)
		}
		a := newApplier(t, s)
		before := s.must(t, configMap("config")).GetResourceVersion()
		res := pass(t, a, configMap("config", "mode", "fast"))
		d := res.Decisions[0]
		if d.Verb != ownership.Conflict || res.RequeueAfter == 0 || len(res.Objects()) != 0 {
			t.Errorf("%s: got %s, requeue %s", name, d, res.RequeueAfter)
		}
		if after := s.must(t, configMap("config")).GetResourceVersion(); after != before {
			t.Errorf("%s: the namesake was written", name)
		}
		want := 0
		if !visible {
			want = 1
		}
		if w := s.taken(); len(w) != want {
			t.Errorf("%s: got writes %v", name, w)
		}
		c := res.Condition("ConfigReady", "ConfigMap")
		if c.Status != metav1.ConditionFalse || c.Reason != apply.ReasonConflict || !strings.Contains(c.Message, "ConfigMap team-a/config") {
			t.Errorf("%s: got condition %v", name, c)
		}
	}
}
