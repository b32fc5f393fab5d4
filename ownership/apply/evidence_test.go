// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"slices"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/ownership"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestDetachedChildIsNotAnOrphanDeletion: somebody took one child out of its owner's hands to keep it, and much later
// deleted the owner. The others must go.
func TestDetachedChildIsNotAnOrphanDeletion(t *testing.T) {
	t.Parallel()
	deleted := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		reason string
		age    time.Duration // of the child that still has its reference
		keeps  bool          // it still has it on the server
		want   ownership.Verb
	}{
		"an old child has its reference": {"an orphan deletion strips all", time.Hour, true, ownership.Prune},
		"a new child has its reference":  {"the collector may not have known it", time.Second, true, ownership.Release},
		"only the cache shows it":        {"the cache is behind", time.Hour, false, ownership.Release},
	} {
		s := newServer(t, false, database())
		pass(t, newApplier(t, s), configMap("detached"), configMap("kept"), secret("login"))
		strip := func(name string) {
			o := s.must(t, configMap(name)).(*corev1.ConfigMap)
			o.OwnerReferences = nil
			if err := s.Update(t.Context(), o, client.FieldOwner("somebody")); err != nil {
				t.Fatal(err)
			}
		}
		kept := s.must(t, configMap("kept")).(*corev1.ConfigMap)
		kept.CreationTimestamp = metav1.NewTime(deleted.Add(-c.age))
		if err := s.Update(t.Context(), kept, client.FieldOwner("test")); err != nil {
			t.Fatal(err)
		}
		strip("detached")
		then := newServer(t, false, s.must(t, configMap("kept")), s.must(t, configMap("detached")),
			s.must(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "login"}}))
		s.cache = stale(s, then)
		if !c.keeps {
			strip("kept")
		}
		owner := dying()
		at := metav1.NewTime(deleted)
		owner.SetDeletionTimestamp(&at)
		s.taken()
		res, err := newApplier(t, s).Teardown(t.Context(), owner)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		i := slices.IndexFunc(res.Decisions, func(d ownership.Decision) bool { return d.Ref.Kind == "Secret" })
		if i < 0 || res.Decisions[i].Verb != c.want {
			t.Errorf("%s (%s): want the Secret to be %s, got %v", name, c.reason, c.want, res.Decisions)
		}
		if !s.exists(t, configMap("detached")) {
			t.Errorf("%s: what was detached is gone", name)
		}
	}
}

// TestHandOverSurvivesTheOldOwner: a pass of the old owner that has seen neither its own new declaration nor the
// hand-over corrects drift of the child. It must not take it back, or the next pass prunes it.
func TestHandOverSurvivesTheOldOwner(t *testing.T) {
	t.Parallel()
	_, c := strictServer(t)
	from, to := c.owner(t, "orders"), c.owner(t, "billing")
	a := c.applier(t, c)
	if _, err := a.Sync(t.Context(), from, []client.Object{secret("login")}, ownership.Policy{}); err != nil {
		t.Fatal(err)
	}
	before := c.live(t, secret("login"))
	ref := ownership.Ref{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret"), Namespace: "team-a", Name: "login"}
	if _, err := a.HandOver(t.Context(), from, to, ref); err != nil {
		t.Fatal(err)
	}
	old := c.applier(t, lagging{c, newServer(t, false, before)})
	changed := secret("login")
	changed.StringData["key"] = "other"
	res, err := old.Sync(t.Context(), from, []client.Object{changed}, ownership.Policy{})
	if err != nil || res.Decisions[0].Verb != ownership.Conflict {
		t.Errorf("got %v, %v", res.Decisions, err)
	}
	if set := newSet(t); !set.Claimed(to, c.live(t, secret("login"))) {
		t.Error("the child was taken back")
	}
}

// TestAdoptionOverrulesOurOwnKeys: what an earlier hand-over wrote by patch is a field of another manager for the
// server, but nobody's declaration.
func TestAdoptionOverrulesOurOwnKeys(t *testing.T) {
	t.Parallel()
	_, c := strictServer(t)
	from, to := c.owner(t, "orders"), c.owner(t, "billing")
	a := c.applier(t, c)
	if _, err := a.Sync(t.Context(), from, []client.Object{configMap("config", "mode", "fast")}, ownership.Policy{}); err != nil {
		t.Fatal(err)
	}
	ref := ownership.Ref{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Namespace: "team-a", Name: "config"}
	if _, err := a.HandOver(t.Context(), from, to, ref); err != nil {
		t.Fatal(err)
	}
	o := c.live(t, configMap("config"))
	o.SetOwnerReferences(nil)
	if err := c.Update(t.Context(), o, client.FieldOwner("somebody")); err != nil {
		t.Fatal(err)
	}
	res, err := a.Sync(t.Context(), from, []client.Object{configMap("config", "mode", "slow")}, ownership.Policy{Adopt: true})
	if err != nil || res.Decisions[0].Verb != ownership.Adopt {
		t.Errorf("got %v, %v", res.Decisions, err)
	}
}

// TestRefusedAdoptionIsNotRepeated: nothing has changed, so the answer would be the same.
func TestRefusedAdoptionIsNotRepeated(t *testing.T) {
	t.Parallel()
	_, c := strictServer(t)
	owner := c.owner(t, "orders")
	theirs := configMap("config", "mode", "theirs")
	if err := c.Create(t.Context(), theirs, client.FieldOwner("somebody")); err != nil {
		t.Fatal(err)
	}
	a := c.applier(t, c)
	try := func() (verb ownership.Verb, requests int) {
		was := c.requests()
		res, err := a.Sync(t.Context(), owner, []client.Object{configMap("config", "mode", "fast")}, ownership.Policy{Adopt: true})
		if err != nil {
			t.Fatal(err)
		}
		return res.Decisions[0].Verb, c.requests() - was
	}
	if verb, n := try(); verb != ownership.Conflict || n != 1 {
		t.Errorf("first: %s with %d writes", verb, n)
	}
	if verb, n := try(); verb != ownership.Conflict || n != 0 {
		t.Errorf("again: %s with %d writes", verb, n)
	}
	theirs.Data["mode"] = "fast"
	if err := c.Update(t.Context(), theirs, client.FieldOwner("somebody")); err != nil {
		t.Fatal(err)
	}
	if verb, n := try(); verb != ownership.Adopt || n != 1 {
		t.Errorf("once they agree: %s with %d writes", verb, n)
	}
}
