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
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var empty = ownership.Policy{AllowEmpty: true}

func job(name string) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}}
}

// kubernetes/client-go#495: without a policy the server leaves the pods of a Job behind.
func TestClientGo495EveryDeleteNamesPolicyUIDAndVersion(t *testing.T) {
	t.Parallel()
	s := newServer(t, false, database())
	a := newApplier(t, s)
	pass(t, a, job("backup"), configMap("config"), secret("login"))
	s.taken()
	if _, err := a.Sync(t.Context(), database(), nil, empty); err != nil {
		t.Fatal(err)
	}
	w := s.taken()
	if len(w) != 3 {
		t.Fatalf("got %v", w)
	}
	for _, r := range w {
		if r.Verb != "delete" || r.Policy != string(metav1.DeletePropagationBackground) || r.UID == "" || r.Version == "" {
			t.Errorf("got %+v", r)
		}
	}
	s2 := newServer(t, false, database())
	b := newApplier(t, s2, apply.WithPropagation(metav1.DeletePropagationForeground))
	pass(t, b, job("backup"))
	s2.taken()
	if _, err := b.Sync(t.Context(), database(), nil, empty); err != nil {
		t.Fatal(err)
	}
	if w := s2.taken(); len(w) != 1 || w[0].Policy != string(metav1.DeletePropagationForeground) {
		t.Errorf("got %v", w)
	}
}

// The member of the list was deleted and created anew by somebody else before our DELETE arrived.
func TestKroApplySetNewIncarnationSurvives(t *testing.T) {
	t.Parallel()
	s := newServer(t, false, database())
	a := newApplier(t, s)
	pass(t, a, configMap("config"))
	var once atomic.Bool
	s.before = func(r *request) error {
		if r.Verb == "delete" && once.CompareAndSwap(false, true) {
			if err := s.Delete(t.Context(), configMap("config")); err != nil {
				return err
			}
			anew := configMap("config", "new", "yes")
			anew.UID = "anew"
			return s.Create(t.Context(), anew)
		}
		return nil
	}
	res, err := a.Sync(t.Context(), database(), nil, empty)
	if err != nil {
		t.Fatal(err)
	}
	if d := res.Decisions[0]; d.Verb != ownership.Conflict || !strings.Contains(d.Why, "created anew") {
		t.Errorf("got %s", d)
	}
	if !s.exists(t, configMap("config")) {
		t.Error("the new incarnation was deleted")
	}
}

func TestPruneConflict(t *testing.T) {
	t.Parallel()
	touch := func(t *testing.T, s *server) {
		o := s.must(t, configMap("config")).(*corev1.ConfigMap)
		o.Data = map[string]string{"touched": o.ResourceVersion}
		if err := s.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		reason  string
		race    func(*testing.T, *server, int)
		deletes []bool // whether each delete named a resourceVersion
		gone    bool
		verb    ownership.Verb
	}{
		"touched once": {"still ours: the second delete names the new version",
			func(t *testing.T, s *server, try int) {
				if try == 1 {
					touch(t, s)
				}
			}, []bool{true, true}, true, ownership.Prune},
		"busy": {"a busy status must not keep it alive: the third names the uid alone",
			func(t *testing.T, s *server, _ int) { touch(t, s) }, []bool{true, true, false}, true, ownership.Prune},
		"released": {"the claim was taken off before the delete",
			func(t *testing.T, s *server, try int) {
				o := s.must(t, configMap("config")).(*corev1.ConfigMap)
				o.OwnerReferences = nil
				if err := s.Update(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}, []bool{true}, false, ownership.Keep},
		"gone": {"somebody else deleted it: that is what we wanted",
			func(t *testing.T, s *server, _ int) {
				if err := s.Delete(t.Context(), configMap("config")); err != nil {
					t.Fatal(err)
				}
			}, []bool{true}, true, ownership.Prune},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, false, database())
			a := newApplier(t, s)
			pass(t, a, configMap("config"))
			s.taken()
			try := 0
			s.before = func(r *request) error {
				if r.Verb == "delete" {
					try++
					test.race(t, s, try)
				}
				return nil
			}
			res, err := a.Sync(t.Context(), database(), nil, empty)
			if err != nil {
				t.Fatal(err)
			}
			var versions []bool
			for _, r := range s.taken() {
				versions = append(versions, r.Version != "")
			}
			if fmt.Sprint(versions) != fmt.Sprint(test.deletes) || s.exists(t, configMap("config")) == test.gone || res.Decisions[0].Verb != test.verb {
				t.Errorf("%s: deletes %v, decision %s", test.reason, versions, res.Decisions[0])
			}
		})
	}
}

