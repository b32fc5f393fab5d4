// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ashlar-go/ashlar/ownership"
	"github.com/ashlar-go/ashlar/ownership/apply"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func dying(finalizers ...string) *unstructured.Unstructured {
	o := database()
	now := metav1.Now()
	o.SetDeletionTimestamp(&now)
	o.SetFinalizers(append([]string{finalizer}, finalizers...))
	return o
}

func TestTerminatingOwnerCreatesOnlyWhatCleanupNeeds(t *testing.T) {
	t.Parallel()
	s := newServer(t, false, database())
	a := newApplier(t, s)
	pass(t, a, configMap("old"))
	s.taken()
	if _, err := a.Sync(t.Context(), dying(), []client.Object{configMap("new"), job("backup")}, ownership.Policy{}); err != nil {
		t.Fatal(err)
	}
	w := s.taken()
	if len(w) != 1 || w[0].Kind != "Job" || w[0].Verb != "apply" {
		t.Errorf("got %v", w)
	}
}

// operator-framework/operator-controller#2022: the collector strips references of orphaned children, and a controller
// that puts one back loses the child with the owner.
func TestOperatorController2022OrphanedChildIsNotTouchedAgain(t *testing.T) {
	t.Parallel()
	strip := func(t *testing.T, s *server) {
		o := s.must(t, configMap("config")).(*corev1.ConfigMap)
		o.OwnerReferences = nil
		if err := s.Update(t.Context(), o, client.FieldOwner("kube-controller-manager")); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("fresh cache", func(t *testing.T) {
		t.Parallel()
		s := newServer(t, false, database())
		a := newApplier(t, s)
		pass(t, a, configMap("config", "mode", "fast"))
		strip(t, s)
		s.taken()
		if _, err := a.Sync(t.Context(), dying(), []client.Object{configMap("config", "mode", "slow")}, ownership.Policy{Adopt: true}); err != nil {
			t.Fatal(err)
		}
		if w := s.taken(); len(w) != 0 {
			t.Errorf("got %v", w)
		}
	})
	t.Run("stale cache of owner and child", func(t *testing.T) {
		t.Parallel()
		s := newServer(t, false, dying())
		pass(t, newApplier(t, s), configMap("config", "mode", "fast"))
		then := newServer(t, false, database(), s.must(t, configMap("config")))
		s.cache = stale(s, then)
		strip(t, s)
		a := newApplier(t, s)
		for _, p := range []ownership.Policy{{}, {Adopt: true}} {
			res, err := a.Sync(t.Context(), database(), []client.Object{configMap("config", "mode", "slow")}, p)
			if err != nil {
				t.Fatal(err)
			}
			o := s.must(t, configMap("config")).(*corev1.ConfigMap)
			if len(o.OwnerReferences) != 0 || o.Data["mode"] != "fast" {
				t.Errorf("Adopt %t: the orphan was taken back: %v, %s", p.Adopt, o.OwnerReferences, res.Decisions[0])
			}
		}
	})
	t.Run("teardown does not trust a stale cache", func(t *testing.T) {
		t.Parallel()
		s := newServer(t, false, database())
		pass(t, newApplier(t, s), configMap("config"), secret("login"))
		then := newServer(t, false, s.must(t, configMap("config")),
			s.must(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "login"}}))
		s.cache = stale(s, then)
		strip(t, s)
		s.taken()
		res, err := newApplier(t, s).Teardown(t.Context(), dying(), corev1.SchemeGroupVersion.WithKind("Secret").GroupKind())
		if err != nil || len(res.Decisions) != 1 || res.Decisions[0].Verb != ownership.Release || s.gets != 1 {
			t.Errorf("got %v, %v, %d live reads", res.Decisions, err, s.gets)
		}
	})
	t.Run("teardown releases instead of deleting", func(t *testing.T) {
		t.Parallel()
		s := newServer(t, false, database())
		a := newApplier(t, s)
		pass(t, a, configMap("config"), secret("login"), job("backup"))
		strip(t, s) // the finalizer of the orphaning is gone already: the stripped sibling is the evidence
		for range 3 {
			if _, err := a.Teardown(t.Context(), dying()); err != nil {
				t.Fatal(err)
			}
		}
		res, err := a.Teardown(t.Context(), dying())
		if err != nil || !res.Done() {
			t.Errorf("not done: %v, %v", res.Decisions, err)
		}
		login := s.must(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "login"}})
		if len(login.GetLabels()) != 0 || !s.exists(t, configMap("config")) || s.exists(t, job("backup")) {
			t.Errorf("labels %v", login.GetLabels())
		}
	})
}

