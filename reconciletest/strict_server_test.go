// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/reconciletest"
)

// strictClient is controller-runtime's client with nothing but the server's own discovery.
func strictClient(t *testing.T, rt http.RoundTripper) client.WithWatch {
	t.Helper()
	config := &rest.Config{
		Host: "https://strict", Transport: rt, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: coreScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func widget(name string, refs ...metav1.OwnerReference) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"}}
	u.SetNamespace("shop")
	u.SetName(name)
	u.SetOwnerReferences(refs)
	return u
}

func ownedBy(owner client.Object, blocking bool) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Widget", Name: owner.GetName(), UID: owner.GetUID(), BlockOwnerDeletion: &blocking}
}

func create(t *testing.T, c client.Client, objs ...client.Object) {
	t.Helper()
	for _, o := range objs {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// names lists the widgets with their finalizers.
func names(t *testing.T, c client.Client) []string {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "WidgetList"})
	if err := c.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, u := range list.Items {
		out = append(out, strings.Join(append([]string{u.GetName()}, u.GetFinalizers()...), " "))
	}
	return out
}

func TestStrictServerCollectsByPolicy(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		policy metav1.DeletionPropagation
		held   bool // the owner has a finalizer of its own
		before []string
		after  []string
	}{
		"background": {
			reason: "the owner goes first, the children when the collector comes by", policy: metav1.DeletePropagationBackground,
			before: []string{"child-a", "child-b"},
		},
		"background, held": {
			reason: "children live as long as a finalizer holds the owner", policy: metav1.DeletePropagationBackground, held: true,
			before: []string{"child-a", "child-b", "owner x.io/hold"}, after: []string{"child-a", "child-b", "owner x.io/hold"},
		},
		"foreground": {
			reason: "children first, then the owner", policy: metav1.DeletePropagationForeground,
			before: []string{"child-a", "child-b", "owner foregroundDeletion"},
		},
		"foreground, held": {
			reason: "children, blocking or not, go while our finalizer is still there", policy: metav1.DeletePropagationForeground, held: true,
			before: []string{"child-a", "child-b", "owner x.io/hold foregroundDeletion"}, after: []string{"owner x.io/hold"},
		},
		"orphan": {
			reason: "children stay", policy: metav1.DeletePropagationOrphan,
			before: []string{"child-a", "child-b", "owner orphan"}, after: []string{"child-a", "child-b"},
		},
		"orphan, held": {
			reason: "the orphan finalizer goes although ours holds the owner", policy: metav1.DeletePropagationOrphan, held: true,
			before: []string{"child-a", "child-b", "owner x.io/hold orphan"}, after: []string{"child-a", "child-b", "owner x.io/hold"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := widgets(t)
			c := strictClient(t, s)
			owner := widget("owner")
			if tc.held {
				owner.SetFinalizers([]string{"x.io/hold"})
			}
			create(t, c, owner)
			create(t, c, widget("child-a", ownedBy(owner, true)), widget("child-b", ownedBy(owner, false)))
			if err := c.Delete(t.Context(), owner, client.PropagationPolicy(tc.policy)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.before, names(t, c)); diff != "" {
				t.Errorf("%s: before the collector (-want +got):\n%s", tc.reason, diff)
			}
			did := s.Collect()
			if diff := cmp.Diff(tc.after, names(t, c)); diff != "" {
				t.Errorf("%s: after it did %q (-want +got):\n%s", tc.reason, did, diff)
			}
			if again := s.Collect(); again != nil {
				t.Errorf("nothing was left to do, and it did %q", again)
			}
		})
	}
}

