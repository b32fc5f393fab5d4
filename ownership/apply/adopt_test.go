// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ashlar-go/ashlar/ownership"
	"github.com/ashlar-go/ashlar/ownership/apply"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func orphan(name string) *corev1.ConfigMap {
	c := configMap(name, "mode", "fast")
	c.UID = "orphan-" + c.UID
	return c
}

func TestKubernetes42639AdoptionChecksTheLiveOwnerOnce(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	dying := database()
	dying.SetDeletionTimestamp(&now)
	anew := database()
	anew.SetUID("owner-2")
	var objs, desired []client.Object
	for i := range 20 {
		objs = append(objs, orphan(fmt.Sprintf("c%02d", i)))
		desired = append(desired, configMap(fmt.Sprintf("c%02d", i), "mode", "fast"))
	}
	tests := map[string]struct {
		reason string
		owner  client.Object
		adopts int
	}{
		"alive":       {"the cached owner is right", database(), 20},
		"terminating": {"what it adopts would be collected with it", dying, 0},
		"re-created":  {"the cached owner does not exist any more", anew, 0},
		"gone":        {"nobody to own them", nil, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := objs
			if test.owner != nil {
				all = append([]client.Object{test.owner}, objs...)
			}
			s := newServer(t, false, all...)
			a := newApplier(t, s)
			res, err := a.Sync(t.Context(), database(), desired, ownership.Policy{Adopt: true})
			if err != nil {
				t.Fatal(err)
			}
			if s.gets != 1 {
				t.Errorf("%s: %d live reads for 20 orphans, want 1", test.reason, s.gets)
			}
			w := s.taken()
			if len(w) != test.adopts || len(res.Objects()) != test.adopts {
				t.Errorf("%s: got %d writes, %d objects, want %d: %v", test.reason, len(w), len(res.Objects()), test.adopts, res.Decisions[0])
			}
			for _, r := range w {
				if r.Force || r.UID == "" || r.Version == "" {
					t.Errorf("an adoption is unforced and names what it was decided on, got %+v", r)
				}
			}
		})
	}
}

func TestAdoptionNeverOverrulesAnotherManager(t *testing.T) {
	t.Parallel()
	s := newServer(t, false, database())
	theirs := configMap("config", "mode", "theirs")
	if err := s.Create(t.Context(), theirs, client.FieldOwner("helm")); err != nil {
		t.Fatal(err)
	}
	a := newApplier(t, s)
	res, err := a.Sync(t.Context(), database(), []client.Object{configMap("config", "mode", "ours")}, ownership.Policy{Adopt: true})
	if err != nil {
		t.Fatal(err)
	}
	d := res.Decisions[0]
	if d.Verb != ownership.Conflict || !strings.Contains(d.Why, "helm") {
		t.Errorf("got %s", d)
	}
	if got := s.must(t, configMap("config")).(*corev1.ConfigMap); got.Data["mode"] != "theirs" || len(got.OwnerReferences) != 0 {
		t.Errorf("got %v", got)
	}
}

// Someone else becomes the controller between our read and our write.
func TestAdoptionRaceIsConflict(t *testing.T) {
	t.Parallel()
	s := newServer(t, false, database(), orphan("config"))
	var once atomic.Bool
	s.before = func(r *request) error {
		if once.CompareAndSwap(false, true) {
			o := s.must(t, configMap("config")).(*corev1.ConfigMap)
			yes := true
			o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "u9", Controller: &yes}}
			return s.Update(t.Context(), o)
		}
		return nil
	}
	a := newApplier(t, s)
	res, err := a.Sync(t.Context(), database(), []client.Object{configMap("config", "mode", "fast")}, ownership.Policy{Adopt: true})
	if err != nil {
		t.Fatal(err)
	}
	if d := res.Decisions[0]; d.Verb != ownership.Conflict || !strings.Contains(d.Why, "Deployment team-a/web") {
		t.Errorf("got %s", d)
	}
	if w := s.taken(); len(w) != 1 {
		t.Errorf("got writes %v", w)
	}
}

const blockingRefused = "configmaps \"config\" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>"