func TestKustomizeController339NoPruneAfterAFailedApply(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason string
		answer func(*request) error
		fails  bool
	}{
		"error":    {"a request failed", func(r *request) error { return apierrors.NewInternalError(errors.New("boom")) }, true},
		"conflict": {"somebody else holds the name", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			foreign := configMap("taken")
			foreign.UID = "foreign"
			s := newServer(t, false, database(), foreign)
			a := newApplier(t, s)
			pass(t, a, configMap("old"))
			next := configMap("new")
			if test.answer != nil {
				s.before = test.answer
			} else {
				next = configMap("taken")
			}
			s.taken()
			res, err := a.Sync(t.Context(), database(), []client.Object{next}, ownership.Policy{})
			if (err != nil) != test.fails {
				t.Fatal(err)
			}
			for _, r := range s.taken() {
				if r.Verb == "delete" {
					t.Errorf("%s: got %+v", test.reason, r)
				}
			}
			last := res.Decisions[len(res.Decisions)-1]
			if last.Verb != ownership.Keep || !strings.Contains(last.Why, "ConfigMap team-a/"+next.Name+" could not be applied") {
				t.Errorf("%s: got %s", test.reason, last)
			}
		})
	}
}

// fluxcd/kustomize-controller#1664: a rejected delete must neither be forgotten nor stop the others.
func TestKustomizeController1664FailedDeleteBlocksNobodyAndComesBack(t *testing.T) {
	t.Parallel()
	s := newServer(t, false, database())
	a := newApplier(t, s)
	pass(t, a, configMap("a"), configMap("b"), configMap("c"))
	s.before = func(r *request) error {
		if r.Verb == "delete" && r.Name == "b" {
			return apierrors.NewForbidden(corev1.Resource("configmaps"), r.Name, errors.New("denied by admission"))
		}
		return nil
	}
	if _, err := a.Sync(t.Context(), database(), nil, empty); err == nil || !strings.Contains(err.Error(), "delete ConfigMap team-a/b") {
		t.Errorf("got error %v", err)
	}
	if s.exists(t, configMap("a")) || s.exists(t, configMap("c")) || !s.exists(t, configMap("b")) {
		t.Error("the others were not deleted")
	}
	s.before = nil
	if _, err := newApplier(t, s).Sync(t.Context(), database(), nil, empty); err != nil || s.exists(t, configMap("b")) {
		t.Errorf("the failed delete was forgotten, error %v", err)
	}
}

func TestKubernetes77081NoSecondDelete(t *testing.T) {
	t.Parallel()
	s := newServer(t, false, database())
	a := newApplier(t, s)
	pass(t, a, configMap("config"))
	o := s.must(t, configMap("config")).(*corev1.ConfigMap)
	o.Finalizers = []string{"example.com/slow"}
	if err := s.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	s.taken()
	for i := range 3 {
		res, err := a.Sync(t.Context(), database(), nil, empty)
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]ownership.Verb{true: ownership.Prune, false: ownership.Wait}[i == 0]; res.Decisions[0].Verb != want {
			t.Errorf("pass %d: got %s", i, res.Decisions[0])
		}
	}
	if w := s.taken(); len(w) != 1 {
		t.Errorf("got %v", w)
	}
}

// The cache still shows a member whose delete the server has accepted.
func TestStaleCacheDoesNotRepeatDeletes(t *testing.T) {
	t.Parallel()
	s := newServer(t, false, database())
	pass(t, newApplier(t, s), configMap("config"))
	then := newServer(t, false, s.must(t, configMap("config")))
	s.cache = stale(s, then)
	a := newApplier(t, s)
	s.taken()
	for range 3 {
		if _, err := a.Sync(t.Context(), database(), nil, empty); err != nil {
			t.Fatal(err)
		}
	}
	if w := s.taken(); len(w) != 1 {
		t.Errorf("got %v", w)
	}
}

func TestArgoCD16600RefusedPruneStillApplies(t *testing.T) {
	t.Parallel()
	s := newServer(t, false, database())
	a := newApplier(t, s)
	pass(t, a, configMap("a"), configMap("b"), configMap("c"), configMap("d"))
	s.taken()
	res, err := a.Sync(t.Context(), database(), []client.Object{configMap("a", "new", "yes")}, ownership.Policy{Max: 2})
	var refused *ownership.PruneError
	if !errors.As(err, &refused) || len(refused.Refused) != 3 {
		t.Fatalf("got %v", err)
	}
	w := s.taken()
	if len(w) != 1 || w[0].Verb != "apply" || len(res.Decisions) != 4 {
		t.Errorf("got writes %v, decisions %v", w, res.Decisions)
	}
}

// The record of members is the claim on each of them: nothing on the owner grows with their number.
func TestKustomize1516MembersAreNotRecordedOnTheOwner(t *testing.T) {
	t.Parallel()
	s := newServer(t, true, database())
	a := newApplier(t, s)
	var desired []client.Object
	for i := range 50 {
		desired = append(desired, configMap(fmt.Sprintf("c%04d", i)))
	}
	before := s.must(t, database()).GetResourceVersion()
	if res := pass(t, a, desired...); len(res.Objects()) != len(desired) {
		t.Fatalf("got %d objects", len(res.Objects()))
	}
	if after := s.must(t, database()).GetResourceVersion(); after != before {
		t.Error("the owner was written")
	}
}