func TestStrictServerCollectLooksWhereTheCollectorLooks(t *testing.T) {
	t.Parallel()
	s := widgets(t)
	c := strictClient(t, s)
	owner := widget("owner")
	create(t, c, owner)
	namesake, unserved := ownedBy(owner, false), ownedBy(owner, false)
	namesake.UID = "gone"
	unserved.APIVersion, unserved.UID = "example.com/v9", "gone"

	elsewhere := widget("elsewhere", ownedBy(owner, false))
	elsewhere.SetNamespace("other")
	create(t, c, elsewhere, widget("namesake", namesake), widget("unserved", unserved), widget("two", ownedBy(owner, false), namesake),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "cluster", OwnerReferences: []metav1.OwnerReference{namesake}}})
	s.Collect()

	if diff := cmp.Diff([]string{"owner", "two", "unserved"}, names(t, c)); diff != "" {
		t.Errorf("a dead owner, and one in another namespace, take the child along; one that is not served does not (-want +got):\n%s", diff)
	}
	two := widget("two")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(two), two); err != nil {
		t.Fatal(err)
	}
	if refs := two.GetOwnerReferences(); len(refs) != 1 || refs[0].UID != owner.GetUID() {
		t.Errorf("references of the child with one living owner: got %v", refs)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "cluster"}, &corev1.Namespace{}); err != nil {
		t.Errorf("a cluster-scoped child of a namespaced owner is leaked: %v", err)
	}
}

func TestStrictServerUnderLaws(t *testing.T) {
	t.Parallel()
	laws := reconciletest.NewLawTransport(nil, widgets(t))
	c := strictClient(t, laws)
	w := widget("a")
	w.SetFinalizers([]string{"x.io/a"})
	create(t, c, w)
	uid, rv, policy := w.GetUID(), w.GetResourceVersion(), client.PropagationPolicy(metav1.DeletePropagationBackground)
	if err := c.Delete(t.Context(), w, policy, client.Preconditions{UID: &uid, ResourceVersion: &rv}); err != nil {
		t.Fatal(err)
	}
	if got := broken(laws); got != nil {
		t.Fatalf("a first, fenced delete: got %v", got)
	}
	if err := c.Delete(t.Context(), w, policy, client.Preconditions{UID: &uid, ResourceVersion: &rv}); !apierrors.IsConflict(err) {
		t.Errorf("with the version from before the first delete: got %v, want a conflict", err)
	}
	if diff := cmp.Diff([]reconciletest.Law{reconciletest.DeleteOnce}, broken(laws)); diff != "" {
		t.Errorf("a second delete (-want +got):\n%s", diff)
	}
}

func TestStrictServerWatch(t *testing.T) {
	t.Parallel()
	c := strictClient(t, widgets(t))
	old := widget("old")
	old.SetLabels(map[string]string{"l": "1"})
	create(t, c, old)

	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "WidgetList"})
	if err := c.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	events, err := c.Watch(ctx, list, client.MatchingLabels{"l": "1"}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()

	other := widget("new")
	create(t, c, other)
	for _, patch := range []string{`{"metadata":{"labels":{"l":"1"}}}`, `{"spec":{"n":1}}`, `{"metadata":{"labels":null}}`} {
		if err := c.Patch(ctx, other, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Delete(ctx, old); err != nil {
		t.Fatal(err)
	}
	var got []string
	for e := range events.ResultChan() {
		u, ok := e.Object.(*unstructured.Unstructured)
		if !ok {
			t.Fatalf("event %v", e)
		}
		got = append(got, string(e.Type)+" "+u.GetName())
		if e.Type == watch.Deleted && u.GetName() == "old" {
			break
		}
	}
	want := []string{"ADDED new", "MODIFIED new", "DELETED new", "DELETED old"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a watcher with a selector sees objects come and go with their labels (-want +got):\n%s", diff)
	}
}

func TestStrictServerWatchesBeginWithWhatIsThere(t *testing.T) {
	t.Parallel()
	s := widgets(t)
	create(t, strictClient(t, s), widget("a"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://strict/apis/example.com/v1/widgets?watch=true&sendInitialEvents=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var got strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(got.String(), metav1.InitialEventsAnnotationKey) {
		n, err := resp.Body.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got.Write(buf[:n])
	}
	if !strings.HasPrefix(got.String(), `{"object":`) || strings.Count(got.String(), "\n") < 1 || !strings.Contains(got.String(), `"type":"ADDED"`) {
		t.Errorf("got %s", got.String())
	}
}

func TestStrictServerMetadataOnly(t *testing.T) {
	t.Parallel()
	c := strictClient(t, widgets(t))
	w := widget("a")
	w.Object["spec"] = map[string]any{"n": int64(1)}
	create(t, c, w)
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(w.GroupVersionKind())
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(w), m); err != nil {
		t.Fatal(err)
	}
	if m.UID != w.GetUID() || m.Kind != "Widget" {
		t.Errorf("got %+v", m)
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(w.GroupVersionKind())
	if err := c.List(t.Context(), list); err != nil || len(list.Items) != 1 {
		t.Errorf("got %d items, %v", len(list.Items), err)
	}
}

func TestStrictServerGivenSchemaDecidesHowListsMerge(t *testing.T) {
	t.Parallel()
	const ports = `{"type":"object","properties":{"spec":{"type":"object","properties":{"ports":{"type":"array",
		"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["port"],"items":{"type":"object","properties":{"port":{"type":"integer"}}}}}}}}`
	s := widgets(t, reconciletest.Resource{
		GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gate"}, Plural: "gates", Schema: []byte(ports),
	})
	c := strictClient(t, s)
	apply := func(manager string, spec map[string]any) (*unstructured.Unstructured, error) {
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Gate", "metadata": map[string]any{"namespace": "shop", "name": "a"}, "spec": spec,
		}}
		return u, c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(manager))
	}
	port := func(n int64) map[string]any { return map[string]any{"ports": []any{map[string]any{"port": n}}} }
	if _, err := apply("one", port(1)); err != nil {
		t.Fatal(err)
	}
	u, err := apply("two", port(2))
	if err != nil {
		t.Fatal(err)
	}
	if got, _, _ := unstructured.NestedSlice(u.Object, "spec", "ports"); len(got) != 2 {
		t.Errorf("two managers, two ports: got %v", got)
	}
	if _, err := apply("two", map[string]any{"gates": int64(1)}); err == nil || !strings.Contains(err.Error(), "not declared in schema") {
		t.Errorf("a field the schema lacks: got %v", err)
	}
}

