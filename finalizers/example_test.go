// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/ashlar-go/ashlar/finalizers"
	"github.com/ashlar-go/ashlar/finalizers/finalizerstest"
)

// database is the owner in the examples; a ConfigMap stands for a custom resource.
func database() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "orders", UID: "6c1e"}}
}

// server is an in-memory API server.
func server(objs ...client.Object) client.Client {
	return finalizerstest.Strict(fake.NewClientBuilder().WithObjects(objs...).Build())
}

// fetch reads obj again, as a cache does.
func fetch(c client.Client, obj *corev1.ConfigMap) *corev1.ConfigMap {
	fresh := &corev1.ConfigMap{}
	if err := c.Get(context.Background(), client.ObjectKeyFromObject(obj), fresh); err != nil {
		fmt.Println(err)
	}
	return fresh
}

// Everything in one place: a step that takes two passes, a step that comes after it, and what Reconcile does with the
// result.
func Example() {
	ctx, c := context.Background(), server(database())
	dumped := false
	f, err := finalizers.New("example.com/cleanup", []finalizers.Step[*corev1.ConfigMap]{
		{Name: "backup", Do: func(context.Context, finalizers.Deletion[*corev1.ConfigMap]) finalizers.Outcome {
			if !dumped {
				return finalizers.BlockedBy(finalizers.Ref{APIVersion: "batch/v1", Kind: "Job", Namespace: "default", Name: "orders-backup"})
			}
			return finalizers.Done()
		}},
		{Name: "volumes", After: []string{"backup"}, Do: func(context.Context, finalizers.Deletion[*corev1.ConfigMap]) finalizers.Outcome {
			return finalizers.Done()
		}},
	}, finalizers.WithClock(start))
	if err != nil {
		fmt.Println(err)
		return
	}

	reconcile := func() {
		res, err := f.Sync(ctx, c, c, fetch(c, database()), func(_ context.Context, db *corev1.ConfigMap) (time.Duration, error) {
			fmt.Println("apply with", db.Finalizers)
			return 0, nil
		})
		fmt.Println(res.Phase, res.Progress, res.RequeueAfter, err)
	}
	reconcile()
	_ = c.Delete(ctx, database())
	reconcile()
	dumped = true
	reconcile()
	// Output:
	// apply with [example.com/cleanup]
	// Active no cleanup in progress 0s <nil>
	// Cleaning backup: BlockedBy Job default/orders-backup since 2026-03-01T10:00:00Z, volumes: Pending 10s <nil>
	// Released backup: Done, volumes: Done 0s <nil>
}

func ExampleNew() {
	nothing := func(context.Context, finalizers.Deletion[*corev1.ConfigMap]) finalizers.Outcome {
		return finalizers.Done()
	}
	_, err := finalizers.New("example.com/cleanup", []finalizers.Step[*corev1.ConfigMap]{
		{Name: "backup", After: []string{"pods"}, Do: nothing},
		{Name: "pods", After: []string{"backup"}, Do: nothing},
	})
	fmt.Println(err)
	// Output:
	// new finalizer example.com/cleanup: steps wait for each other: backup after pods after backup
}

func ExampleFinalizer_Sync() {
	db := database()
	c := server(db)
	f, _ := finalizers.New[*corev1.ConfigMap]("example.com/cleanup", nil)
	res, err := f.Sync(context.Background(), c, c, fetch(c, db), func(_ context.Context, db *corev1.ConfigMap) (time.Duration, error) {
		fmt.Println("the finalizer is stored before the first side effect:", db.Finalizers)
		return time.Minute, nil
	})
	fmt.Println(res.Phase, res.RequeueAfter, err)
	// Output:
	// the finalizer is stored before the first side effect: [example.com/cleanup]
	// Active 1m0s <nil>
}

func ExampleFinalizer_Plan() {
	db := database()
	db.Finalizers = []string{"example.com/other"}
	f, _ := finalizers.New[*corev1.ConfigMap]("example.com/cleanup", nil)
	p := f.Plan(db, start())
	fmt.Println(p)
	fmt.Printf("%s\n", p.Patch)
	// Output:
	// Store: the finalizer is not stored
	// [{"op":"test","path":"/metadata/uid","value":"6c1e"},{"op":"add","path":"/metadata/finalizers/-","value":"example.com/cleanup"}]
}