// RamenDR/ramen#2601: releasing one owner cleared everybody's references.
func TestControllerRuntime2594ReleaseRemovesExactlyOurs(t *testing.T) {
	t.Parallel()
	s := newServer(t, false, database())
	a := newApplier(t, s)
	pass(t, a, secret("login"))
	key := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "login"}}
	o := s.must(t, key).(*corev1.Secret)
	o.Labels["app"] = "orders"
	o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "n1"},
		{APIVersion: "example.com/v1", Kind: "Database", Name: "orders", UID: "owner-1"}, {APIVersion: "v1", Kind: "Node", Name: "n2", UID: "n2"}}
	if err := s.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	s.taken()
	if _, err := a.Teardown(t.Context(), dying("orphan"), corev1.SchemeGroupVersion.WithKind("Secret").GroupKind()); err != nil {
		t.Fatal(err)
	}
	w := s.taken()
	if len(w) != 1 || !strings.HasPrefix(w[0].Patch, `[{"op":"test","path":"/metadata/uid"`) {
		t.Fatalf("got %v", w)
	}
	got := s.must(t, key).(*corev1.Secret)
	if len(got.OwnerReferences) != 2 || got.OwnerReferences[0].UID != "n1" || got.OwnerReferences[1].UID != "n2" ||
		got.Labels["app"] != "orders" || len(got.Labels) != 1 || string(got.Data["key"]) != "value" {
		t.Errorf("got %v", got)
	}
}

func TestReleaseRace(t *testing.T) {
	t.Parallel()
	s := newServer(t, false, database())
	a := newApplier(t, s)
	pass(t, a, secret("login"))
	key := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "login"}}
	var once atomic.Bool
	s.before = func(r *request) error {
		if r.Verb == "patch" && once.CompareAndSwap(false, true) {
			o := s.must(t, key).(*corev1.Secret)
			delete(o.Labels, newSet(t).LabelKey())
			return s.Update(t.Context(), o)
		}
		return nil
	}
	s.taken()
	if _, err := a.Teardown(t.Context(), dying("orphan")); err != nil {
		t.Fatal(err)
	}
	if w := s.taken(); len(w) != 1 {
		t.Errorf("got %v", w)
	}
}