func TestStrictServerOneWinsARace(t *testing.T) {
	t.Parallel()
	c := strictClient(t, widgets(t))
	w := widget("a")
	create(t, c, w)
	var wg sync.WaitGroup
	var mu sync.Mutex
	won, lost := 0, 0
	for range 8 {
		wg.Go(func() {
			u := w.DeepCopy()
			err := c.Patch(t.Context(), u, client.RawPatch("application/merge-patch+json",
				[]byte(`{"metadata":{"resourceVersion":"`+w.GetResourceVersion()+`"},"spec":{"n":1}}`)))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won++
			case apierrors.IsConflict(err):
				lost++
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won != 1 || lost != 7 {
		t.Errorf("%d won and %d lost, want 1 and 7", won, lost)
	}
}

func TestStrictServerSaysHowToSendBuiltInTypes(t *testing.T) {
	t.Parallel()
	c, err := client.New(&rest.Config{Host: "https://strict", Transport: widgets(t)}, client.Options{Scheme: coreScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), settings()); err == nil || !strings.Contains(err.Error(), "application/json") {
		t.Errorf("protobuf: got %v, want the way out", err)
	}
}

func TestNewStrictServerRefuses(t *testing.T) {
	t.Parallel()
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	tests := map[string]struct {
		reason    string
		resources []reconciletest.Resource
		want      string
	}{
		"no plural":  {"a path needs it", []reconciletest.Resource{{GroupVersionKind: kind}}, "must be set"},
		"twice":      {"which schema would count?", []reconciletest.Resource{{GroupVersionKind: kind, Plural: "widgets"}, {GroupVersionKind: kind, Plural: "widgets"}}, "twice"},
		"bad schema": {"apply would not know how to merge", []reconciletest.Resource{{GroupVersionKind: kind, Plural: "widgets", Schema: []byte("{")}}, "read schema"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := reconciletest.NewStrictServer(tc.resources); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

func TestWithClock(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s, err := reconciletest.NewStrictServer([]reconciletest.Resource{
		{GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, Plural: "widgets"},
	}, reconciletest.WithClock(func() time.Time { return at }))
	if err != nil {
		t.Fatal(err)
	}
	w := widget("a")
	create(t, strictClient(t, s), w)
	if got := w.GetCreationTimestamp(); !got.Equal(&metav1.Time{Time: at}) {
		t.Errorf("created at %v, want %v", got, at)
	}
}
