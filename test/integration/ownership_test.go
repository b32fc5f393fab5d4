// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/ashlar-go/ashlar/ownership"
	"github.com/ashlar-go/ashlar/ownership/apply"
)

func TestOwnershipConvergedChildrenCostNothing(t *testing.T) {
	t.Parallel()
	l := newChildLab(t)
	a := l.applier()
	res := l.pass(a, ownership.Policy{}, l.stored()...)
	for _, d := range res.Decisions {
		if d.Verb != ownership.Create {
			t.Errorf("got %s", d)
		}
	}
	if w := l.taken(); len(w) != len(l.stored()) {
		t.Errorf("creating %d children cost %v", len(l.stored()), w)
	}
	l.until("pods are ready", func() bool {
		res = l.pass(a, ownership.Policy{}, l.stored()...)
		return res.Condition("Ready", "StatefulSet").Status == metav1.ConditionTrue && res.Condition("Ready", "Deployment").Status == metav1.ConditionTrue
	})
	if w := l.taken(); len(w) != 0 {
		t.Errorf("while status moved, the process wrote %v", w)
	}
	for _, strip := range []bool{false, true} {
		l.strip = strip
		restarted := l.applier()
		for _, d := range l.pass(restarted, ownership.Policy{}, l.stored()...).Decisions {
			if d.Verb != ownership.Keep {
				t.Errorf("strip %t: %s", strip, d)
			}
		}
		if w := l.taken(); len(w) != 0 {
			t.Errorf("strip %t: a restarted process wrote %v", strip, w)
		}
	}
}

func TestOwnershipDriftAndDroppedFields(t *testing.T) {
	t.Parallel()
	for _, strip := range []bool{false, true} {
		t.Run(fmt.Sprintf("strip-%t", strip), func(t *testing.T) {
			t.Parallel()
			l := newChildLab(t)
			l.strip = strip
			l.pass(l.applier(), ownership.Policy{}, l.stored()...)
			admin := func(change func(), o client.Object) {
				t.Helper()
				l.until("the change is written", func() bool {
					l.get(o)
					change()
					err := cluster.Client.Update(t.Context(), o, client.FieldOwner("admin"))
					if err != nil && !apierrors.IsConflict(err) {
						t.Fatal(err)
					}
					return err == nil
				})
			}
			rb := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "db"}}
			admin(func() {
				rb.Subjects = append(rb.Subjects, rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "mallory"})
			}, rb)
			sts := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "db"}}
			admin(func() {
				sts.Spec.Template.Spec.Containers[0].Image = "registry.example.com/evil:1"
				sts.Spec.Template.Spec.Containers = append(sts.Spec.Template.Spec.Containers, corev1.Container{Name: "sidecar", Image: "registry.example.com/mesh:1"})
			}, sts)
			l.taken()
			a := l.applier()
			got := map[string]string{}
			for _, d := range l.pass(a, ownership.Policy{}, l.stored()...).Decisions {
				if d.Verb != ownership.Keep {
					got[d.Ref.Kind] = d.Verb.String() + " " + d.Why
				}
			}
			if len(got) != 2 || !strings.Contains(got["RoleBinding"], "Update .subjects") || !strings.Contains(got["StatefulSet"], "containers[0].image") {
				t.Errorf("got %v", got)
			}
			l.get(rb)
			l.get(sts)
			if c := sts.Spec.Template.Spec.Containers; len(rb.Subjects) != 2 || len(c) != 2 || c[0].Image != "registry.example.com/db:1" {
				t.Errorf("subjects %v, containers %v", rb.Subjects, c)
			}
			l.taken()
			for range 3 {
				l.pass(a, ownership.Policy{}, l.stored()...)
			}
			if w := l.taken(); len(w) != 0 {
				t.Errorf("an injected sidecar is no drift, wrote %v", w)
			}

			l.pass(a, ownership.Policy{}, l.secret("login", "other", "x"))
			s := l.get(l.secret("login")).(*corev1.Secret)
			if len(s.Data) != 1 || string(s.Data["other"]) != "x" {
				t.Errorf("a dropped key stays: %v", s.Data)
			}
		})
	}
}

