// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/ashlar-go/ashlar/finalizers"
	"github.com/ashlar-go/ashlar/finalizers/finalizerstest"
)

// Each test is named after the public report of the defect that must not happen here.

// Two controllers add their finalizers from the same read. https://github.com/tigera/operator/pull/4492,
// https://github.com/kubermatic/kubermatic/issues/6759
func TestTigeraOperator4492BothFinalizersSurvive(t *testing.T) {
	t.Parallel()
	for title, have := range map[string][]string{"empty list": nil, "with a third": {"example.com/third"}} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, configMap("a", have...))
			w.before = func(n int, _ string) error {
				if n == 0 {
					w.set("a", append(have, other)...)
				}
				return nil
			}
			var a applied
			if _, err := mustNew(t, nil).Sync(t.Context(), w, w, w.get("a"), a.apply); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(append(have, other, name), w.get("a").Finalizers); diff != "" {
				t.Errorf("stored (-want +got):\n%s", diff)
			}
			if len(w.sent) > 3 || a.calls != 1 {
				t.Errorf("%d requests and %d calls of apply; want at most one retry", len(w.sent), a.calls)
			}
		})
	}
}

// We remove ours from a stale list after another removed theirs. https://github.com/nolar/kopf/pull/1236
func TestKopf1236RemovalFromAStaleList(t *testing.T) {
	t.Parallel()
	w := newWorld(t, terminating("a", other, name))
	w.before = func(n int, _ string) error {
		if n == 0 {
			w.set("a", name)
		}
		return nil
	}
	res, err := mustNew(t, nil).Sync(t.Context(), w, w, w.get("a"), nil)
	if err != nil || res.Phase != finalizers.Released {
		t.Errorf("Sync = %v, %v", res.Phase, err)
	}
	if w.exists("a") {
		t.Errorf("still there with %q", w.get("a").Finalizers)
	}
	if len(w.sent) != 3 {
		t.Errorf("sent %q, want a patch, a read and a patch", w.sent)
	}
	if written := strings.Join(w.sent, " "); strings.Contains(written, `"add"`) || strings.Contains(written, other) {
		t.Errorf("sent %q: a removal must not write what others have", w.sent)
	}
}

