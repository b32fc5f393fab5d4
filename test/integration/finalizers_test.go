// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/finalizers"
)

// The owner of these tests is a ConfigMap: the rules they look at are those of the generic registry, the same for every
// kind.

const cleanup = "example.com/cleanup"

type (
	cleanupStep  = finalizers.Step[*corev1.ConfigMap]
	cleanupOf    = finalizers.Deletion[*corev1.ConfigMap]
	cleanupReply = finalizers.Result[*corev1.ConfigMap]
)

func finalizer(t *testing.T, name string, steps []cleanupStep, opts ...finalizers.Option) *finalizers.Finalizer[*corev1.ConfigMap] {
	t.Helper()
	f, err := finalizers.New(name, steps, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func newOwner(t *testing.T, ns string, list ...string) *corev1.ConfigMap {
	t.Helper()
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "owner-", Finalizers: list}}
	if err := cluster.Client.Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	return obj
}

// reread is the newest version, or nil.
func reread(t *testing.T, obj client.Object) *corev1.ConfigMap {
	t.Helper()
	fresh := &corev1.ConfigMap{}
	err := cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), fresh)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return fresh
}

// firstTerminating is the first version of a deleted object, as a watch shows it. A read may come too late to see what
// the garbage collector takes away again at once.
func firstTerminating(t *testing.T, obj *corev1.ConfigMap) *corev1.ConfigMap {
	t.Helper()
	w, err := cluster.Client.Watch(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(obj.Namespace),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: obj.ResourceVersion}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for {
		select {
		case e := <-w.ResultChan():
			if seen, ok := e.Object.(*corev1.ConfigMap); ok && seen.UID == obj.UID && seen.DeletionTimestamp != nil {
				return seen
			}
		case <-time.After(30 * time.Second):
			t.Fatal("the deletion is not seen")
		}
	}
}

// between lets somebody act just before the first patch.
type between struct {
	client.Client
	act  func()
	once sync.Once
}

func (b *between) Patch(ctx context.Context, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
	b.once.Do(b.act)
	return b.Client.Patch(ctx, obj, p, opts...)
}

// TestFinalizersServerManyWriters: twenty controllers store their finalizers from the same read, and later remove them
// at the same time. Nobody's is lost, nobody's comes back, and every one of them is told that all is well.
func TestFinalizersServerManyWriters(t *testing.T) {
	t.Parallel()
	const n = 20
	for _, begin := range [][]string{nil, {"example.com/first"}} {
		obj := newOwner(t, namespace(t.Context(), t), begin...)
		var fs []*finalizers.Finalizer[*corev1.ConfigMap]
		for i := range n {
			fs = append(fs, finalizer(t, fmt.Sprintf("%s-%02d", cleanup, i), nil))
		}
		all := func(from *corev1.ConfigMap, want finalizers.Phase) {
			var wg sync.WaitGroup
			for _, f := range fs {
				wg.Go(func() {
					// Three losses in a row are an answer, too; a workqueue tries again.
					for {
						res, err := f.Sync(t.Context(), cluster.Client, cluster.Client, from, nil)
						if errors.Is(err, finalizers.ErrContended) {
							continue
						}
						if err != nil || res.Phase != want && res.Phase != finalizers.Gone {
							t.Errorf("%s: %v, %v", f.Name(), res.Phase, err)
						}
						return
					}
				})
			}
			wg.Wait()
		}
		all(obj, finalizers.Active)
		stored := reread(t, obj).Finalizers
		if len(stored) != n+len(begin) {
			t.Errorf("%d finalizers are stored, want %d: %q", len(stored), n+len(begin), stored)
		}
		if err := cluster.Client.Delete(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
		all(reread(t, obj), finalizers.Released)
		left := reread(t, obj)
		if begin == nil {
			if left != nil {
				t.Errorf("the object is still there with %q", left.Finalizers)
			}
			continue
		}
		if left == nil || !slices.Equal(left.Finalizers, begin) {
			t.Errorf("left: %v, want %q", left, begin)
			continue
		}
		left.Finalizers = nil
		if err := cluster.Client.Update(t.Context(), left); err != nil {
			t.Error(err)
		}
	}
}

// TestFinalizersServerDeletedBeforeStored is the correction to case F6: the server refuses the finalizer, and neither
// apply nor cleanup runs.
func TestFinalizersServerDeletedBeforeStored(t *testing.T) {
	t.Parallel()
	ns := namespace(t.Context(), t)
	for title, tt := range map[string]struct {
		have  []string
		after func(*corev1.ConfigMap) // the deletion
		want  finalizers.Phase
	}{
		"gone":            {want: finalizers.Gone},
		"kept by another": {have: []string{"example.com/other"}, want: finalizers.Released},
		"recreated": {want: finalizers.Gone, after: func(obj *corev1.ConfigMap) {
			next := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: obj.Name}}
			if err := cluster.Client.Create(t.Context(), next); err != nil {
				t.Error(err)
			}
		}},
	} {
		obj := newOwner(t, ns, tt.have...)
		c := &between{Client: cluster.Client, act: func() {
			if err := cluster.Client.Delete(t.Context(), obj); err != nil {
				t.Error(err)
			}
			if tt.after != nil {
				tt.after(obj)
			}
		}}
		ran := false
		f := finalizer(t, cleanup, []cleanupStep{{Name: "s", Do: func(context.Context, cleanupOf) finalizers.Outcome {
			ran = true
			return finalizers.Done()
		}}})
		res, err := f.Sync(t.Context(), c, cluster.Client, obj, func(context.Context, *corev1.ConfigMap) (time.Duration, error) {
			ran = true
			return 0, nil
		})
		if err != nil || res.Phase != tt.want || ran {
			t.Errorf("%s: %v, %v; apply or cleanup ran: %v", title, res.Phase, err, ran)
		}
		if left := reread(t, obj); left != nil {
			if !slices.Equal(left.Finalizers, tt.have) {
				t.Errorf("%s: %q is stored", title, left.Finalizers)
			}
			left.Finalizers = nil
			_ = cluster.Client.Update(t.Context(), left)
		}
	}
}