func TestOwnershipCreateTouchesNoNamesake(t *testing.T) {
	t.Parallel()
	l := newChildLab(t)
	foreign := l.secret("login", "theirs", "yes")
	foreign.Finalizers = []string{"example.com/slow"}
	if err := cluster.Client.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.until("the namesake is let go", func() bool {
			ctx := context.WithoutCancel(t.Context())
			o := l.secret("login")
			if cluster.Client.Get(ctx, client.ObjectKeyFromObject(o), o) != nil {
				return true
			}
			o.Finalizers = nil
			return cluster.Client.Update(ctx, o) == nil
		})
	})
	// A cache that shows nothing makes every pass a create.
	nothing := interceptor.NewClient(l.c.(client.WithWatch), interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			return apierrors.NewNotFound(corev1.Resource("objects"), key.Name)
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil },
	})
	a, err := apply.New(nothing, cluster.Client, l.set)
	if err != nil {
		t.Fatal(err)
	}
	before := l.get(l.secret("login")).GetResourceVersion()
	res := l.pass(a, ownership.Policy{}, l.secret("login", "ours", "yes"))
	if after := l.get(l.secret("login")); res.Decisions[0].Verb != ownership.Conflict || after.GetResourceVersion() != before {
		t.Errorf("alive: got %s", res.Decisions[0])
	}
	if err := cluster.Client.Delete(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	before = l.get(l.secret("login")).GetResourceVersion()
	res = l.pass(a, ownership.Policy{}, l.secret("login", "ours", "yes"))
	if after := l.get(l.secret("login")); res.Decisions[0].Verb != ownership.Wait || after.GetResourceVersion() != before {
		t.Errorf("terminating: got %s", res.Decisions[0])
	}
	// Two processes create at the same time: one wins, both see a member.
	l.pass(a, ownership.Policy{}, l.secret("race", "k", "v"))
	again := l.pass(a, ownership.Policy{}, l.secret("race", "k", "v"))
	if d := again.Decisions[0]; d.Verb != ownership.Keep || len(again.Objects()) != 1 {
		t.Errorf("got %s", d)
	}
}

func TestOwnershipRecreatedChild(t *testing.T) {
	t.Parallel()
	for name, label := range map[string]bool{"native": false, "label": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newChildLab(t)
			child := func(v string) client.Object {
				if label {
					return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "x", Annotations: map[string]string{"v": v}}}
				}
				return l.secret("x", "v", v)
			}
			a := l.applier()
			l.pass(a, ownership.Policy{}, child("1"))
			for what, race := range map[string]func() error{
				"gone": func() error { return cluster.Client.Delete(t.Context(), child("")) },
				"foreign": func() error {
					return errors.Join(cluster.Client.Delete(t.Context(), child("")), cluster.Client.Create(t.Context(), child("theirs")))
				},
			} {
				once := sync.Once{}
				l.before = func(verb, _ string) (err error) {
					once.Do(func() { err = race() })
					return err
				}
				res := l.pass(a, ownership.Policy{}, child(what))
				want := map[string]ownership.Verb{"gone": ownership.Create, "foreign": ownership.Conflict}[what]
				if d := res.Decisions[0]; d.Verb != want {
					t.Errorf("%s: got %s", what, d)
				}
				l.before = nil
				if what == "foreign" {
					if err := cluster.Client.Delete(t.Context(), child("")); err != nil {
						t.Fatal(err)
					}
					l.pass(a, ownership.Policy{}, child("1"))
				}
			}
		})
	}
}

