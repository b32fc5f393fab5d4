// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownershiptest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/ownership"
	"github.com/ashlar-go/ashlar/ownership/apply"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Walk is a random life of two owners and six children on an API server: declarations change, children are deleted,
// created by strangers, changed, stripped of their claim, taken by another controller and handed over, owners are deleted
// with every policy and made anew, adoption is switched on and off, and the process is replaced. After each step both
// owners are reconciled until nothing changes, and the server must hold exactly what a small model says: which children
// exist, in which incarnation, whose they are and what is in them. Once it does, another pass must write nothing.
//
// Use it to try the stack below an Applier: a server, a proxy, admission, a client of your own. Owners are ConfigMaps,
// children Secrets (claimed natively) and ServiceAccounts (claimed by label).
type Walk struct {
	// Client reads and writes. It must show what was written: a lagging cache is not what is tried here.
	Client client.Client
	// Namespace everything happens in. It must exist and hold nothing with the walk's names.
	Namespace string
	// Seed of the walk: equal seeds make equal walks, on every server.
	Seed uint64
	// Steps of the walk.
	Steps int
	// Collect is called, again and again, while the walk waits for the garbage collector: let it run, or sleep.
	Collect func(context.Context)
}

const (
	walkFinalizer = "ashlar-go.github.io/walk"
	walkPatience  = time.Minute
	walkKids      = 6
)

var (
	walkOwnerKind  = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	walkNativeKind = schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	walkLabelKind  = schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"}
)

// walker is a walk at work.
type walker struct {
	Walk
	t      testing.TB
	ctx    context.Context
	random *rand.Rand
	set    *ownership.Set
	writes *countingClient
	kids   *apply.Applier
	model  walkModel
	owners [2]*unstructured.Unstructured
	log    []string

	stranger *unstructured.Unstructured
}

// Run takes all steps, or fails t at the first one after which the server and the model differ.
//
// Requests: some thirty per step.
func (w Walk) Run(t testing.TB) {
	t.Helper()
	set, err := ownership.New("walk", walkOwnerKind, []ownership.Kind{
		{GroupVersionKind: walkNativeKind}, {GroupVersionKind: walkLabelKind, Carrier: ownership.Label},
	}, ownership.WithFinalizer(walkFinalizer))
	if err != nil {
		t.Fatal(err)
	}
	r := &walker{Walk: w, t: t, ctx: t.Context(), set: set, random: rand.New(rand.NewPCG(w.Seed, w.Seed)),
		writes: &countingClient{Client: w.Client}}
	r.restart()
	r.stranger = r.object(walkOwnerKind, "walk-stranger")
	r.must(r.Client.Create(r.ctx, r.stranger))
	for i := range r.owners {
		r.createOwner(i)
	}
	for step := range w.Steps {
		what := r.step()
		r.log = append(r.log, fmt.Sprintf("%d: %s", step, what))
		if len(r.log) > 40 {
			r.log = r.log[1:]
		}
		r.settle()
		if t.Failed() {
			for _, line := range r.log {
				t.Log(line)
			}
			t.FailNow()
		}
	}
}

// countingClient counts writes to children.
type countingClient struct {
	client.Client
	n int
}

func (c *countingClient) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	c.n++
	return c.Client.Apply(ctx, o, opts...)
}

func (c *countingClient) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	c.n++
	return c.Client.Patch(ctx, o, p, opts...)
}

func (c *countingClient) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	c.n++
	return c.Client.Delete(ctx, o, opts...)
}

// must fails the walk on an error.
func (w *walker) must(err error) {
	w.t.Helper()
	if err != nil {
		for _, line := range w.log {
			w.t.Log(line)
		}
		w.t.Fatal(err)
	}
}

// restart is a new process: one that remembers nothing.
func (w *walker) restart() {
	kids, err := apply.New(w.writes, w.Client, w.set, apply.WithParallel(1))
	w.must(err)
	w.kids = kids
}

func walkOwnerName(i int) string { return "walk-owner-" + string(rune('a'+i)) }

func (w *walker) createOwner(i int) {
	w.owners[i] = w.object(walkOwnerKind, walkOwnerName(i))
	w.owners[i].SetFinalizers([]string{walkFinalizer})
	w.must(w.Client.Create(w.ctx, w.owners[i]))
}

func (w *walker) object(gvk schema.GroupVersionKind, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(gvk)
	u.SetNamespace(w.Namespace)
	u.SetName(name)
	return u
}

// kid is a child without content: even ones are native.
func (w *walker) kid(i int) *unstructured.Unstructured {
	if i%2 == 0 {
		return w.object(walkNativeKind, fmt.Sprintf("walk-%d", i))
	}
	return w.object(walkLabelKind, fmt.Sprintf("walk-%d", i))
}

// The content of a child is one annotation: every kind has those.
const walkContent = "example.com/content"

func (w *walker) withContent(i, v int) *unstructured.Unstructured {
	u := w.kid(i)
	u.SetAnnotations(map[string]string{walkContent: fmt.Sprint(v)})
	return u
}

