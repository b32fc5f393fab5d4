// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/statussync"
)

// A change is one request, a converged object none, also from a cache that is behind or strips managedFields.
func TestStatusOneRequestPerChange(t *testing.T) {
	t.Parallel()
	l := newStatusLab(t)
	first := l.create("g")
	if first.Status.ObservedGeneration != -1 {
		t.Fatalf("the default is missing: %+v", first.Status)
	}
	w := l.writer(gaugeOwns)
	d := gaugeDesired(1, gaugeCondition("Ready", "False", "Starting"), gaugeCondition("Net", "True", "Up"))
	r := statusSync(t, w, first, d, statussync.Written)
	statusExpect(t, "requests", l.count.take(), "apply-patch")
	fresh := r.Object.(*Gauge)
	live := l.get("g")
	if fresh.ResourceVersion != live.ResourceVersion || fresh.Status.ObservedGeneration != 1 || fresh.Status.Endpoint != "gauge" {
		t.Errorf("fresh object: %+v", fresh)
	}
	statusSync(t, w, fresh, d, statussync.NoOp)
	statusSync(t, w, live, d, statussync.NoOp)
	statusSync(t, w, l.stripped("g"), d, statussync.NoOp)
	statusSync(t, w, first, d, statussync.NoOp) // a cache that has not seen the write
	statusExpect(t, "requests of a converged object", l.count.take(), "")

	// From a stale object, another verdict: read live first, since the apply would be a certain conflict.
	d = gaugeDesired(1, gaugeCondition("Ready", "True", "Serving"), gaugeCondition("Net", "True", "Up"))
	statusSync(t, w, first, d, statussync.Written)
	statusExpect(t, "requests from a stale cache", l.count.take(), "GET apply-patch")

	// A new process knows nothing and finds out.
	statusSync(t, l.writer(gaugeOwns), first, d, statussync.NoOp)
	statusExpect(t, "requests of a new process", l.count.take(), "apply-patch GET")
}

