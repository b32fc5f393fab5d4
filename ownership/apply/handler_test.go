// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/ownership"
	"github.com/ashlar-go/ashlar/ownership/apply"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// recorder is a queue that keeps what is added.
type recorder struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	got []reconcile.Request
}

func (r *recorder) Add(q reconcile.Request) { r.got = append(r.got, q) }

func req(ns, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: ns, Name: name}}
}

func native(c *corev1.ConfigMap, group, kind, name string) *corev1.ConfigMap {
	yes := true
	c.OwnerReferences = append(c.OwnerReferences, metav1.OwnerReference{APIVersion: group, Kind: kind, Name: name, UID: "owner-1", Controller: &yes})
	return c
}

func TestHandlerMapsEveryCarrier(t *testing.T) {
	t.Parallel()
	set := newSet(t)
	labels, notes := set.Claim(database())
	tests := map[string]struct {
		reason string
		event  any
		want   []reconcile.Request
	}{
		"native":         {"by reference, in the child's namespace", event.CreateEvent{Object: native(configMap("x"), "example.com/v1", "Database", "orders")}, []reconcile.Request{req("team-a", "orders")}},
		"native, old":    {"the version of the reference does not matter", event.GenericEvent{Object: native(configMap("x"), "example.com/v1alpha1", "Database", "orders")}, []reconcile.Request{req("team-a", "orders")}},
		"another group":  {"a kind of the same name in another group", event.CreateEvent{Object: native(configMap("x"), "example.org/v1", "Database", "orders")}, nil},
		"longer group":   {"a group is compared whole", event.CreateEvent{Object: native(configMap("x"), "my.example.com/v1", "Database", "orders")}, nil},
		"core group":     {"no group at all", event.CreateEvent{Object: native(configMap("x"), "v1", "Database", "orders")}, nil},
		"cluster scoped": {"banzaicloud/koperator#186, kudobuilder/kudo#1073: the label claim names the namespace", event.DeleteEvent{Object: &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r", Labels: labels, Annotations: notes}}}, []reconcile.Request{req("team-a", "orders")}},
		"no note":        {"a label alone names nobody", event.DeleteEvent{Object: &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r", Labels: labels}}}, nil},
		"note alone":     {"an orphan keeps its annotation", event.DeleteEvent{Object: &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r", Annotations: notes}}}, nil},
		"update":         {"once, not once per version of the object", event.UpdateEvent{ObjectOld: native(configMap("x"), "example.com/v1", "Database", "orders"), ObjectNew: native(configMap("x"), "example.com/v1", "Database", "orders")}, []reconcile.Request{req("team-a", "orders")}},
		"changed hands":  {"both learn it", event.UpdateEvent{ObjectOld: native(configMap("x"), "example.com/v1", "Database", "orders"), ObjectNew: native(configMap("x"), "example.com/v1", "Database", "billing")}, []reconcile.Request{req("team-a", "orders"), req("team-a", "billing")}},
		"stripped":       {"the former owner learns it", event.UpdateEvent{ObjectOld: native(configMap("x"), "example.com/v1", "Database", "orders"), ObjectNew: configMap("x")}, []reconcile.Request{req("team-a", "orders")}},
		"foreign":        {"nobody's object", event.CreateEvent{Object: configMap("x")}, nil},
		"nothing":        {"events may be empty", event.DeleteEvent{}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newApplier(t, newServer(t, true)).Handler()
			q := &recorder{}
			switch e := test.event.(type) {
			case event.CreateEvent:
				h.Create(t.Context(), e, q)
			case event.UpdateEvent:
				h.Update(t.Context(), e, q)
			case event.DeleteEvent:
				h.Delete(t.Context(), e, q)
			case event.GenericEvent:
				h.Generic(t.Context(), e, q)
			}
			if diff := cmp.Diff(test.want, q.got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.reason, diff)
			}
		})
	}
}

func TestControllerRuntime214HandlerForClusterOwner(t *testing.T) {
	t.Parallel()
	tenant := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Tenant"}
	set, err := ownership.New("tenant", tenant, []ownership.Kind{{GroupVersionKind: rbacv1.SchemeGroupVersion.WithKind("RoleBinding")}}, ownership.WithClusterOwner())
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, true)
	a, err := apply.New(s.cache, s.live(), set)
	if err != nil {
		t.Fatal(err)
	}
	q := &recorder{}
	a.Handler().Create(t.Context(), event.CreateEvent{Object: native(configMap("x"), "example.com/v1", "Tenant", "acme")}, q)
	if diff := cmp.Diff([]reconcile.Request{req("", "acme")}, q.got); diff != "" {
		t.Error(diff)
	}
}

type null struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func (null) Add(reconcile.Request) {}

func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(databaseKind, meta.RESTScopeNamespace)
	return m
}

// BenchmarkHandler compares an update event with controller-runtime's own handler.
func BenchmarkHandler(b *testing.B) {
	e := event.UpdateEvent{ObjectOld: native(configMap("x"), "example.com/v1", "Database", "orders"), ObjectNew: native(configMap("x"), "example.com/v1", "Database", "orders")}
	for name, h := range map[string]handler.EventHandler{
		"ashlar":             newApplier(b, newServer(b, true)).Handler(),
		"controller-runtime": handler.EnqueueRequestForOwner(databaseScheme(), mapper(), database(), handler.OnlyControllerOwner()),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				h.Update(b.Context(), e, null{})
			}
		})
	}
}