// Our name is in the list twice. https://github.com/kube-rs/kube/pull/965; crossplane-runtime's helper panics for both
// of these lists.
func TestKubeRS965DuplicateEntries(t *testing.T) {
	t.Parallel()
	for title, tt := range map[string]struct{ have, want []string }{
		"around another": {have: []string{name, other, name}, want: []string{other}},
		"side by side":   {have: []string{name, name}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, terminating("a", tt.have...))
			obj := w.get("a")
			res, err := mustNew(t, nil).Sync(t.Context(), w, w, obj, nil)
			if err != nil || res.Phase != finalizers.Released || len(w.sent) != 1 {
				t.Fatalf("Sync = %v, %v after %q", res.Phase, err, w.sent)
			}
			if diff := cmp.Diff(tt.have, obj.Finalizers); diff != "" {
				t.Errorf("the argument was changed (-before +after):\n%s", diff)
			}
			if w.exists("a") != (tt.want != nil) {
				t.Fatalf("exists = %v", w.exists("a"))
			}
			if tt.want != nil {
				if diff := cmp.Diff(tt.want, w.get("a").Finalizers); diff != "" {
					t.Errorf("stored (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// The object is being deleted, ours is not there, another's is. https://github.com/kubernetes-sigs/cluster-api/pull/8949,
// https://github.com/fluxcd/source-controller/issues/1177
func TestClusterAPI8949NothingIsAddedToATerminatingObject(t *testing.T) {
	t.Parallel()
	w := newWorld(t, terminating("a", other))
	var log []string
	var a applied
	f := mustNew(t, []step{{Name: "s", Do: say(&log, "s", finalizers.Done())}})
	res, err := f.Sync(t.Context(), w, w, w.get("a"), a.apply)
	if err != nil || res.Phase != finalizers.Released {
		t.Errorf("Sync = %v, %v", res.Phase, err)
	}
	if a.calls != 0 || log != nil {
		t.Errorf("%d calls of apply, cleanup %q; want none", a.calls, log)
	}
	w.wantSent()
}

// The object is deleted between the read and the write. https://github.com/knative/pkg/issues/2828,
// https://github.com/kubernetes-sigs/cluster-api/issues/3199. The write cannot succeed on an object that is being
// deleted by then, so neither apply nor cleanup may run.
func TestKnativePkg2828DeletedBeforeTheFinalizerIsStored(t *testing.T) {
	t.Parallel()
	for title, tt := range map[string]struct {
		have  []string
		phase finalizers.Phase
	}{
		"gone at once":        {phase: finalizers.Gone},
		"kept by another":     {have: []string{other}, phase: finalizers.Released},
		"recreated meanwhile": {phase: finalizers.Gone},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, configMap("a", tt.have...))
			w.before = func(n int, _ string) error {
				if n == 0 {
					w.delete("a")
					if strings.HasPrefix(title, "recreated") {
						next := configMap("a")
						next.UID = "22222222-2222-4222-8222-222222222222"
						return w.base.Create(t.Context(), next)
					}
				}
				return nil
			}
			var log []string
			var a applied
			f := mustNew(t, []step{{Name: "s", Do: say(&log, "s", finalizers.Done())}})
			res, err := f.Sync(t.Context(), w, w, w.get("a"), a.apply)
			if err != nil || res.Phase != tt.phase {
				t.Errorf("Sync = %v, %v; want %v", res.Phase, err, tt.phase)
			}
			if a.calls != 0 || log != nil {
				t.Errorf("%d calls of apply, cleanup %q; want none", a.calls, log)
			}
			if w.exists("a") && len(w.get("a").Finalizers) != len(tt.have) {
				t.Errorf("stored %q: something was written on an object that is not ours", w.get("a").Finalizers)
			}
		})
	}
}

// The status is written before the last finalizer goes; what the server says about the object afterwards means that it
// is gone. https://github.com/openshift/addon-operator/pull/62, https://github.com/kyma-project/kyma/issues/11166,
// https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/issues/799
func TestAddonOperator62StatusBeforeRelease(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns", UID: uid, Finalizers: []string{name},
		DeletionTimestamp: &metav1.Time{Time: start()}}}
	base := finalizerstest.Strict(fake.NewClientBuilder().WithObjects(pod).WithStatusSubresource(pod).Build())
	w := &world{base: base, t: t}
	w.Client = &recorder{Client: base, w: w}
	f, err := finalizers.New(name, []finalizers.Step[*corev1.Pod]{{
		Name: "report",
		Do: func(ctx context.Context, d finalizers.Deletion[*corev1.Pod]) finalizers.Outcome {
			w.sent = append(w.sent, "STATUS")
			obj := d.Object.DeepCopy()
			obj.Status.Message = "cleaning up"
			if err := base.Status().Update(ctx, obj); err != nil {
				return finalizers.Retry(err)
			}
			return finalizers.Done()
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	obj := &corev1.Pod{}
	if err := base.Get(t.Context(), client.ObjectKeyFromObject(pod), obj); err != nil {
		t.Fatal(err)
	}
	res, err := f.Sync(t.Context(), w, w, obj, nil)
	if err != nil || res.Phase != finalizers.Released {
		t.Fatalf("Sync = %v, %v", res.Phase, err)
	}
	if len(w.sent) != 2 || w.sent[0] != "STATUS" || !strings.HasPrefix(w.sent[1], "PATCH") {
		t.Errorf("sent %q, want the status and then the release, though the status write moved the resourceVersion", w.sent)
	}
}

func TestAddonOperator62GoneIsReleased(t *testing.T) {
	t.Parallel()
	gr := schema.GroupResource{Resource: "configmaps"}
	for title, code := range map[string]error{
		"404":                  apierrors.NewNotFound(gr, "a"),
		"409 uid precondition": apierrors.NewConflict(gr, "a", errors.New("Precondition failed: UID in precondition: x, UID in object meta: ")),
		"bare 422":             bare422(),
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, terminating("a", name))
			obj := w.get("a")
			w.before = func(n int, _ string) error {
				if n == 0 {
					w.set("a")
					return code
				}
				return nil
			}
			res, err := mustNew(t, nil).Sync(t.Context(), w, w, obj, nil)
			if err != nil || res.Phase != finalizers.Gone {
				t.Errorf("Sync = %v, %v; want Gone and no error", res.Phase, err)
			}
		})
	}
}

// Two steps with an order; the process is replaced before every pass.
// https://github.com/percona/percona-server-mongodb-operator/pull/1095
func TestPerconaMongoDB1095OrderSurvivesRestarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, terminating("a", name))
	var log []string
	a := say(&log, "A", finalizers.Wait(time.Minute), finalizers.Done())
	b := say(&log, "B", finalizers.Wait(0), finalizers.Done())
	var phases []finalizers.Phase
	for _, verbs := range [][]string{{"GET", "PATCH"}, {"GET", "PATCH", "PATCH"}, {"GET", "PATCH"}} {
		f := mustNew(t, []step{{Name: "b", After: []string{"a"}, Do: b}, {Name: "a", Do: a}})
		res, err := f.Sync(t.Context(), w, w, w.get("a"), nil)
		if err != nil {
			t.Fatal(err)
		}
		phases = append(phases, res.Phase)
		w.wantVerbs(verbs...) // a new process looks before it calls, and writes once per change
	}
	if diff := cmp.Diff([]string{"A", "A", "B", "B"}, log); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]finalizers.Phase{finalizers.Cleaning, finalizers.Cleaning, finalizers.Released}, phases); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
	if w.exists("a") {
		t.Error("still there")
	}
}