// A controller that stored its finalizer under another name takes it over.
func ExampleWithFormerNames() {
	db := database()
	f, err := finalizers.New[*corev1.ConfigMap]("example.com/cleanup", nil, finalizers.WithFormerNames("old.example.com/orders"))
	fmt.Println(err)
	db.Finalizers = []string{"old.example.com/orders", "example.com/other"}
	c := server(db)
	res, _ := f.Sync(context.Background(), c, c, fetch(c, db), nil)
	fmt.Println(res.Object.Finalizers)
	// Output:
	// <nil>
	// [example.com/cleanup example.com/other]
}

// A deadline is measured on a clock that a test can set, from a time that survives restarts.
func ExampleWithClock() {
	db := database()
	db.Finalizers = []string{"example.com/cleanup"}
	c := server(db)
	_ = c.Delete(context.Background(), db)
	now := start()
	f, _ := finalizers.New("example.com/cleanup", []finalizers.Step[*corev1.ConfigMap]{{
		Name:     "remote",
		Deadline: time.Hour,
		Do: func(context.Context, finalizers.Deletion[*corev1.ConfigMap]) finalizers.Outcome {
			return finalizers.Wait(time.Minute)
		},
	}}, finalizers.WithClock(func() time.Time { return now }))
	for range 2 {
		res, err := f.Sync(context.Background(), c, c, fetch(c, db), nil)
		fmt.Println(res.Phase, res.Progress, res.RequeueAfter, err)
		now = now.Add(time.Hour)
	}
	// Output:
	// Cleaning remote: Wait since 2026-03-01T10:00:00Z 1m0s <nil>
	// Cleaning remote: Stuck since 2026-03-01T10:00:00Z 10m0s <nil>
}

// What was given up is said before it is forgotten.
func ExampleWithObserver() {
	db := database()
	db.Finalizers = []string{"example.com/cleanup"}
	c := server(db)
	_ = c.Delete(context.Background(), db)
	now := start()
	f, _ := finalizers.New("example.com/cleanup", []finalizers.Step[*corev1.ConfigMap]{{
		Name: "bucket", Deadline: time.Hour, Overrun: finalizers.Skip,
		Do: func(context.Context, finalizers.Deletion[*corev1.ConfigMap]) finalizers.Outcome {
			return finalizers.Retry(errors.New("connection refused"))
		},
	}}, finalizers.WithClock(func() time.Time { return now }), finalizers.WithObserver(func(e finalizers.Event) {
		fmt.Println(e.Kind, "regarding", e.Regarding, "-", e.Message)
	}))
	for range 2 {
		res, err := f.Sync(context.Background(), c, c, fetch(c, db), nil)
		fmt.Println(res.Phase, err)
		now = now.Add(time.Hour)
	}
	// Output:
	// Step regarding ConfigMap default/orders - bucket: Retry since 2026-03-01T10:00:00Z
	// Cleaning cleanup step "bucket": connection refused
	// Skipped regarding ConfigMap default/orders - cleanup step "bucket" was given up after its deadline of 1h0m0s: connection refused; what it should have cleaned up may be left behind
	// Released regarding ConfigMap default/orders - the cleanup is over and the finalizer is removed
	// Released <nil>
}

// outcome runs one pass of a cleanup with one step.
func outcome(o finalizers.Outcome) {
	db := database()
	db.Finalizers = []string{"example.com/cleanup"}
	c := server(db)
	_ = c.Delete(context.Background(), db)
	f, _ := finalizers.New("example.com/cleanup", []finalizers.Step[*corev1.ConfigMap]{{
		Name: "step", Do: func(context.Context, finalizers.Deletion[*corev1.ConfigMap]) finalizers.Outcome { return o },
	}}, finalizers.WithClock(start))
	res, err := f.Sync(context.Background(), c, c, fetch(c, db), nil)
	fmt.Println(res.Phase, "/", res.Progress, "/ again after", res.RequeueAfter, "/", err)
}

func ExampleDone() {
	outcome(finalizers.Done())
	// Output: Released / step: Done / again after 0s / <nil>
}

func ExampleWait() {
	outcome(finalizers.Wait(0))
	// Output: Cleaning / step: Wait since 2026-03-01T10:00:00Z / again after 10s / <nil>
}