func TestTeardown(t *testing.T) {
	t.Parallel()
	s := newServer(t, true, database())
	a := newApplier(t, s)
	labels, notes := newSet(t).Claim(database())
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "data-0", UID: "pvc", Labels: labels,
		Annotations: notes, Finalizers: []string{"kubernetes.io/pvc-protection"}}}
	if err := s.Create(t.Context(), pvc); err != nil {
		t.Fatal(err)
	}
	other := pvc.DeepCopy()
	other.ObjectMeta = metav1.ObjectMeta{Namespace: "team-a", Name: "theirs", UID: "other"}
	if err := s.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	pass(t, a, configMap("config"), job("backup"))
	volumes := corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim").GroupKind()

	step := func(kinds ...schema.GroupKind) apply.Result {
		t.Helper()
		res, err := a.Teardown(t.Context(), dying(), kinds...)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	if res := step(volumes); res.Done() || len(res.Decisions) != 1 || res.Decisions[0].Verb != ownership.Prune {
		t.Fatalf("got %v", res.Decisions)
	}
	if res := step(volumes); res.Done() || res.Decisions[0].Verb != ownership.Wait || res.RequeueAfter == 0 {
		t.Fatalf("got %v, requeue %s", res.Decisions, res.RequeueAfter)
	}
	live := s.must(t, pvc.DeepCopy()).(*corev1.PersistentVolumeClaim)
	live.Finalizers = nil
	if err := s.Update(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	if res := step(volumes); !res.Done() {
		t.Fatalf("got %v", res.Decisions)
	}
	if !s.exists(t, other) || !s.exists(t, configMap("config")) {
		t.Error("a teardown of one kind touched something else")
	}
	first := step()
	if len(first.Decisions) != 2 || first.Decisions[0].Verb != ownership.Wait || first.Decisions[1].Verb != ownership.Prune {
		t.Errorf("what cleanup needs goes last, got %v", first.Decisions)
	}
	step()
	if res := step(); !res.Done() {
		t.Errorf("got %v", res.Decisions)
	}
	if _, err := a.Teardown(t.Context(), dying(), schema.GroupKind{Kind: "Pod"}); !errors.Is(err, ownership.ErrUndeclared) {
		t.Errorf("got %v", err)
	}
}

// A child created a moment ago is not in the cache: letting the owner go now would leak it.
func TestTeardownAsksTheServerBeforeItIsDone(t *testing.T) {
	t.Parallel()
	s := newServer(t, false, database())
	pass(t, newApplier(t, s), secret("login"))
	s.cache = blind(s)
	res, err := newApplier(t, s).Teardown(t.Context(), dying())
	if err != nil || res.Done() || len(res.Decisions) != 1 || res.Decisions[0].Verb != ownership.Wait {
		t.Errorf("got %v, %v", res.Decisions, err)
	}
}

// kubernetes-sigs/kustomize-controller#90: the CRD of a kind is gone.
func TestKustomizeController90KindNotServedStopsNobody(t *testing.T) {
	t.Parallel()
	s := newServer(t, false, database())
	a := newApplier(t, s)
	pass(t, a, configMap("old"))
	gone := &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "RoleBinding"}}
	s.cache = interceptor.NewClient(s.WithWatch, interceptor.Funcs{Apply: s.apply, Delete: s.delete, Patch: s.patch,
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if _, ok := l.(*rbacv1.RoleBindingList); ok {
				return fmt.Errorf("failed to get API group resources: %w", gone)
			}
			return c.List(ctx, l, opts...)
		}})
	if _, err := newApplier(t, s).Sync(t.Context(), database(), nil, empty); err != nil || s.exists(t, configMap("old")) {
		t.Errorf("the other kinds must go on, got %v", err)
	}
}

// A child deleted and created anew by somebody else, or by a restarted predecessor of ours, behind the cache's back.
func TestUpdateOfARecreatedChildPlansAgain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason string
		after  func(*testing.T, *server)
		verb   ownership.Verb
		writes int
	}{
		"gone":    {"created again", func(*testing.T, *server) {}, ownership.Create, 2},
		"foreign": {"another incarnation without our claim", func(t *testing.T, s *server) { mustCreate(t, s, "anew", nil) }, ownership.Conflict, 1},
		"ours": {"another incarnation with our claim", func(t *testing.T, s *server) {
			yes := true
			mustCreate(t, s, "anew", []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Database", Name: "orders", UID: "owner-1", Controller: &yes}})
		}, ownership.Update, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, false, database())
			pass(t, newApplier(t, s), configMap("config", "mode", "fast"))
			s.cache = stale(s, newServer(t, false, s.must(t, configMap("config"))))
			if err := s.Delete(t.Context(), configMap("config")); err != nil {
				t.Fatal(err)
			}
			test.after(t, s)
			s.taken()
			res := pass(t, newApplier(t, s), configMap("config", "mode", "slow"))
			if w := s.taken(); len(w) != test.writes || res.Decisions[0].Verb != test.verb {
				t.Errorf("%s: got %s with writes %v", test.reason, res.Decisions[0], w)
			}
		})
	}
}