// A can only finish once B is being deleted. https://github.com/NVIDIA/k8s-launch-kit/pull/228
func TestK8sLaunchKit228WholeWaveIsSentBeforeWaiting(t *testing.T) {
	t.Parallel()
	childA, childB := configMap("child-a", other), configMap("child-b")
	w := newWorld(t, terminating("a", name), childA, childB)
	remove := func(child string) func(context.Context, finalizers.Deletion[*corev1.ConfigMap]) finalizers.Outcome {
		return func(ctx context.Context, _ finalizers.Deletion[*corev1.ConfigMap]) finalizers.Outcome {
			if !w.exists(child) {
				return finalizers.Done()
			}
			if w.get(child).DeletionTimestamp == nil {
				w.delete(child)
			}
			return finalizers.Wait(time.Second)
		}
	}
	f := mustNew(t, []step{{Name: "a", Do: remove("child-a")}, {Name: "b", Do: remove("child-b")}})
	passes := 0
	for w.exists("a") {
		if passes++; passes > 3 {
			t.Fatal("not converged after 3 passes")
		}
		if _, err := f.Sync(t.Context(), w, w, w.get("a"), nil); err != nil {
			t.Fatal(err)
		}
		if w.exists("child-a") && !w.exists("child-b") {
			w.set("child-a") // whoever guards A lets go once B is on its way out
		}
	}
}

// What the cleanup needs is deleted before it. https://github.com/Azure/azure-service-operator/issues/4679,
// https://github.com/IBM/cloud-operators/issues/146
func TestAzureServiceOperator4679SecretIsHeld(t *testing.T) {
	t.Parallel()
	owner, secret := configMap("a"), configMap("secret")
	secret.UID = "33333333-3333-4333-8333-333333333333"
	w := newWorld(t, owner, secret)
	var log []string
	unhold := func(ctx context.Context, d finalizers.Deletion[*corev1.ConfigMap]) finalizers.Outcome {
		if err := finalizers.Unhold(ctx, w, d.Object, w.get("secret")); err != nil {
			return finalizers.Retry(err)
		}
		return finalizers.Done()
	}
	steps := []step{
		{Name: "remote", Do: func(context.Context, finalizers.Deletion[*corev1.ConfigMap]) finalizers.Outcome {
			if !w.exists("secret") {
				return finalizers.Stuck(errors.New("the credentials are gone"))
			}
			log = append(log, "used the secret")
			return finalizers.Done()
		}},
		{Name: "let-go", After: []string{"remote"}, Do: unhold},
	}
	f := mustNew(t, steps)
	_, err := f.Sync(t.Context(), w, w, w.get("a"), func(ctx context.Context, obj *corev1.ConfigMap) (time.Duration, error) {
		return 0, finalizers.Hold(ctx, w, obj, w.get("secret"))
	})
	if err != nil {
		t.Fatal(err)
	}
	w.delete("secret")
	w.delete("a")
	if !w.exists("secret") {
		t.Fatal("the secret went before the cleanup")
	}
	res, err := f.Sync(t.Context(), w, w, w.get("a"), nil)
	if err != nil || res.Phase != finalizers.Released || w.exists("secret") || w.exists("a") {
		t.Errorf("Sync = %v, %v; secret %v, owner %v", res.Phase, err, w.exists("secret"), w.exists("a"))
	}
	if diff := cmp.Diff([]string{"used the secret"}, log); diff != "" {
		t.Errorf("cleanup (-want +got):\n%s", diff)
	}
}