func TestOperatorSDK4020BlockOwnerDeletionDegrades(t *testing.T) {
	t.Parallel()
	s := newServer(t, false, database())
	refused := 0
	s.before = func(r *request) error {
		for _, ref := range r.Body["metadata"].(map[string]any)["ownerReferences"].([]any) {
			if ref.(map[string]any)["blockOwnerDeletion"] == true {
				refused++
				return apierrors.NewForbidden(corev1.Resource("configmaps"), r.Name, errors.New(blockingRefused))
			}
		}
		return nil
	}
	a := newApplier(t, s, apply.WithParallel(1))
	desired := []client.Object{configMap("a"), configMap("b")}
	if _, err := a.Sync(t.Context(), database(), desired, ownership.Policy{}); err != nil {
		t.Fatal(err)
	}
	if refused != 1 {
		t.Errorf("%d refusals, the second child should be spared", refused)
	}
	for _, n := range []string{"a", "b"} {
		refs := s.must(t, configMap(n)).GetOwnerReferences()
		if len(refs) != 1 || refs[0].BlockOwnerDeletion == nil || *refs[0].BlockOwnerDeletion || !*refs[0].Controller {
			t.Errorf("%s: got references %v", n, refs)
		}
	}
	for _, b := range []*apply.Applier{a, newApplier(t, s)} {
		s.taken()
		if _, err := b.Sync(t.Context(), database(), desired, ownership.Policy{}); err != nil {
			t.Fatal(err)
		}
		if w := s.taken(); len(w) != 0 {
			t.Errorf("a reference without blocking is no difference, got writes %v", w)
		}
	}
}

func TestOperatorSDK4020MissingRuleIsNamed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ answer, want string }{
		"finalizers": {blockingRefused, `update on databases/finalizers in group "example.com"`},
		"delete":     {"cannot set an ownerRef on a resource you can't delete: , <nil>", `delete on configmaps in group ""`},
	} {
		s := newServer(t, false, database())
		s.before = func(r *request) error {
			return apierrors.NewForbidden(corev1.Resource("configmaps"), r.Name, errors.New(test.answer))
		}
		a := newApplier(t, s)
		_, err := a.Sync(t.Context(), database(), []client.Object{configMap("config")}, ownership.Policy{})
		if !errors.Is(err, apply.ErrForbiddenReference) || !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// The server merges references by uid: others keep their places.
func TestUpdateKeepsOtherReferencesInPlace(t *testing.T) {
	t.Parallel()
	s := newServer(t, false, database())
	a := newApplier(t, s)
	pass(t, a, configMap("config", "mode", "fast"))
	o := s.must(t, configMap("config")).(*corev1.ConfigMap)
	ours := o.OwnerReferences[0]
	ours.APIVersion = "example.com/v1alpha1"
	o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "n1"}, ours, {APIVersion: "v1", Kind: "Node", Name: "n2", UID: "n2"}}
	if err := s.Update(t.Context(), o, client.FieldOwner("other")); err != nil {
		t.Fatal(err)
	}
	pass(t, a, configMap("config", "mode", "fast"))
	refs := s.must(t, configMap("config")).GetOwnerReferences()
	if len(refs) != 3 || refs[0].UID != "n1" || refs[1].UID != "owner-1" || refs[1].APIVersion != "example.com/v1" || refs[2].UID != "n2" {
		t.Errorf("got %v", refs)
	}
}

// wso2/apk#1779: the same reference again and again.
func TestAPK1779ReferencesAreNotRepeated(t *testing.T) {
	t.Parallel()
	s := newServer(t, false, database())
	for i := range 5 {
		pass(t, newApplier(t, s), configMap("config", "n", fmt.Sprint(i)))
	}
	if refs := s.must(t, configMap("config")).GetOwnerReferences(); len(refs) != 1 {
		t.Errorf("got %v", refs)
	}
}

// A former owner's child left behind: taken over only when the policy says so, and its reference replaced.
func TestAdoptFromADeletedNamesake(t *testing.T) {
	t.Parallel()
	former := database()
	former.SetUID("owner-0")
	s := newServer(t, false, database())
	if _, err := newApplier(t, s).Sync(t.Context(), former, []client.Object{configMap("config", "mode", "fast")}, ownership.Policy{}); err != nil {
		t.Fatal(err)
	}
	res := pass(t, newApplier(t, s), configMap("config", "mode", "slow"))
	if d := res.Decisions[0]; d.Verb != ownership.Wait || res.RequeueAfter == 0 {
		t.Errorf("got %s, requeue %s", d, res.RequeueAfter)
	}
	s.taken()
	if _, err := newApplier(t, s).Sync(t.Context(), database(), []client.Object{configMap("config", "mode", "slow")}, ownership.Policy{Adopt: true}); err != nil {
		t.Fatal(err)
	}
	w := s.taken()
	if len(w) != 1 || w[0].Force {
		t.Errorf("got writes %v", w)
	}
}