// TestFinalizersServerProgress walks a cleanup of two waves through real patches: annotation map absent, key present,
// entry of another controller beside it, and the end.
func TestFinalizersServerProgress(t *testing.T) {
	t.Parallel()
	obj := newOwner(t, namespace(t.Context(), t))
	outcome := finalizers.Wait(0)
	steps := []cleanupStep{
		{Name: "first", Do: func(context.Context, cleanupOf) finalizers.Outcome { return finalizers.Done() }},
		{Name: "second", After: []string{"first"}, Do: func(context.Context, cleanupOf) finalizers.Outcome { return outcome }},
	}
	other := finalizer(t, "other.example.com/cleanup", []cleanupStep{
		{Name: "guard", Do: func(context.Context, cleanupOf) finalizers.Outcome {
			if left := reread(t, obj); slices.Contains(left.Finalizers, cleanup) {
				return finalizers.BlockedBy(finalizers.Ref{Kind: "ConfigMap", Name: obj.Name, Finalizer: cleanup})
			}
			return finalizers.Done()
		}},
	})
	sync := func(f *finalizers.Finalizer[*corev1.ConfigMap]) cleanupReply {
		t.Helper()
		res, err := f.Sync(t.Context(), cluster.Client, cluster.Client, reread(t, obj), nil)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	sync(other)
	sync(finalizer(t, cleanup, steps))
	if err := cluster.Client.Delete(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a new process each time
		sync(other)
		if res := sync(finalizer(t, cleanup, steps)); res.Phase != finalizers.Cleaning ||
			!strings.HasPrefix(res.Progress.String(), "first: Done, second: Wait since ") {
			t.Errorf("%v: %v", res.Phase, res.Progress)
		}
	}
	before := reread(t, obj)
	sync(finalizer(t, cleanup, steps))
	sync(other)
	if after := reread(t, obj); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("a pass without news was written: %v", after.Annotations)
	}
	outcome = finalizers.Done()
	if res := sync(finalizer(t, cleanup, steps)); res.Phase != finalizers.Released {
		t.Errorf("%v: %v", res.Phase, res.Progress)
	}
	if notes := reread(t, obj).Annotations[finalizers.Annotation]; strings.Contains(notes, `"example.com/cleanup":{`) || !strings.Contains(notes, "other") {
		t.Errorf("stored after the release: %s", notes)
	}
	if res := sync(other); res.Phase != finalizers.Released || reread(t, obj) != nil {
		t.Errorf("%v: %v", res.Phase, res.Progress)
	}
}