// Without a hold the secret may be gone: that is Stuck, and skipped only where the step says so.
func TestAzureServiceOperator4679MissingSecretIsNeverSilentlyDone(t *testing.T) {
	t.Parallel()
	for title, policy := range map[string]finalizers.Policy{"default": finalizers.Block, "opted in": finalizers.Skip} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, terminating("a", name))
			now := start()
			var log []string
			var events []finalizers.Event
			f := mustNew(t, []step{{
				Name: "remote", Deadline: time.Hour, Overrun: policy,
				Do: say(&log, "remote", finalizers.Stuck(errors.New("the credentials are gone"))),
			}}, finalizers.WithClock(func() time.Time { return now }),
				finalizers.WithObserver(func(e finalizers.Event) { events = append(events, e) }))
			res, err := f.Sync(t.Context(), w, w, w.get("a"), nil)
			if err != nil || res.Phase != finalizers.Cleaning || res.Progress.Steps[0].State != finalizers.StateStuck {
				t.Fatalf("Sync = %v %v, %v", res.Phase, res.Progress, err)
			}
			now = now.Add(time.Hour)
			res, err = f.Sync(t.Context(), w, w, w.get("a"), nil)
			released := policy == finalizers.Skip
			if err != nil || (res.Phase == finalizers.Released) != released || w.exists("a") == released {
				t.Errorf("after the deadline: Sync = %v %v, %v", res.Phase, res.Progress, err)
			}
			leaked := 0
			for _, e := range events {
				if e.Kind == finalizers.EventSkipped && e.Err != nil && strings.Contains(e.Err.Error(), "the credentials are gone") {
					leaked++
				}
			}
			if (leaked == 1) != released {
				t.Errorf("%d events say what may have leaked: %v", leaked, events)
			}
		})
	}
}

// The finalizer is kept while a child exists, and goes at once when there is none.
// https://github.com/vmware-labs/reconciler-runtime/issues/303
func TestReconcilerRuntime303KeptWhileAChildExists(t *testing.T) {
	t.Parallel()
	b := terminating("b", name)
	b.UID = "44444444-4444-4444-8444-444444444444"
	w := newWorld(t, terminating("a", name), terminating("child", other), b)
	f := mustNew(t, []step{{Name: "child", Do: func(_ context.Context, d finalizers.Deletion[*corev1.ConfigMap]) finalizers.Outcome {
		if d.Object.Name == "a" && w.exists("child") {
			return finalizers.BlockedBy(finalizers.Ref{APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Name: "child"})
		}
		return finalizers.Done()
	}}})
	for range 2 {
		res, err := f.Sync(t.Context(), w, w, w.get("a"), nil)
		if err != nil || res.Phase != finalizers.Cleaning || res.Progress.Steps[0].Blocker.Name != "child" {
			t.Fatalf("with a terminating child: Sync = %v %v, %v", res.Phase, res.Progress, err)
		}
	}
	w.set("child")
	if res, err := f.Sync(t.Context(), w, w, w.get("a"), nil); err != nil || res.Phase != finalizers.Released || w.exists("a") {
		t.Errorf("after the child: Sync = %v, %v", res.Phase, err)
	}
	if res, err := f.Sync(t.Context(), w, w, w.get("b"), nil); err != nil || res.Phase != finalizers.Released || w.exists("b") {
		t.Errorf("never had a child: Sync = %v, %v", res.Phase, err)
	}
}