func TestOwnershipAdoption(t *testing.T) {
	t.Parallel()
	l := newChildLab(t)
	create := func(o client.Object) {
		t.Helper()
		if err := cluster.Client.Create(t.Context(), o, client.FieldOwner("helm")); err != nil {
			t.Fatal(err)
		}
	}
	create(l.secret("same", "k", "v"))
	create(l.secret("differs", "k", "theirs"))
	create(l.secret("raced", "k", "v"))
	// The other controller exists: the garbage collector takes what belongs to nobody.
	other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "second-owner"}}
	create(other)
	l.before = func(verb, name string) error {
		if name != "raced" {
			return nil
		}
		o := l.get(l.secret("raced")).(*corev1.Secret)
		yes := true
		o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: other.Name, UID: other.UID, Controller: &yes}}
		return cluster.Client.Update(t.Context(), o)
	}
	res := l.pass(l.applier(), ownership.Policy{Adopt: true}, l.secret("same", "k", "v"), l.secret("differs", "k", "v"), l.secret("raced", "k", "v"))
	want := []ownership.Verb{ownership.Adopt, ownership.Conflict, ownership.Conflict}
	for i, d := range res.Decisions {
		if d.Verb != want[i] {
			t.Errorf("got %s", d)
		}
		t.Log(d)
	}
	refs := l.get(l.secret("same")).GetOwnerReferences()
	if len(refs) != 1 || refs[0].UID != l.owner.UID {
		t.Errorf("got %v", refs)
	}
	if o := l.get(l.secret("differs")).(*corev1.Secret); string(o.Data["k"]) != "theirs" || len(o.OwnerReferences) != 0 {
		t.Errorf("got %v", o)
	}
}

