// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/ashlar-go/ashlar/finalizers"
	"github.com/ashlar-go/ashlar/finalizers/finalizerstest"
)

const (
	name  = "example.com/cleanup"
	other = "example.com/other"
	uid   = types.UID("11111111-1111-4111-8111-111111111111")
)

// start is the time all test clocks begin at.
func start() time.Time { return time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC) }

// world is a strict in-memory server, seen through a client that records what our code sends and lets a test act
// between a read and a write.
type world struct {
	client.Client               // what the code under test gets
	base          client.Client // for everybody else
	t             testing.TB

	sent   []string // "PATCH <body>", "GET <name>", … in order
	before func(n int, req string) error
	after  func(n int, req string)
}

func newWorld(t testing.TB, objs ...client.Object) *world {
	t.Helper()
	base := finalizerstest.Strict(fake.NewClientBuilder().WithObjects(objs...).Build())
	w := &world{base: base, t: t}
	w.Client = &recorder{Client: base, w: w}
	return w
}

type recorder struct {
	client.Client
	w *world
}

func (r *recorder) request(req string, do func() error) error {
	n := len(r.w.sent)
	r.w.sent = append(r.w.sent, req)
	if r.w.before != nil {
		if err := r.w.before(n, req); err != nil {
			return err
		}
	}
	err := do()
	if r.w.after != nil {
		r.w.after(n, req)
	}
	return err
}

func (r *recorder) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return r.request("GET "+key.Name, func() error { return r.Client.Get(ctx, key, obj, opts...) })
}

func (r *recorder) Patch(ctx context.Context, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
	body, err := p.Data(obj)
	if err != nil {
		return err
	}
	kind := ""
	if p.Type() != types.JSONPatchType {
		kind = string(p.Type()) + " "
	}
	return r.request("PATCH "+kind+string(body), func() error { return r.Client.Patch(ctx, obj, p, opts...) })
}

func (r *recorder) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return r.request("PUT "+obj.GetName(), func() error { return r.Client.Update(ctx, obj, opts...) })
}

func (r *recorder) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	return r.request("DELETE "+obj.GetName(), func() error { return r.Client.Delete(ctx, obj, opts...) })
}

// get reads an object as a cache would have it now.
func (w *world) get(key string) *corev1.ConfigMap {
	w.t.Helper()
	obj := &corev1.ConfigMap{}
	if err := w.base.Get(w.t.Context(), client.ObjectKey{Namespace: "ns", Name: key}, obj); err != nil {
		w.t.Fatalf("get %s: %v", key, err)
	}
	return obj
}

// exists reports whether an object is still stored.
func (w *world) exists(key string) bool {
	w.t.Helper()
	err := w.base.Get(w.t.Context(), client.ObjectKey{Namespace: "ns", Name: key}, &corev1.ConfigMap{})
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatalf("get %s: %v", key, err)
	}
	return err == nil
}

// set is another controller that writes the whole list of finalizers.
func (w *world) set(key string, list ...string) {
	w.t.Helper()
	obj := w.get(key)
	obj.Finalizers = list
	if err := w.base.Update(w.t.Context(), obj); err != nil {
		w.t.Fatalf("set finalizers of %s: %v", key, err)
	}
}

func (w *world) delete(key string) {
	w.t.Helper()
	if err := w.base.Delete(w.t.Context(), w.get(key)); err != nil {
		w.t.Fatalf("delete %s: %v", key, err)
	}
}

// wantSent compares what was sent so far with want, and forgets it.
func (w *world) wantSent(want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.sent); diff != "" {
		w.t.Errorf("requests (-want +got):\n%s", diff)
	}
	w.sent = nil
}

// wantVerbs is wantSent without the bodies.
func (w *world) wantVerbs(want ...string) {
	w.t.Helper()
	for i, req := range w.sent {
		w.sent[i], _, _ = strings.Cut(req, " ")
	}
	w.wantSent(want...)
}

func configMap(key string, list ...string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: key, Namespace: "ns", UID: uid, Finalizers: list}}
}

func terminating(key string, list ...string) *corev1.ConfigMap {
	obj := configMap(key, list...)
	obj.DeletionTimestamp = &metav1.Time{Time: start()}
	return obj
}

type (
	step   = finalizers.Step[*corev1.ConfigMap]
	result = finalizers.Result[*corev1.ConfigMap]
)

// steps makes steps without dependencies that all are Done.
func done(context.Context, finalizers.Deletion[*corev1.ConfigMap]) finalizers.Outcome {
	return finalizers.Done()
}

func mustNew(t testing.TB, steps []step, opts ...finalizers.Option) *finalizers.Finalizer[*corev1.ConfigMap] {
	t.Helper()
	f, err := finalizers.New(name, steps, append([]finalizers.Option{finalizers.WithClock(start)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// applied counts calls of apply and remembers the object.
type applied struct {
	calls int
	last  *corev1.ConfigMap
}

func (a *applied) apply(_ context.Context, obj *corev1.ConfigMap) (time.Duration, error) {
	a.calls++
	a.last = obj
	return 7 * time.Second, nil
}

// say makes a Do that answers with the given outcomes in turn, the last one for ever, and logs its calls.
func say(log *[]string, as string, outcomes ...finalizers.Outcome) func(context.Context, finalizers.Deletion[*corev1.ConfigMap]) finalizers.Outcome {
	calls := 0
	return func(context.Context, finalizers.Deletion[*corev1.ConfigMap]) finalizers.Outcome {
		*log = append(*log, as)
		o := outcomes[min(calls, len(outcomes)-1)]
		calls++
		return o
	}
}

func uidTest() string { return fmt.Sprintf(`{"op":"test","path":"/metadata/uid","value":%q}`, uid) }

func jsonOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}