// TestFinalizersServerPolicy: what the garbage collector does to the owner while the cleanup runs.
func TestFinalizersServerPolicy(t *testing.T) {
	t.Parallel()
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationOrphan, metav1.DeletePropagationForeground} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			obj := newOwner(t, namespace(t.Context(), t))
			child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: obj.Namespace, GenerateName: "child-",
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: obj.Name, UID: obj.UID}}}}
			if err := cluster.Client.Create(t.Context(), child); err != nil {
				t.Fatal(err)
			}
			outcome := finalizers.Wait(0)
			var told []metav1.DeletionPropagation
			newProcess := func() *finalizers.Finalizer[*corev1.ConfigMap] {
				return finalizer(t, cleanup, []cleanupStep{{Name: "s", Do: func(_ context.Context, d cleanupOf) finalizers.Outcome {
					told = append(told, d.Policy)
					return outcome
				}}})
			}
			if _, err := newProcess().Sync(t.Context(), cluster.Client, cluster.Client, obj, nil); err != nil {
				t.Fatal(err)
			}
			if err := cluster.Client.Delete(t.Context(), obj, client.PropagationPolicy(policy)); err != nil {
				t.Fatal(err)
			}
			if _, err := newProcess().Sync(t.Context(), cluster.Client, cluster.Client, firstTerminating(t, obj), nil); err != nil {
				t.Fatal(err)
			}
			deadline := time.Now().Add(time.Minute)
			for len(reread(t, obj).Finalizers) > 1 { // until the garbage collector has finished with the owner
				if time.Now().After(deadline) {
					t.Fatalf("still %q", reread(t, obj).Finalizers)
				}
				time.Sleep(100 * time.Millisecond)
			}
			outcome = finalizers.Done()
			res, err := newProcess().Sync(t.Context(), cluster.Client, cluster.Client, reread(t, obj), nil)
			if err != nil || res.Phase != finalizers.Released {
				t.Errorf("%v, %v", res.Phase, err)
			}
			if want := []metav1.DeletionPropagation{policy, policy}; !slices.Equal(told, want) {
				t.Errorf("told %q, want %q: the policy must be known after its finalizer has gone", told, want)
			}
			left := reread(t, child)
			// A child that does not block its owner may outlive it by the time that its own deletion takes.
			for policy == metav1.DeletePropagationForeground && left != nil && time.Now().Before(deadline) {
				time.Sleep(50 * time.Millisecond)
				left = reread(t, child)
			}
			if (left != nil) != (policy == metav1.DeletePropagationOrphan) {
				t.Errorf("the child after a deletion with %s: %v", policy, left)
			}
		})
	}
}