// live is a child as it is, nil when there is none.
func (w *walker) live(i int) *unstructured.Unstructured {
	u := w.kid(i)
	err := w.Client.Get(w.ctx, client.ObjectKeyFromObject(u), u)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return u
}

// until waits for the garbage collector.
func (w *walker) until(what string, is func() bool) {
	w.t.Helper()
	for begin := time.Now(); !is(); {
		if w.must(w.ctx.Err()); time.Since(begin) > walkPatience {
			w.must(fmt.Errorf("%s: not after %s", what, walkPatience))
		}
		w.Collect(w.ctx)
	}
}

// settle reconciles both owners until nothing changes, and compares.
func (w *walker) settle() {
	w.t.Helper()
	for pass := 0; ; pass++ {
		before := w.writes.n
		for i := range w.owners {
			w.reconcile(i)
		}
		w.model.reconcile()
		if w.writes.n == before {
			break
		}
		if pass == 5 {
			w.t.Errorf("no rest after %d passes", pass)
			return
		}
	}
	live := map[string]*unstructured.Unstructured{}
	for _, gvk := range []schema.GroupVersionKind{walkNativeKind, walkLabelKind} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		w.must(w.Client.List(w.ctx, list, client.InNamespace(w.Namespace)))
		for i := range list.Items {
			live[list.Items[i].GetName()] = &list.Items[i]
		}
	}
	for i := range walkKids {
		w.compare(i, live[w.kid(i).GetName()])
	}
}

func (w *walker) reconcile(i int) {
	var desired []client.Object
	for k, v := range w.model.owners[i].declares {
		if v != 0 {
			desired = append(desired, w.withContent(k, v))
		}
	}
	res, err := w.kids.Sync(w.ctx, w.owners[i], desired, ownership.Policy{Adopt: w.model.adopt, AllowEmpty: true})
	w.must(err)
	for _, d := range res.Decisions {
		if d.Verb != ownership.Keep {
			w.log = append(w.log, fmt.Sprintf("  owner %d: %s", i, d))
		}
	}
}

// compare holds one child against the model.
func (w *walker) compare(i int, u *unstructured.Unstructured) {
	w.t.Helper()
	want := &w.model.kids[i]
	name := fmt.Sprintf("%s walk-%d", w.kid(i).GetKind(), i)
	if u == nil || want.holder == absent {
		if u != nil || want.holder != absent {
			w.t.Errorf("%s: exists %v, want %v", name, u != nil, want.holder != absent)
		}
		want.uid = ""
		return
	}
	if string(u.GetUID()) == want.uid == want.fresh {
		w.t.Errorf("%s: created anew %v, want %v", name, !want.fresh, want.fresh)
	}
	want.uid, want.fresh = string(u.GetUID()), false
	holder := loose
	for o := range w.owners {
		if w.set.Claimed(w.owners[o], u) {
			holder = holderOf(o)
		}
	}
	for _, r := range u.GetOwnerReferences() {
		if r.UID == w.stranger.GetUID() {
			holder = taken
		}
	}
	if holder != want.holder {
		w.t.Errorf("%s: held by %s, want %s", name, holder, want.holder)
	}
	if got := u.GetAnnotations()[walkContent]; got != fmt.Sprint(want.content) {
		w.t.Errorf("%s: content %s, want %d", name, got, want.content)
	}
}

// deleteOwner deletes an owner, cleans up after it as an operator does, and makes it anew.
func (w *walker) deleteOwner(i int, policy metav1.DeletionPropagation, patient bool) {
	key := client.ObjectKeyFromObject(w.owners[i])
	uid, rv := w.owners[i].GetUID(), w.owners[i].GetResourceVersion()
	w.must(w.Client.Delete(w.ctx, w.owners[i].DeepCopy(), client.PropagationPolicy(policy), client.Preconditions{UID: &uid, ResourceVersion: &rv}))
	read := func() *unstructured.Unstructured {
		u := w.object(walkOwnerKind, key.Name)
		if err := w.Client.Get(w.ctx, key, u); err != nil {
			w.must(client.IgnoreNotFound(err))
			return nil
		}
		return u
	}
	if patient {
		w.until("finalizers of the garbage collector", func() bool { return len(read().GetFinalizers()) == 1 })
	}
	w.until("teardown of "+key.Name, func() bool {
		res, err := w.kids.Teardown(w.ctx, read())
		w.must(err)
		return res.Done()
	})
	u := read()
	patch := fmt.Sprintf(`[{"op":"test","path":"/metadata/uid","value":%q},{"op":"test","path":"/metadata/finalizers/0","value":%q},{"op":"remove","path":"/metadata/finalizers/0"}]`,
		u.GetUID(), walkFinalizer)
	w.must(w.Client.Patch(w.ctx, u, client.RawPatch(types.JSONPatchType, []byte(patch))))
	w.until("end of "+key.Name, func() bool { return read() == nil })
	w.until("children of "+key.Name, func() bool {
		for k := 0; k < walkKids; k += 2 {
			if kid := w.live(k); kid != nil && len(kid.GetOwnerReferences()) > 0 && kid.GetOwnerReferences()[0].UID == uid {
				return false
			}
		}
		return true
	})
	w.createOwner(i)
}