// Others keep their order, and nothing is written when nothing changes.
// https://github.com/istio-ecosystem/sail-operator/pull/2273
func TestSailOperator2273OrderOfOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, terminating("a", "example.com/c", "example.com/a", name, "example.com/b"))
	if _, err := mustNew(t, nil).Sync(t.Context(), w, w, w.get("a"), nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"example.com/c", "example.com/a", "example.com/b"}, w.get("a").Finalizers); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	w.sent = nil
	if _, err := mustNew(t, nil).Sync(t.Context(), w, w, w.get("a"), nil); err != nil {
		t.Fatal(err)
	}
	w.wantSent()
}

// The external system is unreachable for ever. https://github.com/redpanda-data/redpanda/pull/10496
func TestRedpanda10496UnreachableForEver(t *testing.T) {
	t.Parallel()
	for title, policy := range map[string]finalizers.Policy{"default": finalizers.Block, "opted in": finalizers.Skip} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, terminating("a", name))
			now := start()
			down := errors.New("connection refused")
			var log []string
			var events []finalizers.Event
			do := say(&log, "s", finalizers.Retry(down))
			sync := func() (result, error) { // a new process each time: the deadline is counted from what is stored
				f := mustNew(t, []step{{Name: "remote", Do: do, Deadline: time.Hour, Overrun: policy}},
					finalizers.WithClock(func() time.Time { return now }),
					finalizers.WithObserver(func(e finalizers.Event) { events = append(events, e) }))
				return f.Sync(t.Context(), w, w, w.get("a"), nil)
			}
			for range 3 {
				res, err := sync()
				var step *finalizers.StepError
				if !errors.Is(err, down) || !errors.As(err, &step) || step.Step != "remote" || res.Phase != finalizers.Cleaning {
					t.Fatalf("before the deadline: %v, %v", res.Phase, err)
				}
				now = now.Add(20 * time.Minute)
			}
			calls := len(log)
			res, err := sync()
			if err != nil || len(log) != calls+1 {
				t.Errorf("at the deadline: %v after %d calls; want one more try and no error to back off from", err, len(log))
			}
			if policy == finalizers.Block {
				if res.Phase != finalizers.Cleaning || res.Progress.Steps[0].State != finalizers.StateStuck ||
					!errors.Is(res.Progress.Err(), down) || res.RequeueAfter != 10*time.Minute || !w.exists("a") {
					t.Errorf("past the deadline: %v %v, again after %v", res.Phase, res.Progress, res.RequeueAfter)
				}
				return
			}
			if res.Phase != finalizers.Released || w.exists("a") {
				t.Errorf("past the deadline: %v", res.Phase)
			}
			kinds := []finalizers.EventKind{}
			for _, e := range events {
				kinds = append(kinds, e.Kind)
			}
			want := []finalizers.EventKind{finalizers.EventStep, finalizers.EventSkipped, finalizers.EventReleased}
			if diff := cmp.Diff(want, kinds); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// A stale cache shows the object after the cleanup. https://github.com/kubernetes-sigs/cluster-api-provider-ibmcloud/issues/2815
func TestClusterAPIIBMCloud2815StaleCacheAfterSuccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, terminating("a", name))
	stale := w.get("a")
	remote := map[string]bool{"instance": true}
	var calls int
	newProcess := func() *finalizers.Finalizer[*corev1.ConfigMap] {
		return mustNew(t, []step{{Name: "instance", Do: func(context.Context, finalizers.Deletion[*corev1.ConfigMap]) finalizers.Outcome {
			calls++
			delete(remote, "instance") // not found is done, too
			return finalizers.Done()
		}}})
	}
	f := newProcess()
	if res, err := f.Sync(t.Context(), w, w, stale, nil); err != nil || res.Phase != finalizers.Released {
		t.Fatalf("Sync = %v, %v", res.Phase, err)
	}
	w.sent = nil
	// The same process remembers what it has done to this very version.
	if res, err := f.Sync(t.Context(), w, w, stale, nil); err != nil || res.Phase != finalizers.Released || calls != 1 {
		t.Errorf("again: Sync = %v, %v after %d calls", res.Phase, err, calls)
	}
	w.wantSent()
	// Another process does it again and learns that nothing was left.
	if res, err := newProcess().Sync(t.Context(), w, w, stale, nil); err != nil || res.Phase != finalizers.Gone || calls != 2 {
		t.Errorf("another process: Sync = %v, %v after %d calls", res.Phase, err, calls)
	}
}