// A second controller is refused by the server, also without a resourceVersion.
func TestOwnershipSecondControllerIsRefused(t *testing.T) {
	t.Parallel()
	l := newChildLab(t)
	yes := true
	o := l.secret("x", "k", "v")
	o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: l.owner.UID, Controller: &yes}}
	if err := cluster.Client.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	ac := fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x","namespace":%q,"uid":%q,"ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"web","uid":"b7c3a1d2-0000-4000-8000-000000000001","controller":true}]}}`, l.ns, o.UID)
	err := cluster.Client.Patch(t.Context(), o, client.RawPatch("application/apply-patch+yaml", []byte(ac)), client.FieldOwner("second"), client.ForceOwnership)
	var st apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &st) {
		t.Fatalf("got %v", err)
	}
	found := false
	for _, c := range st.Status().Details.Causes {
		found = found || c.Field == "metadata.ownerReferences"
	}
	if !found {
		t.Errorf("got causes %v", st.Status().Details.Causes)
	}
}

func TestOwnershipOldReferenceIsUpdatedInPlace(t *testing.T) {
	t.Parallel()
	l := newChildLab(t)
	a := l.applier()
	l.pass(a, ownership.Policy{}, l.secret("x", "k", "v"))
	o := l.get(l.secret("x")).(*corev1.Secret)
	ours := o.OwnerReferences[0]
	ours.APIVersion = "v1beta7"
	keep := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "second-owner"}}
	if err := cluster.Client.Create(t.Context(), keep); err != nil {
		t.Fatal(err)
	}
	o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: keep.Name, UID: keep.UID}, ours}
	if err := cluster.Client.Update(t.Context(), o, client.FieldOwner("admin")); err != nil {
		t.Fatal(err)
	}
	l.taken()
	for range 3 {
		l.pass(a, ownership.Policy{}, l.secret("x", "k", "v"))
	}
	refs := l.get(l.secret("x")).GetOwnerReferences()
	if len(refs) != 2 || refs[0].UID != keep.UID || refs[1].UID != l.owner.UID || refs[1].APIVersion != "v1" {
		t.Errorf("got %v", refs)
	}
	if w := l.taken(); len(w) != 1 {
		t.Errorf("got %v", w)
	}
}

func TestOwnershipPrune(t *testing.T) {
	t.Parallel()
	l := newChildLab(t)
	a := l.applier()
	empty := ownership.Policy{AllowEmpty: true}
	l.pass(a, ownership.Policy{}, l.secret("a"), l.secret("b"), l.secret("c"))
	once := sync.Once{}
	l.before = func(verb, name string) (err error) {
		switch {
		case verb == "delete" && name == "a":
			once.Do(func() {
				err = errors.Join(cluster.Client.Delete(t.Context(), l.secret("a")), cluster.Client.Create(t.Context(), l.secret("a", "new", "yes")))
			})
		case verb == "delete" && name == "b": // busy
			o := l.get(l.secret("b")).(*corev1.Secret)
			o.Data = map[string][]byte{"busy": []byte(o.ResourceVersion)}
			err = cluster.Client.Update(t.Context(), o)
		}
		return err
	}
	res := l.pass(a, empty)
	if l.gone(l.secret("a")) || !l.gone(l.secret("b")) || !l.gone(l.secret("c")) {
		t.Errorf("got %v", res.Decisions)
	}
	if d := res.Decisions[0]; d.Verb != ownership.Conflict {
		t.Errorf("a new incarnation: got %s", d)
	}
}

func TestOwnershipRelease(t *testing.T) {
	t.Parallel()
	l := newChildLab(t)
	a := l.applier()
	sa := func() *corev1.ServiceAccount {
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "x"}}
	}
	l.pass(a, ownership.Policy{}, sa())
	dying := l.owner.DeepCopy()
	now := metav1.Now()
	dying.DeletionTimestamp = &now
	dying.Finalizers = append(dying.Finalizers, metav1.FinalizerOrphanDependents)
	if res, err := a.Teardown(t.Context(), dying); err != nil || res.Decisions[0].Verb != ownership.Release {
		t.Fatalf("got %v, %v", res.Decisions, err)
	}
	o := l.get(sa())
	if len(o.GetLabels()) != 0 || l.set.Related(l.owner, o) {
		t.Errorf("labels %v, annotations %v", o.GetLabels(), o.GetAnnotations())
	}
	if res, err := a.Teardown(t.Context(), dying); err != nil || !res.Done() {
		t.Errorf("got %v, %v", res.Decisions, err)
	}
}

// The real garbage collector: orphaning strips the references, and a process whose
// view of owner and child is older must not put one back.
func TestOwnershipOrphanedChildrenStayOrphans(t *testing.T) {
	t.Parallel()
	l := newChildLab(t)
	a := l.applier()
	l.pass(a, ownership.Policy{}, l.secret("x", "k", "v"))
	staleOwner := l.get(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "owner"}}).(*corev1.ConfigMap)
	staleChild := l.get(l.secret("x")).(*corev1.Secret)
	if err := cluster.Client.Delete(t.Context(), staleOwner.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
		t.Fatal(err)
	}
	l.until("the reference is stripped", func() bool { return len(l.get(l.secret("x")).GetOwnerReferences()) == 0 })
	old := interceptor.NewClient(l.c.(client.WithWatch), interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			if s, ok := list.(*corev1.SecretList); ok {
				s.Items = []corev1.Secret{*staleChild.DeepCopy()}
			}
			return nil
		},
	})
	b, err := apply.New(old, cluster.Client, l.set)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []ownership.Policy{{}, {Adopt: true}} {
		res, err := b.Sync(t.Context(), staleOwner, []client.Object{l.secret("x", "k", "changed")}, p)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(res.Decisions)
		if o := l.get(l.secret("x")).(*corev1.Secret); len(o.OwnerReferences) != 0 || string(o.Data["k"]) != "v" {
			t.Errorf("the orphan was taken back: %v", o)
		}
	}
	l.until("only our finalizer is left", func() bool {
		o := l.get(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "owner"}})
		return len(o.GetFinalizers()) == 1
	})
	owner := l.get(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "owner"}}).(*corev1.ConfigMap)
	orphaned, known := l.set.Orphaned(owner, []ownership.Object{l.get(l.secret("x"))}, ownership.KindOf(func(o ownership.Object) (schema.GroupVersionKind, error) {
		return cluster.Client.GroupVersionKindFor(o)
	}))
	if !orphaned || !known {
		t.Errorf("orphaned %t, known %t", orphaned, known)
	}
}

// Foreground deletion removes native children before our finalizer let go; what cleanup
// needs is claimed by label and survives until Teardown.
func TestOwnershipForegroundDeletion(t *testing.T) {
	t.Parallel()
	l := newChildLab(t)
	a := l.applier()
	all := l.stored()
	l.pass(a, ownership.Policy{}, all...)
	owner := func() *corev1.ConfigMap {
		return l.get(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "owner"}}).(*corev1.ConfigMap)
	}
	if err := cluster.Client.Delete(t.Context(), owner(), client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	l.until("the collector took the native children", func() bool { return l.gone(l.secret("login")) && l.gone(all[3].DeepCopyObject().(client.Object)) })
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "backup"}}
	if l.gone(job) {
		t.Fatal("what cleanup needs is gone")
	}
	l.taken()
	if _, err := a.Sync(t.Context(), owner(), all, ownership.Policy{}); err != nil {
		t.Fatal(err)
	}
	if w := l.taken(); len(w) != 0 {
		t.Errorf("on a terminating owner wrote %v", w)
	}
	l.until("the teardown is done", func() bool {
		res, err := a.Teardown(t.Context(), owner())
		if err != nil {
			t.Fatal(err)
		}
		return res.Done()
	})
	if !l.gone(job) || !l.gone(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: l.ns}}) {
		t.Error("label-carried children are left")
	}
}

// Volumes get their claim from the template and go through pvc-protection.
func TestOwnershipVolumesOfATemplate(t *testing.T) {
	t.Parallel()
	l := newChildLab(t)
	a := l.applier()
	labels, notes := l.set.Claim(l.owner)
	sts := l.stored()[3].(*appsv1.StatefulSet)
	sts.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data", Labels: labels, Annotations: notes},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}}
	volumes := corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim").GroupKind()
	claims := func() int {
		list := &corev1.PersistentVolumeClaimList{}
		if err := cluster.Client.List(t.Context(), list, client.InNamespace(l.ns), client.MatchingLabels(labels)); err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	l.until("the volumes exist", func() bool {
		l.pass(a, ownership.Policy{}, sts)
		return claims() == 2
	})
	for _, d := range l.pass(a, ownership.Policy{}, sts).Decisions {
		if d.Verb != ownership.Keep {
			t.Errorf("got %s", d)
		}
	}
	l.taken()
	l.pass(l.applier(), ownership.Policy{}, sts)
	if w := l.taken(); len(w) != 0 {
		t.Errorf("a restarted process wrote %v", w)
	}
	owner := l.owner.DeepCopy()
	now := metav1.Now()
	owner.DeletionTimestamp = &now
	if res, err := a.Teardown(t.Context(), owner, appsv1.SchemeGroupVersion.WithKind("StatefulSet").GroupKind()); err != nil || res.Done() {
		t.Fatalf("got %v, %v", res.Decisions, err)
	}
	l.taken()
	l.until("the volumes are gone", func() bool {
		res, err := a.Teardown(t.Context(), owner, volumes)
		if err != nil {
			t.Fatal(err)
		}
		return res.Done()
	})
	if w := l.taken(); len(w) != 2 || claims() != 0 {
		t.Errorf("%d claims left, wrote %v", claims(), w)
	}
}

func TestOwnershipTerminatingNamespace(t *testing.T) {
	t.Parallel()
	l := newChildLab(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.ns}}
	if err := cluster.Client.Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	_, err := l.applier().Sync(t.Context(), l.owner, []client.Object{l.secret("x")}, ownership.Policy{})
	if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("got %v", err)
	}
}

func TestOwnershipCheckAndSweep(t *testing.T) {
	t.Parallel()
	l := newChildLab(t)
	if err := l.applier().Check(t.Context()); err != nil {
		t.Error(err)
	}
	l.pass(l.applier(), ownership.Policy{}, l.stored()...)
	later, err := apply.New(l.c, cluster.Client, l.set, apply.WithClock(func() time.Time { return time.Now().Add(time.Hour) }), apply.WithSweepDelete())
	if err != nil {
		t.Fatal(err)
	}
	find := func(a *apply.Applier) (found []string) {
		for ref, err := range a.Sweep(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if ref.Namespace == l.ns || ref.Name == l.ns {
				found = append(found, ref.String())
			}
		}
		return found
	}
	if found := find(l.applier()); len(found) != 0 {
		t.Errorf("young claims of a living owner: %v", found)
	}
	o := l.owner.DeepCopy()
	l.get(o)
	o.Finalizers = nil
	if err := cluster.Client.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Client.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if found := find(l.applier()); len(found) != 0 {
		t.Errorf("younger than 10 minutes: %v", found)
	}
	if found := find(later); len(found) != 3 {
		t.Errorf("got %v", found)
	}
	l.until("the leaked children are deleted", func() bool {
		return l.gone(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: l.ns}})
	})
}