func mustCreate(t *testing.T, s *server, uid string, refs []metav1.OwnerReference) {
	t.Helper()
	o := configMap("config", "mode", "theirs")
	o.UID, o.OwnerReferences = "anew", refs
	if err := s.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// The cache has not seen our own writes yet.
func TestStaleCacheAfterOurWrite(t *testing.T) {
	t.Parallel()
	s := newServer(t, false, database())
	pass(t, newApplier(t, s), configMap("config", "mode", "fast"))
	then := newServer(t, false, s.must(t, configMap("config")))
	s.cache = stale(s, then)
	a := newApplier(t, s)
	s.taken()
	for i := range 3 {
		pass(t, a, configMap("config", "mode", "slow"))
		if w := s.taken(); len(w) != map[bool]int{true: 1, false: 0}[i == 0] {
			t.Errorf("pass %d: got %v", i, w)
		}
	}
	s.cache = blind(s)
	b := newApplier(t, s)
	for range 2 {
		res := pass(t, b, configMap("config", "mode", "slow"))
		if res.Decisions[0].Verb != ownership.Keep || len(res.Objects()) != 1 {
			t.Errorf("got %s", res.Decisions[0])
		}
	}
}

// A child that others change all the time is written in the end, or put off without an error.
func TestBusyChild(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason string
		owner  client.Object
		verb   ownership.Verb
	}{
		"owner alive":       {"the third try names the uid alone", database(), ownership.Update},
		"owner terminating": {"a reference is never put back without knowing that the owner lives", dying(), ownership.Wait},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, false, test.owner)
			a := newApplier(t, s)
			pass(t, a, configMap("config", "mode", "fast"))
			n := 0
			s.before = func(r *request) error {
				if r.Verb != "apply" {
					return nil
				}
				n++
				o := s.must(t, configMap("config")).(*corev1.ConfigMap)
				o.Data["busy"] = fmt.Sprint(n)
				return s.Update(t.Context(), o)
			}
			res := pass(t, a, configMap("config", "mode", "slow"))
			if d := res.Decisions[0]; d.Verb != test.verb {
				t.Errorf("%s: got %s", test.reason, d)
			}
		})
	}
}

// Admission rewrites an atomic list: what we send never is what is stored.
func TestWebhookThatRewritesAListCausesNoLoop(t *testing.T) {
	t.Parallel()
	for _, strip := range []bool{false, true} {
		s := newServer(t, strip, database())
		inject := func() {
			o := s.must(t, rich()[4].DeepCopyObject().(client.Object)).(*rbacv1.RoleBinding)
			if len(o.Subjects) == 1 {
				o.Subjects = append(o.Subjects, rbacv1.Subject{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "auditors"})
				if err := s.Update(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
		}
		s.cache = interceptor.NewClient(s.WithWatch, interceptor.Funcs{Delete: s.delete, Patch: s.patch,
			Apply: func(ctx context.Context, c client.WithWatch, ac applyConfiguration, opts ...client.ApplyOption) error {
				if err := s.apply(ctx, c, ac, opts...); err != nil {
					return err
				}
				inject()
				return reread(ctx, c, ac)
			}})
		a := newApplier(t, s)
		pass(t, a, rich()[4])
		s.taken()
		for range 3 {
			pass(t, a, rich()[4])
			touchStatus(t, s)
		}
		if w := s.taken(); len(w) != 0 {
			t.Errorf("strip %t: got %v", strip, w)
		}
		b := newApplier(t, s)
		for range 5 {
			pass(t, b, rich()[4])
			touchStatus(t, s)
		}
		if w := s.taken(); len(w) > 1 {
			t.Errorf("strip %t: a restarted process may write once, got %v", strip, w)
		}
	}
}

func TestNamespaceTerminatingIsAnErrorCallersCanTell(t *testing.T) {
	t.Parallel()
	s := newServer(t, false, database())
	s.before = func(r *request) error {
		e := apierrors.NewForbidden(corev1.Resource("configmaps"), r.Name, errors.New("unable to create new content in namespace team-a because it is being terminated"))
		e.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		return e
	}
	res, err := newApplier(t, s).Sync(t.Context(), database(), []client.Object{configMap("config")}, ownership.Policy{})
	if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || !strings.Contains(err.Error(), "create ConfigMap team-a/config") {
		t.Errorf("got %v", err)
	}
	if c := res.Condition("ConfigReady", "ConfigMap"); c.Reason != apply.ReasonApplyFailed || c.Status != metav1.ConditionFalse || c.ObservedGeneration != 7 {
		t.Errorf("got %v", c)
	}
}

// What the server refuses every time is an error, not a race.
func TestRefusedReferenceIsAnError(t *testing.T) {
	t.Parallel()
	s := newServer(t, false, database())
	a := newApplier(t, s)
	pass(t, a, configMap("config", "mode", "fast"))
	s.before = func(r *request) error {
		return invalid(schema.GroupResource{Resource: "configmaps"}, r.Name, "metadata.ownerReferences", "refused")
	}
	s.taken()
	res, err := a.Sync(t.Context(), database(), []client.Object{configMap("config", "mode", "slow")}, ownership.Policy{})
	if !apierrors.IsInvalid(err) || len(s.taken()) != 3 || res.Decisions[0].Err == nil {
		t.Errorf("got %v, %v", res.Decisions, err)
	}
}