// An old writer waits while the object is deleted and made again under its name.
func TestStatusNewcomerUntouched(t *testing.T) {
	t.Parallel()
	l := newStatusLab(t)
	old := l.create("g")
	w := l.writer(gaugeOwns)
	if err := l.other.Delete(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	l.create("g")
	r := statusSync(t, w, old, gaugeDesired(1, gaugeCondition("Ready", "True", "Up")), statussync.Gone)
	statusExpect(t, "requests", l.count.take(), "apply-patch GET")
	if g := l.get("g"); len(g.Status.Conditions) != 0 || r.Object != nil {
		t.Errorf("the newcomer was written: %+v", g.Status)
	}
	if err := l.other.Delete(t.Context(), l.get("g")); err != nil {
		t.Fatal(err)
	}
	statusSync(t, w, old, gaugeDesired(1, gaugeCondition("Ready", "True", "Up")), statussync.Gone)
	statusExpect(t, "requests", l.count.take(), "apply-patch GET") // until a write went through, the kind could lack the subresource
}

// infinispan-operator#1758, argo-workflows#14532: a verdict for an old generation never replaces a newer one; one for N
// may be written while the spec is at N+1.
func TestStatusFence(t *testing.T) {
	t.Parallel()
	l := newStatusLab(t)
	one := l.create("g")
	g := l.get("g")
	g.Spec.Size = 2
	if err := l.other.Update(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	old, young := l.writer(gaugeOwns), l.writer(gaugeOwns)
	statusSync(t, old, g, gaugeDesired(1, gaugeCondition("Ready", "True", "Up")), statussync.Written)
	if g = l.get("g"); g.Status.ObservedGeneration != 1 || g.Generation != 2 || g.Status.Conditions[0].ObservedGeneration != 1 {
		t.Errorf("relabelled: %+v", g.Status)
	}
	statusSync(t, young, g, gaugeDesired(2, gaugeCondition("Ready", "False", "Resizing")), statussync.Written)
	l.count.take()
	statusSync(t, old, one, gaugeDesired(1, gaugeCondition("Ready", "True", "Serving")), statussync.Stale)
	statusExpect(t, "requests", l.count.take(), "GET") // its own write is newer than the object passed in
	statusSync(t, l.writer(gaugeOwns), one, gaugeDesired(1, gaugeCondition("Ready", "True", "Serving")), statussync.Stale)
	statusExpect(t, "requests", l.count.take(), "apply-patch GET")
	if g = l.get("g"); g.Status.ObservedGeneration != 2 || g.Status.Conditions[0].Reason != "Resizing" {
		t.Errorf("went back: %+v", g.Status)
	}
	// A corrupt observedGeneration is no fence.
	g = l.update("vandal", "g", func(g *Gauge) { g.Status.ObservedGeneration = 99 })
	r := statusSync(t, old, g, gaugeDesired(2, gaugeCondition("Ready", "True", "Up")), statussync.Written)
	if len(r.Findings) == 0 || r.Findings[0].Kind != statussync.Repaired || l.get("g").Status.ObservedGeneration != 2 {
		t.Errorf("findings %v, status %+v", r.Findings, l.get("g").Status)
	}
}

// Two writers share one list, on stale copies (cloudnative-pg#6328).
func TestStatusTwoWritersKeepEachOther(t *testing.T) {
	t.Parallel()
	l := newStatusLab(t)
	g := l.create("g")
	grp := l.group()
	a, err := statussync.For[GaugePayload](grp, "a", &Gauge{}, statussync.Owns{Conditions: []string{"Ready"}, Primary: true})
	if err != nil {
		t.Fatal(err)
	}
	b, err := statussync.For[struct{}](grp, "b", &Gauge{}, statussync.Owns{Conditions: []string{"Backup"}})
	if err != nil {
		t.Fatal(err)
	}
	statusSync(t, a, g, gaugeDesired(1, gaugeCondition("Ready", "True", "Up")), statussync.Written)
	statusSync(t, b, g, statussync.Desired[struct{}]{Generation: 1, Conditions: []metav1.Condition{gaugeCondition("Backup", "True", "Done")}}, statussync.Written)
	statusExpect(t, "types", statusTypes(l.get("g")), "Backup Ready")
	statusSync(t, b, l.get("g"), statussync.Desired[struct{}]{Generation: 1}, statussync.Written)
	got := l.get("g")
	statusExpect(t, "types", statusTypes(got), "Ready")
	if got.Status.ObservedGeneration != 1 || got.Status.Endpoint != "gauge" {
		t.Errorf("the other writer's fields: %+v", got.Status)
	}
}

// Somebody writes all the time: three tries, then Deferred with a name, never an error.
func TestStatusContention(t *testing.T) {
	t.Parallel()
	l := newStatusLab(t)
	g := l.create("g")
	n := 0
	l.count.hook = func(r *http.Request) {
		if r.Method == http.MethodPatch { // right before each of our writes
			n++
			l.update("busybody", "g", func(g *Gauge) {
				g.Status.Conditions = []metav1.Condition{{Type: "Busy", Status: "True", Reason: fmt.Sprintf("N%d", n), LastTransitionTime: metav1.Now()}}
			})
		}
	}
	r := statusSync(t, l.writer(gaugeOwns), g, gaugeDesired(1, gaugeCondition("Ready", "True", "Up")), statussync.Deferred)
	statusExpect(t, "requests", l.count.take(), "apply-patch GET apply-patch GET apply-patch")
	if r.RequeueAfter < time.Second || r.RequeueAfter > 5*time.Second || !strings.Contains(r.Why, "busybody") {
		t.Errorf("%+v", r)
	}
}

func TestStatusErrorsAreClear(t *testing.T) {
	t.Parallel()
	l := newStatusLab(t)
	g := l.create("g")
	w := l.writer(gaugeOwns)
	d := gaugeDesired(1, gaugeCondition("Ready", "True", "Up"))
	n := int64(101)
	d.Status.Level = &n
	_, err := w.Sync(t.Context(), g, d)
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "Gauge "+l.ns+"/g") || !strings.Contains(err.Error(), "status.level") {
		t.Errorf("error = %v", err)
	}
	statusExpect(t, "requests", l.count.take(), "apply-patch")
	// With something to drop as well, the refusal is not taken for a stub for ever.
	l.update("legacy", "g", func(g *Gauge) { g.Status.Conditions = []metav1.Condition{gaugeCondition("Old", "True", "Up")} })
	_, err = w.Sync(t.Context(), l.stripped("g"), d)
	if !apierrors.IsInvalid(err) {
		t.Errorf("error = %v", err)
	}
	statusExpect(t, "requests", l.count.take(), "apply-patch")
}

// The server reads an apply as YAML: it refuses characters that JSON allows, and folds U+0085 into a space.
func TestStatusOddCharacters(t *testing.T) {
	t.Parallel()
	l := newStatusLab(t)
	l.create("g")
	w := l.writer(gaugeOwns)
	const odd = "del \x7f c1 \u0080\u0085\u009b bom \ufeff last \ufffe\uffff lines \u2028\u2029 fine \u00a0\u00bf\ufffd\U0001f600 \t\r\n\x00\x1b \"\\<&>"
	d := gaugeDesired(1, gaugeCondition("Ready", "True", "Up"))
	d.Conditions[0].Message = odd
	d.Status.Endpoint = odd
	d.Status.Parts = []string{odd, ""}
	statusSync(t, w, l.get("g"), d, statussync.Written)
	got := l.get("g")
	if got.Status.Conditions[0].Message != odd || got.Status.Endpoint != odd || !slices.Equal(got.Status.Parts, d.Status.Parts) {
		t.Errorf("stored %q and %q", got.Status.Conditions[0].Message, got.Status.Endpoint)
	}
	l.count.take()
	statusSync(t, l.writer(gaugeOwns), got, d, statussync.NoOp)
	statusExpect(t, "requests", l.count.take(), "")

	// A message of 47 KB of two-byte characters.
	d.Conditions[0].Message = strings.Repeat("é", 23500)
	statusSync(t, w, got, d, statussync.Written)
	statusSync(t, l.writer(gaugeOwns), l.get("g"), d, statussync.NoOp)
}

// controller-runtime's read-your-writes mode: a status write counts as one of the typed kind, so the read that follows,
// through the cache, sees it.
func TestStatusReadYourWrites(t *testing.T) {
	t.Parallel()
	l := newStatusLab(t)
	scheme := l.mine.Scheme()
	informers, err := cache.New(cluster.Config(), cache.Options{Scheme: scheme, DefaultNamespaces: map[string]cache.Config{l.ns: {}},
		DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- informers.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	c, err := client.New(cluster.Config(), client.Options{Scheme: scheme,
		Cache: &client.CacheOptions{Reader: informers, EnableReadYourWritesConsistency: new(true)}})
	if err != nil {
		t.Fatal(err)
	}
	g, err := statussync.New(c, l.mine, "gauge-operator")
	if err != nil {
		t.Fatal(err)
	}
	w, err := statussync.For[GaugePayload](g, "main", &Gauge{}, gaugeOwns)
	if err != nil {
		t.Fatal(err)
	}
	l.create("g")
	key := client.ObjectKey{Namespace: l.ns, Name: "g"}
	cached := &Gauge{}
	for deadline := time.Now().Add(10 * time.Second); c.Get(ctx, key, cached) != nil; {
		if time.Now().After(deadline) {
			t.Fatal("the cache never saw the object")
		}
		time.Sleep(10 * time.Millisecond)
	}
	for n := range 20 {
		d := gaugeDesired(1, gaugeCondition("Ready", "True", fmt.Sprintf("N%d", n)))
		r := statusSync(t, w, cached, d, statussync.Written)
		cached = &Gauge{}
		if err := c.Get(ctx, key, cached); err != nil {
			t.Fatal(err)
		}
		if cached.ResourceVersion != r.Object.GetResourceVersion() || len(cached.ManagedFields) != 0 {
			t.Fatalf("read %s after a write that was given %s", cached.ResourceVersion, r.Object.GetResourceVersion())
		}
	}
	statusExpect(t, "live reads", l.count.take(), "")
}

func TestStatusCheck(t *testing.T) {
	t.Parallel()
	l := newStatusLab(t)
	bad := gaugeCRD(t, "Dial", "dials", func(v map[string]any) {
		delete(v, "subresources")
		s := v["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)["properties"].(map[string]any)["status"].(map[string]any)
		delete(s, "default")
		p := s["properties"].(map[string]any)
		delete(p, "endpoint")
		c := p["conditions"].(map[string]any)
		delete(c, "x-kubernetes-list-type")
		delete(c, "x-kubernetes-list-map-keys")
	})
	if err := l.other.Create(t.Context(), bad); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	if err := statusServed(t.Context(), l.other, "Dial"); err != nil {
		t.Fatal(err)
	}
	dc, err := discovery.NewDiscoveryClientForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	openAPI := statussync.WithOpenAPI(func(ctx context.Context, gv schema.GroupVersion) ([]byte, error) {
		return dc.RESTClient().Get().AbsPath("/openapi/v3/apis/" + gv.String()).Do(ctx).Raw()
	})
	// The document follows a new kind within a second or two.
	deadline := time.Now().Add(20 * time.Second)
	for {
		raw, err := dc.RESTClient().Get().AbsPath("/openapi/v3/apis/" + statusGroup.String()).Do(t.Context()).Raw()
		if err == nil && strings.Contains(string(raw), "Dial") && strings.Contains(string(raw), "Gauge") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the schema never came: %v", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	g := l.group(openAPI)
	if _, err := statussync.For[GaugePayload](g, "main", &Gauge{}, gaugeOwns); err != nil {
		t.Fatal(err)
	}
	if err := g.Check(t.Context()); err != nil {
		t.Errorf("a good kind: %v", err)
	}
	statusExpect(t, "requests of Check", l.count.take(), "POST POST")
	dial := &unstructured.Unstructured{}
	dial.SetGroupVersionKind(statusGroup.WithKind("Dial"))
	g = l.group(openAPI)
	lost, err := statussync.For[GaugePayload](g, "main", dial, gaugeOwns)
	if err != nil {
		t.Fatal(err)
	}
	d := dial.DeepCopy()
	d.SetNamespace(l.ns)
	d.SetName("d")
	if err := l.other.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if _, err := lost.Sync(t.Context(), d, gaugeDesired(1, gaugeCondition("Ready", "True", "Up"))); err == nil || !strings.Contains(err.Error(), "no status subresource") {
		t.Errorf("Sync without a status subresource: %v", err)
	}
	err = g.Check(t.Context())
	for _, want := range []string{"no status subresource", "list-type: map keyed by type", "no status.endpoint", "observedGeneration: -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a bad kind: %v lacks %q", err, want)
		}
	}
	t.Logf("a bad kind:\n%v", err)

	// Without rights.
	cfg, err := cluster.AddUser("statussync-nobody")
	if err != nil {
		t.Fatal(err)
	}
	nobody, err := client.New(cfg, client.Options{Scheme: l.mine.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	g, err = statussync.New(nobody, nobody, "gauge-operator")
	if err != nil {
		t.Fatal(err)
	}
	w, err := statussync.For[GaugePayload](g, "main", &Gauge{}, gaugeOwns)
	if err != nil {
		t.Fatal(err)
	}
	err = g.Check(t.Context())
	if err == nil || strings.Count(err.Error(), "is not allowed in all namespaces") != 2 {
		t.Errorf("without rights: %v", err)
	}
	t.Logf("without rights:\n%v", err)
	_, err = w.Sync(t.Context(), l.create("g"), gaugeDesired(1, gaugeCondition("Ready", "True", "Up")))
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "patch") {
		t.Errorf("Sync without rights: %v", err)
	}
}