func ExampleBlockedBy() {
	outcome(finalizers.BlockedBy(finalizers.Ref{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "default", Name: "data"}))
	// Output: Cleaning / step: BlockedBy PersistentVolumeClaim default/data since 2026-03-01T10:00:00Z / again after 10s / <nil>
}

func ExampleRetry() {
	outcome(finalizers.Retry(errors.New("connection refused")))
	// Output: Cleaning / step: Retry since 2026-03-01T10:00:00Z / again after 0s / cleanup step "step": connection refused
}

func ExampleStuck() {
	outcome(finalizers.Stuck(errors.New("the credentials are gone")))
	// Output: Cleaning / step: Stuck since 2026-03-01T10:00:00Z / again after 10m0s / <nil>
}

// A step that looks at the children finds out what the owner does not show any more.
func ExampleOutcome_Under() {
	db := database()
	db.Finalizers = []string{"example.com/cleanup"}
	c := server(db)
	_ = c.Delete(context.Background(), db)
	f, _ := finalizers.New("example.com/cleanup", []finalizers.Step[*corev1.ConfigMap]{
		{Name: "look", Do: func(context.Context, finalizers.Deletion[*corev1.ConfigMap]) finalizers.Outcome {
			return finalizers.Done().Under(metav1.DeletePropagationOrphan) // a child has lost its reference
		}},
		{Name: "volumes", After: []string{"look"}, Do: func(_ context.Context, d finalizers.Deletion[*corev1.ConfigMap]) finalizers.Outcome {
			fmt.Println("policy:", d.Policy)
			return finalizers.Done()
		}},
	})
	res, err := f.Sync(context.Background(), c, c, fetch(c, db), nil)
	fmt.Println(res.Phase, err)
	// Output:
	// policy: Orphan
	// Released <nil>
}

// A status page or a kubectl plugin needs no Finalizer to see where a cleanup is.
func ExampleProgressOf() {
	db := database()
	db.Annotations = map[string]string{finalizers.Annotation: `{"uid":"6c1e","by":{"example.com/cleanup":{"steps":[
		{"step":"backup","state":"Done"},
		{"step":"volumes","state":"BlockedBy","since":"2026-03-01T10:00:00Z","blocker":{"kind":"Pod","namespace":"default","name":"orders-0"}}]}}}`}
	p, ok := finalizers.ProgressOf(db)
	fmt.Println(ok, p)
	current, _ := p.Current()
	fmt.Println(current.Step, "waits for", current.Blocker)
	// Output:
	// true backup: Done, volumes: BlockedBy Pod default/orders-0 since 2026-03-01T10:00:00Z
	// volumes waits for Pod default/orders-0
}

func ExampleHold() {
	db := database()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "credentials", UID: "9a2f"}}
	ctx, c := context.Background(), server(db, secret)
	fmt.Println("hold:", finalizers.Hold(ctx, c, db, secret))

	_ = c.Delete(ctx, secret.DeepCopy())
	held := &corev1.Secret{}
	err := c.Get(ctx, client.ObjectKeyFromObject(secret), held)
	fmt.Println("deleted, and still readable:", err == nil, held.Finalizers)

	fmt.Println("unhold:", finalizers.Unhold(ctx, c, db, held))
	fmt.Println(c.Get(ctx, client.ObjectKeyFromObject(secret), held))
	// Output:
	// hold: <nil>
	// deleted, and still readable: true [ashlar-go.github.io/hold-configmap-0fbccf-948752fc225b6c2525b8b9450e8d99]
	// unhold: <nil>
	// secrets "credentials" not found
}

func ExampleUnhold() {
	db := database()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "credentials", UID: "9a2f"}}
	c := server(db, secret)
	// Not held, or gone: nothing to release, no error.
	fmt.Println(finalizers.Unhold(context.Background(), c, db, secret))
	// Output: <nil>
}

func ExampleSweep() {
	db := database()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "credentials", UID: "9a2f"}}
	ctx, c := context.Background(), server(db, secret)
	_ = finalizers.Hold(ctx, c, db, secret)
	_ = c.Delete(ctx, db) // by force: no cleanup step has run

	configMaps := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	secrets := schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	for ref, err := range finalizers.Sweep(ctx, c, configMaps, secrets) {
		fmt.Println(ref, err)
	}
	// Output:
	// Secret default/credentials (finalizer ashlar-go.github.io/hold-configmap-0fbccf-948752fc225b6c2525b8b9450e8d99) <nil>
}
