// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/finalizers"
)

// hold is the hold of the owner that configMap("owner") is. The hash is part of what is stored on objects, so it must
// never change.
const hold = "ashlar-go.github.io/hold-configmap-0fbccf-bd7662a5eeb41614e720d477abfcb2"

func TestHoldName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, configMap("secret"))
	if err := finalizers.Hold(t.Context(), w, configMap("owner"), w.get("secret")); err != nil {
		t.Fatal(err)
	}
	got := w.get("secret").Finalizers
	if diff := cmp.Diff([]string{hold}, got); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	if bad := validation.IsQualifiedName(hold); bad != nil {
		t.Errorf("the server would not take %q: %q", hold, bad)
	}
}

// TestHold covers what may have happened to the object since it was read.
func TestHold(t *testing.T) {
	t.Parallel()
	gone := func(w *world) { w.delete("secret") }
	tests := map[string]struct {
		reason    string
		have      []string
		deleted   bool
		meanwhile func(*world)
		verbs     []string
		err       error
		want      []string
	}{
		"first":         {reason: "one request", verbs: []string{"PATCH"}, want: []string{hold}},
		"with others":   {reason: "one request", have: []string{other}, verbs: []string{"PATCH"}, want: []string{other, hold}},
		"held already":  {reason: "nothing to do, so apply may call it in every pass", have: []string{hold}, want: []string{hold}},
		"held, deleted": {reason: "that is what the hold is for", have: []string{hold}, deleted: true, want: []string{hold}},
		"being deleted": {reason: "the server takes no more finalizers, so nothing is sent", have: []string{other}, deleted: true, err: finalizers.ErrTerminating, want: []string{other}},
		"deleted meanwhile": {
			reason: "refused by the server; a patch that changes nothing says why", have: []string{other}, meanwhile: gone,
			verbs: []string{"PATCH", "PATCH"}, err: finalizers.ErrTerminating, want: []string{other},
		},
		"gone meanwhile": {reason: "404", meanwhile: gone, verbs: []string{"PATCH"}, err: finalizers.ErrGone},
		"recreated meanwhile": {
			reason: "another object of that name is not the one that was asked for",
			meanwhile: func(w *world) {
				w.delete("secret")
				next := configMap("secret")
				next.UID = "another"
				if err := w.base.Create(w.t.Context(), next); err != nil {
					w.t.Error(err)
				}
			},
			verbs: []string{"PATCH", "PATCH"}, err: finalizers.ErrGone,
		},
		"another hold meanwhile": {
			reason: "the list is not absent any more, so the patch is decided again", meanwhile: func(w *world) { w.set("secret", other) },
			verbs: []string{"PATCH", "PATCH", "PATCH"}, want: []string{other, hold},
		},
		"held meanwhile": {
			reason: "another process of ours was faster", meanwhile: func(w *world) { w.set("secret", hold) },
			verbs: []string{"PATCH", "PATCH"}, want: []string{hold},
		},
	}
	for title, tt := range tests {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			secret := configMap("secret", tt.have...)
			if tt.deleted {
				secret = terminating("secret", tt.have...)
			}
			w := newWorld(t, secret)
			w.before = func(n int, _ string) error {
				if n == 0 && tt.meanwhile != nil {
					tt.meanwhile(w)
				}
				return nil
			}
			needed := w.get("secret")
			before := needed.DeepCopy()
			err := finalizers.Hold(t.Context(), w, configMap("owner"), needed)
			var e *finalizers.Error
			if !errors.Is(err, tt.err) || tt.err != nil && (!errors.As(err, &e) || e.Object.Name != "secret") {
				t.Errorf("%s: Hold = %v, want %v", tt.reason, err, tt.err)
			}
			w.wantVerbs(tt.verbs...)
			if w.exists("secret") {
				if diff := cmp.Diff(tt.want, w.get("secret").Finalizers); diff != "" {
					t.Errorf("%s: stored (-want +got):\n%s", tt.reason, diff)
				}
			}
			if diff := cmp.Diff(before, needed); diff != "" {
				t.Errorf("the argument was changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestUnhold(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason    string
		have      []string
		deleted   bool
		meanwhile func(*world)
		verbs     []string
		want      []string
	}{
		"held":             {reason: "others keep their place", have: []string{other, hold, "example.com/x"}, verbs: []string{"PATCH"}, want: []string{other, "example.com/x"}},
		"twice":            {reason: "all of them", have: []string{hold, other, hold}, verbs: []string{"PATCH"}, want: []string{other}},
		"not held":         {reason: "the cache may be behind, so the server is asked", have: []string{other}, verbs: []string{"PATCH"}, want: []string{other}},
		"deleted":          {reason: "only the hold kept it", have: []string{hold}, deleted: true, verbs: []string{"PATCH"}},
		"another's hold":   {reason: "several owners may hold one object", have: []string{hold[:len(hold)-1] + "0"}, verbs: []string{"PATCH"}, want: []string{hold[:len(hold)-1] + "0"}},
		"gone meanwhile":   {reason: "released all the same", have: []string{hold}, meanwhile: func(w *world) { w.set("secret"); w.delete("secret") }, verbs: []string{"PATCH"}},
		"moved meanwhile":  {reason: "the index is another by now", have: []string{other, hold}, meanwhile: func(w *world) { w.set("secret", hold) }, verbs: []string{"PATCH", "PATCH", "PATCH"}},
		"held meanwhile":   {reason: "the copy is older than the hold", have: []string{other}, meanwhile: func(w *world) { w.set("secret", other, hold) }, verbs: []string{"PATCH", "PATCH"}, want: []string{other}},
		"unheld meanwhile": {reason: "another process of ours was faster", have: []string{other, hold}, meanwhile: func(w *world) { w.set("secret", other) }, verbs: []string{"PATCH", "PATCH"}, want: []string{other}},
	}
	for title, tt := range tests {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			secret := configMap("secret", tt.have...)
			if tt.deleted {
				secret = terminating("secret", tt.have...)
			}
			w := newWorld(t, secret)
			w.before = func(n int, _ string) error {
				if n == 0 && tt.meanwhile != nil {
					tt.meanwhile(w)
				}
				return nil
			}
			if err := finalizers.Unhold(t.Context(), w, configMap("owner"), w.get("secret")); err != nil {
				t.Errorf("%s: Unhold = %v", tt.reason, err)
			}
			w.wantVerbs(tt.verbs...)
			if w.exists("secret") {
				if diff := cmp.Diff(tt.want, w.get("secret").Finalizers); diff != "" {
					t.Errorf("%s: stored (-want +got):\n%s", tt.reason, diff)
				}
			}
		})
	}
}

func TestHoldTriesAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t, terminating("one", other), configMap("two"))
	err := finalizers.Hold(t.Context(), w, configMap("owner"), w.get("one"), &corev1.ConfigMap{}, w.get("two"))
	if !errors.Is(err, finalizers.ErrTerminating) || !strings.Contains(err.Error(), "metadata.uid is empty") {
		t.Errorf("Hold = %v", err)
	}
	if got := w.get("two").Finalizers; len(got) != 1 {
		t.Errorf("the last one has %q", got)
	}
	if err := finalizers.Hold(t.Context(), w, &corev1.ConfigMap{}, w.get("two")); err == nil {
		t.Error("an owner without a uid would make a hold that nobody finds again")
	}
	if err := finalizers.Unhold(t.Context(), w, configMap("owner"), &corev1.ConfigMap{}); err == nil {
		t.Error("an object without a uid was not read")
	}
}

// TestSweep: one owner is alive, one is gone, one is of another kind, and the lists come in pages.
func TestSweep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	secrets := schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	create := func(obj client.Object) {
		if err := w.base.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	secret := func(name string) *corev1.Secret {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		create(s)
		return s
	}
	alive, dead := configMap("alive"), configMap("dead")
	alive.UID, dead.UID = "alive", "dead"
	create(alive)
	foreign := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "dead"}}
	for _, h := range []struct {
		owner  client.Object
		needed []client.Object
	}{
		{alive, []client.Object{secret("a")}},
		{dead, []client.Object{secret("b"), secret("c")}},
		{foreign, []client.Object{secret("d")}},
	} {
		if err := finalizers.Hold(t.Context(), w, h.owner, h.needed...); err != nil {
			t.Fatal(err)
		}
	}
	live := &pages{Client: w.base}
	var got []string
	for ref, err := range finalizers.Sweep(t.Context(), live, gvk, secrets, gvk) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %s/%s", ref.Kind, ref.Namespace, ref.Name))
		if !strings.HasPrefix(ref.Finalizer, "ashlar-go.github.io/hold-configmap-") || ref.APIVersion != "v1" || ref.UID == "" {
			t.Errorf("found %+v", ref)
		}
	}
	if diff := cmp.Diff([]string{"Secret ns/b", "Secret ns/c"}, got); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
	if len(live.asked) != 6 || live.asked[0] != "SecretList 500" {
		t.Errorf("lists %q; want pages", live.asked)
	}
	for range finalizers.Sweep(t.Context(), live, gvk, secrets) {
		break // must not go on yielding
	}
}

func TestSweepSaysWhatItCannotSee(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}}
	if err := w.base.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := finalizers.Hold(t.Context(), w, configMap("owner"), s); err != nil {
		t.Fatal(err)
	}
	gvk := func(kind string) schema.GroupVersionKind { return schema.GroupVersionKind{Version: "v1", Kind: kind} }
	for title, tt := range map[string]struct {
		broken string
		expire bool
		want   string
	}{
		"held kind":   {broken: "PodList", want: "error Pod, ref Secret"},
		"owners":      {broken: "ConfigMapList", want: "error ConfigMap"},
		"expired":     {expire: true, want: "ref Secret"},
		"undisturbed": {want: "ref Secret"},
	} {
		live := &pages{Client: w.base, broken: tt.broken, expire: tt.expire}
		var got []string
		for ref, err := range finalizers.Sweep(t.Context(), live, gvk("ConfigMap"), gvk("Pod"), gvk("Secret")) {
			var e *finalizers.Error
			if errors.As(err, &e) {
				got = append(got, "error "+e.Object.Kind)
			} else {
				got = append(got, "ref "+ref.Kind)
			}
		}
		if diff := cmp.Diff(tt.want, strings.Join(got, ", ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", title, diff)
		}
	}
}

// pages answers lists one object at a time, as a server with a small limit does.
type pages struct {
	client.Client
	asked  []string
	broken string // kind of list that fails
	expire bool   // the first page with a token has expired
}

func (p *pages) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	kind := list.GetObjectKind().GroupVersionKind().Kind
	p.asked = append(p.asked, fmt.Sprint(kind, " ", o.Limit))
	if kind == p.broken {
		return errors.New("broken")
	}
	if p.expire && o.Limit > 0 {
		return apierrors.NewResourceExpired("too old")
	}
	if err := p.Client.List(ctx, list); err != nil || o.Limit == 0 {
		return err
	}
	l := list.(*metav1.PartialObjectMetadataList)
	from := len(o.Continue) // the token is as long as the number of objects seen
	l.Items, l.Continue = l.Items[from:], ""
	if len(l.Items) > 1 {
		l.Items, l.Continue = l.Items[:1], strings.Repeat("x", from+1)
	}
	return nil
}