// databaseScheme is apart from the shared one, which must not change under parallel tests.
func databaseScheme() *schemeT {
	s := newScheme()
	s.AddKnownTypeWithName(databaseKind, database())
	return s
}

func TestIndexedReadsSeeTheSameChildren(t *testing.T) {
	t.Parallel()
	capture := &indexer{fields: map[string]client.IndexerFunc{}}
	if err := newApplier(t, newServer(t, true)).Index(t.Context(), capture); err != nil {
		t.Fatal(err)
	}
	if len(capture.objs) != len(kinds()) {
		t.Fatalf("%d kinds indexed, want %d", len(capture.objs), len(kinds()))
	}
	s := newServer(t, false, database())
	plain := newApplier(t, s)
	pass(t, plain, append(rich(), job("backup"))...)
	indexed := newIndexedServer(t, capture, s)
	a, err := apply.New(indexed, s.live(), newSet(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Index(t.Context(), &indexer{fields: map[string]client.IndexerFunc{}}); err != nil {
		t.Fatal(err)
	}
	for name, desired := range map[string][]client.Object{"nothing": nil, "all": append(rich(), job("backup"))} {
		for owner, o := range map[string]client.Object{"alive": database(), "terminating": dying()} {
			want, err1 := plain.Plan(t.Context(), o, desired, empty)
			got, err2 := a.Plan(t.Context(), o, desired, empty)
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			if len(want.Decisions) != 7 {
				t.Errorf("%s, owner %s: %d decisions", name, owner, len(want.Decisions))
			}
			// The plain applier wrote the children itself, so only its reasons differ.
			for i := range want.Decisions {
				w, g := want.Decisions[i], got.Decisions[i]
				if w.Verb != g.Verb || w.Ref != g.Ref {
					t.Errorf("%s, owner %s: got %s, want %s", name, owner, g, w)
				}
			}
		}
	}
}

func TestObserver(t *testing.T) {
	t.Parallel()
	s := newServer(t, false, database())
	events := make(chan apply.Event, 10)
	a := newApplier(t, s, apply.WithObserver(func(e apply.Event) { events <- e }), apply.WithClock(time.Now))
	pass(t, a, configMap("config"))
	pass(t, a, configMap("config"))
	if len(events) != 1 {
		t.Fatalf("%d events, want one for the create and none for a converged pass", len(events))
	}
	e := <-events
	if got := e.LogValue().String(); got != "[owner=Database team-a/orders verb=Create object=ConfigMap team-a/config why=does not exist]" {
		t.Errorf("got %s", got)
	}
}