// TestFinalizersServerNamespaceTerminating: a step that has to create something cannot, when the whole namespace goes.
func TestFinalizersServerNamespaceTerminating(t *testing.T) {
	t.Parallel()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "finalizers-"}}
	if err := cluster.Client.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	obj := newOwner(t, ns.Name)
	var events []finalizers.Event
	process := func(policy finalizers.Policy) *finalizers.Finalizer[*corev1.ConfigMap] {
		return finalizer(t, cleanup, []cleanupStep{{Name: "backup", InTerminatingNamespace: policy,
			Do: func(ctx context.Context, d cleanupOf) finalizers.Outcome {
				job := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "backup"}}
				if err := cluster.Client.Create(ctx, job); err != nil {
					return finalizers.Retry(fmt.Errorf("create the backup: %w", err))
				}
				return finalizers.Done()
			}}}, finalizers.WithObserver(func(e finalizers.Event) { events = append(events, e) }))
	}
	if _, err := process(finalizers.Block).Sync(t.Context(), cluster.Client, cluster.Client, obj, nil); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Client.Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for reread(t, obj).DeletionTimestamp == nil {
		if time.Now().After(deadline) {
			t.Fatal("the namespace controller does not delete the object")
		}
		time.Sleep(100 * time.Millisecond)
	}
	res, err := process(finalizers.Block).Sync(t.Context(), cluster.Client, cluster.Client, reread(t, obj), nil)
	if err != nil || res.Phase != finalizers.Cleaning || res.Progress.Steps[0].State != finalizers.StateNamespaceTerminating {
		t.Fatalf("%v %v, %v", res.Phase, res.Progress, err)
	}
	last := events[len(events)-1]
	said := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "finalizers-"},
		EventTime:  metav1.NowMicro(), ReportingController: "example.com/operator", ReportingInstance: "test", Type: corev1.EventTypeWarning,
		Reason: string(last.State), Action: "Cleanup", Note: last.Err.Error()[:min(len(last.Err.Error()), 1024)],
		Regarding: corev1.ObjectReference{APIVersion: last.Regarding.APIVersion, Kind: last.Regarding.Kind, Name: last.Regarding.Name},
	}
	if err := cluster.Client.Create(t.Context(), said); err != nil {
		t.Errorf("an event that regards %s: %v", last.Regarding, err)
	}
	if res, err = process(finalizers.Skip).Sync(t.Context(), cluster.Client, cluster.Client, reread(t, obj), nil); err != nil || res.Phase != finalizers.Released {
		t.Errorf("%v %v, %v", res.Phase, res.Progress, err)
	}
	if e := events[len(events)-2]; e.Kind != finalizers.EventSkipped || e.Regarding.Kind != "Namespace" {
		t.Errorf("what may have leaked was not said: %+v", e)
	}
	for err := error(nil); !apierrors.IsNotFound(err); err = cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(ns), ns) {
		if time.Now().After(deadline.Add(time.Minute)) {
			t.Fatalf("the namespace stays: %v", ns.Status)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestFinalizersServerHold: a held Secret outlives its deletion, is swept when its owner went by force, and cannot be
// held once it is being deleted.
func TestFinalizersServerHold(t *testing.T) {
	t.Parallel()
	ns := namespace(t.Context(), t)
	secret := func() *corev1.Secret {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "credentials-"}}
		if err := cluster.Client.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	read := func(s *corev1.Secret) (*corev1.Secret, error) {
		fresh := &corev1.Secret{}
		return fresh, cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(s), fresh)
	}
	one, two := newOwner(t, ns), newOwner(t, ns)
	held, lost, late := secret(), secret(), secret()
	for _, owner := range []*corev1.ConfigMap{one, two} {
		if err := finalizers.Hold(t.Context(), cluster.Client, owner, held, lost); err != nil {
			t.Fatal(err)
		}
	}
	if err := finalizers.Unhold(t.Context(), cluster.Client, two, held); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*corev1.Secret{held, late} {
		if err := cluster.Client.Delete(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := read(held); err != nil {
		t.Fatalf("the held secret: %v", err)
	}
	if err := finalizers.Hold(t.Context(), cluster.Client, one, late); !errors.Is(err, finalizers.ErrGone) {
		t.Errorf("holding what is gone: %v", err)
	}
	if err := finalizers.Hold(t.Context(), cluster.Client, two, held); !errors.Is(err, finalizers.ErrTerminating) {
		t.Errorf("holding what is being deleted, from an old read: %v", err)
	}
	if err := finalizers.Unhold(t.Context(), cluster.Client, one, held); err != nil {
		t.Errorf("unhold from an old read: %v", err)
	}
	if _, err := read(held); !apierrors.IsNotFound(err) {
		t.Errorf("the secret after its last hold: %v", err)
	}

	if err := cluster.Client.Delete(t.Context(), two); err != nil { // no cleanup: by force
		t.Fatal(err)
	}
	gvk := func(kind string) schema.GroupVersionKind { return schema.GroupVersionKind{Version: "v1", Kind: kind} }
	var found []finalizers.Ref
	for ref, err := range finalizers.Sweep(t.Context(), cluster.Client, gvk("ConfigMap"), gvk("Secret")) {
		if err != nil {
			t.Fatal(err)
		}
		if ref.Namespace == ns {
			found = append(found, ref)
		}
	}
	fresh, err := read(lost)
	if err != nil || len(fresh.Finalizers) != 2 {
		t.Fatalf("%q, %v", fresh.Finalizers, err)
	}
	if len(found) != 1 || found[0].UID != lost.UID || found[0].Finalizer != fresh.Finalizers[1] {
		t.Errorf("sweep found %v, want the second of %q", found, fresh.Finalizers)
	}
	fresh.Finalizers = nil
	if err := cluster.Client.Update(t.Context(), fresh); err != nil {
		t.Error(err)
	}
}
