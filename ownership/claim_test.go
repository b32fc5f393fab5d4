// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/ownership"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// The document names one reference, at today's apiVersion, whatever the live object holds: server-side apply merges
// references by uid, so the entry is updated where it stands.
func TestControllerRuntime699OldApiVersionIsUpdatedInPlace(t *testing.T) {
	t.Parallel()
	s, owner := newSet(t), database()
	for name, live := range map[string]*edited{
		"old version": stored(t, s, owner, configMap("x"), func(u *edited) { u.SetOwnerReferences(nil) },
			ref("example.com/v1alpha1", "Database", "orders", "u1", true)),
		"two hand-made references with one uid": stored(t, s, owner, configMap("x"),
			ref("example.com/v1alpha1", "Database", "orders", "u1", false)),
		"not the controller": stored(t, s, owner, configMap("x"), func(u *edited) { u.SetOwnerReferences(nil) },
			ref("example.com/v1", "Database", "orders", "u1", false)),
	} {
		d := only(t, plan(t, s, owner, objects(configMap("x")), objects(live), ownership.Policy{}))
		yes := true
		want := []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Database", Name: "orders", UID: "u1",
			Controller: &yes, BlockOwnerDeletion: &yes}}
		if diff := cmp.Diff(want, d.Object.GetOwnerReferences()); d.Verb != ownership.Update || diff != "" {
			t.Errorf("%s: got %s (-want +got):\n%s", name, d, diff)
		}
	}
}

func TestCrossplane895WrongKindIsHealedByUID(t *testing.T) {
	t.Parallel()
	s, owner := newSet(t), database()
	live := stored(t, s, owner, configMap("x"), func(u *edited) { u.SetOwnerReferences(nil) },
		ref("example.com/v1", "databases", "orders", "u1", true))
	d := only(t, plan(t, s, owner, objects(configMap("x")), objects(live), ownership.Policy{}))
	refs := d.Object.GetOwnerReferences()
	if d.Verb != ownership.Update || len(refs) != 1 || refs[0].Kind != "Database" {
		t.Errorf("got %s with references %v", d, refs)
	}
}

func TestKoperator186OtherNamespaceIsClaimedByLabel(t *testing.T) {
	t.Parallel()
	s, owner := newSet(t), database()
	child := configMap("x", func(u *edited) { u.SetNamespace("team-b") })
	d := only(t, plan(t, s, owner, objects(child), nil, ownership.Policy{}))
	if len(d.Object.GetOwnerReferences()) != 0 || d.Object.GetLabels()[s.LabelKey()] != "u1" {
		t.Errorf("got references %v and labels %v", d.Object.GetOwnerReferences(), d.Object.GetLabels())
	}
	got, ok := s.RequestFor(d.Object)
	if want := (types.NamespacedName{Namespace: "team-a", Name: "orders"}); !ok || got != want {
		t.Errorf("the child maps to %v, want %v", got, want)
	}
}

func TestKudo1073ClusterScopedChildMapsToItsNamespacedOwner(t *testing.T) {
	t.Parallel()
	s, owner := newSet(t), database()
	d := only(t, plan(t, s, owner, objects(object(roleKind, "", "reader")), nil, ownership.Policy{}))
	got, ok := s.RequestFor(d.Object)
	if want := (types.NamespacedName{Namespace: "team-a", Name: "orders"}); !ok || got != want {
		t.Errorf("the child maps to %v, want %v", got, want)
	}
}

func TestControllerRuntime214ClusterOwnerHasNoNamespace(t *testing.T) {
	t.Parallel()
	tenant := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Tenant"}
	s, err := ownership.New("tenant", tenant, []ownership.Kind{{GroupVersionKind: configMapKind}}, ownership.WithClusterOwner())
	if err != nil {
		t.Fatal(err)
	}
	owner := object(tenant, "", "acme", uid("u1"))
	d := only(t, plan(t, s, owner, objects(configMap("x")), nil, ownership.Policy{}))
	if len(d.Object.GetOwnerReferences()) != 1 {
		t.Errorf("a cluster-scoped owner may be named natively, got %v", d.Object.GetOwnerReferences())
	}
	if got, ok := s.RequestFor(d.Object); !ok || got != (types.NamespacedName{Name: "acme"}) {
		t.Errorf("the child maps to %v", got)
	}
}

func TestNeededByCleanupIsNotClaimedNatively(t *testing.T) {
	t.Parallel()
	s, owner := newSet(t), database()
	d := only(t, plan(t, s, owner, objects(object(jobKind, "team-a", "backup")), nil, ownership.Policy{}))
	if len(d.Object.GetOwnerReferences()) != 0 || d.Object.GetLabels()[s.LabelKey()] != "u1" {
		t.Errorf("got references %v and labels %v", d.Object.GetOwnerReferences(), d.Object.GetLabels())
	}
}

func TestOwnerOf(t *testing.T) {
	t.Parallel()
	s := newSet(t)
	db := ownership.Ref{GroupVersionKind: databaseKind, Namespace: "team-a", Name: "orders"}
	tests := map[string]struct {
		reason string
		child  *edited
		want   ownership.Ref
		ok     bool
	}{
		"nobody":               {"no claim at all", configMap("x"), ownership.Ref{}, false},
		"plain owner":          {"an owner that does not control", configMap("x", ref("example.com/v1", "Database", "orders", "u1", false)), ownership.Ref{}, false},
		"controller":           {"the native claim", configMap("x", ref("example.com/v1", "Database", "orders", "u1", true)), db, true},
		"label":                {"the label claim, namespace included", object(roleKind, "", "x", claimed(s, database())), db, true},
		"label without note":   {"nothing says who", configMap("x", label(s.LabelKey(), "u1")), ownership.Ref{}, false},
		"broken note":          {"anybody can edit annotations", configMap("x", label(s.LabelKey(), "u1"), annotation("ashlar-go.github.io/owner-ref.children", "a,b")), ownership.Ref{}, false},
		"broken version":       {"anybody can edit references", configMap("x", ref("a/b/c", "Database", "orders", "u1", true)), ownership.Ref{}, false},
		"note without a claim": {"the claim is gone", configMap("x", annotation("ashlar-go.github.io/owner-ref.children", "example.com/v1,Database,team-a,orders")), ownership.Ref{}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, ok := ownership.OwnerOf(test.child); got != test.want || ok != test.ok {
				t.Errorf("%s: got %v, %v", test.reason, got, ok)
			}
		})
	}
}

// Vectors of kubectl's own tests.
func TestApplySetID(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]ownership.Ref{
		"applyset-0eFHV8ySqp7XoShsGvyWFQD3s96yqwHmzc4e0HR1dsY-v1": {
			GroupVersionKind: secretKind, Namespace: "test", Name: "my-set"},
		"applyset-rhp1a-HVAVT_dFgyEygyA1BEB82HPp2o10UiFTpqtAs-v1": {
			GroupVersionKind: schema.GroupVersionKind{Group: "company.com", Version: "v1", Kind: "ApplySet"}, Name: "my-set"},
	} {
		if got := ownership.ApplySetID(r); got != want {
			t.Errorf("id of %s: got %s, want %s", r, got, want)
		}
	}
}

func TestClaimForTemplates(t *testing.T) {
	t.Parallel()
	s, owner := newSet(t), database(terminating())
	labels, notes := s.Claim(owner)
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "data-0", Labels: labels, Annotations: notes}}
	if !s.Claimed(owner, pvc) || !s.Related(owner, pvc) || s.Claimed(database(uid("u2")), pvc) {
		t.Error("an object with the claim of a template is a member of this owner and of no namesake")
	}
	if want := "example.com/v1,Database,team-a,orders"; notes["ashlar-go.github.io/owner-ref.children"] != want {
		t.Errorf("got annotations %v", notes)
	}
	if strings.Contains(labels[s.LabelKey()], "/") || len(labels) != 1 {
		t.Errorf("got labels %v", labels)
	}
}
