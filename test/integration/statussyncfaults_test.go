// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kstatus "sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/statussync"
)

// A request fails in the middle. The error reaches the caller, and the next pass costs what is left to do.
func TestStatusFaultsInTheMiddle(t *testing.T) {
	t.Parallel()
	refuse := func(code int, retryAfter string) func(*http.Request, func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		return func(r *http.Request, _ func(*http.Request) (*http.Response, error)) (*http.Response, error) {
			h := http.Header{"Content-Type": {"application/json"}}
			if retryAfter != "" {
				h.Set("Retry-After", retryAfter)
			}
			return &http.Response{StatusCode: code, Header: h, Request: r, Body: io.NopCloser(strings.NewReader(""))}, nil
		}
	}
	lose := func(r *http.Request, send func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		resp, err := send(r)
		if err != nil {
			return nil, err
		}
		return nil, errors.Join(io.ErrUnexpectedEOF, resp.Body.Close()) // whatever it was, nobody hears of it
	}
	for name, c := range map[string]struct {
		reason string
		drop   bool // the verdict drops what another manager holds: a JSON Patch, then the apply
		at     int  // which request fails
		answer func(*http.Request, func(*http.Request) (*http.Response, error)) (*http.Response, error)
		fails  bool
		first  string // requests of the pass that meets it
		next   string // and of the next one, from the object as it was
	}{
		"busy for a second": {"client-go waits for a Retry-After by itself", false, 1, refuse(http.StatusTooManyRequests, "1"), false,
			"apply-patch apply-patch", ""},
		"unavailable for a second": {"likewise", false, 1, refuse(http.StatusServiceUnavailable, "1"), false, "apply-patch apply-patch", ""},
		"broken":                   {"nothing was written", false, 1, refuse(http.StatusInternalServerError, ""), true, "apply-patch", "apply-patch"},
		"reply lost":               {"it was written: one live read tells", false, 1, lose, true, "apply-patch", "apply-patch GET"},
		"broken between the two":   {"the removal is done, and is not done again", true, 2, refuse(http.StatusInternalServerError, ""), true, "json-patch+json apply-patch", "json-patch+json GET apply-patch"},
		"first reply of two lost":  {"likewise, and its test tells", true, 1, lose, true, "json-patch+json", "json-patch+json GET apply-patch"},
		"second reply lost":        {"all is done", true, 2, lose, true, "json-patch+json apply-patch", "json-patch+json GET"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newStatusLab(t)
			l.create("g")
			if c.drop {
				l.update("legacy", "g", func(g *Gauge) { g.Status.Conditions = append(g.Status.Conditions, gaugeCondition("Old", "True", "Up")) })
			}
			w, obj := l.writer(gaugeOwns), l.get("g")
			d := gaugeDesired(1, gaugeCondition("Ready", "True", "Up"))
			n := 0
			l.count.answer = func(r *http.Request, send func(*http.Request) (*http.Response, error)) (*http.Response, error) {
				if n++; n == c.at {
					return c.answer(r, send)
				}
				return send(r)
			}
			r, err := w.Sync(t.Context(), obj, d)
			if (err != nil) != c.fails || !c.fails && r.Outcome != statussync.Written {
				t.Errorf("%s: %+v, %v", c.reason, r, err)
			}
			statusExpect(t, "requests", l.count.take(), c.first)
			if r, err = w.Sync(t.Context(), obj, d); err != nil {
				t.Errorf("%s: the next pass: %v", c.reason, err)
			}
			statusExpect(t, "requests of the next pass", l.count.take(), c.next)
			g := l.get("g")
			statusExpect(t, "types", statusTypes(g), "Ready")
			if g.Status.ObservedGeneration != 1 || g.Status.Endpoint != "gauge" {
				t.Errorf("status = %+v", g.Status)
			}
			statusSync(t, w, g, d, statussync.NoOp)
		})
	}
}

// Somebody writes thirty times a second. Every verdict gets there in the end, none of them with an error or past the
// fence, and a pass is never more than three tries.
func TestStatusBusyObject(t *testing.T) {
	t.Parallel()
	l := newStatusLab(t)
	l.create("g")
	ctx, cancel := context.WithCancel(t.Context())
	var beats atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(time.Second / 30); ctx.Err() == nil; beats.Add(1) {
			<-tick.C
			label := `{"metadata":{"labels":{"beat":"` + time.Now().Format("150405.000000000") + `"}}}`
			g := &Gauge{}
			g.Namespace, g.Name = l.ns, "g"
			if err := l.other.Patch(ctx, g, client.RawPatch(types.MergePatchType, []byte(label)), client.FieldOwner("busybody")); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	}()
	w := l.writer(gaugeOwns)
	outcomes, conflicts, n := map[statussync.Outcome]int{}, 0, 0
	for ; n < 20 || beats.Load() < 90; n++ {
		status := gaugeCondition("Ready", "True", "Up")
		if n%2 == 1 {
			status = gaugeCondition("Ready", "False", "Down")
		}
		for tries := 1; ; tries++ {
			g := l.get("g")
			time.Sleep(5 * time.Millisecond) // what a reconcile does between the read and the write
			r, err := w.Sync(t.Context(), g, gaugeDesired(1, status))
			if err != nil {
				t.Fatal(err)
			}
			outcomes[r.Outcome]++
			requests := strings.Fields(l.count.take())
			if len(requests) > 5 {
				t.Errorf("requests: %v", requests)
			}
			conflicts += len(requests) / 2
			if r.Outcome == statussync.Written {
				break
			}
			if r.Outcome != statussync.Deferred || r.RequeueAfter < time.Second || !strings.Contains(r.Why, "busybody") || tries == 20 {
				t.Fatalf("try %d: %+v", tries, r)
			}
		}
		if got := l.get("g").Status.Conditions[0]; got.Status != status.Status {
			t.Errorf("verdict %d: stored %+v", n, got)
		}
	}
	cancel()
	<-done
	t.Logf("%d verdicts beside %d foreign writes: %v, %d conflicts", n, beats.Load(), outcomes, conflicts)
	if conflicts == 0 {
		t.Error("nobody was in the way")
	}
}

// kubernetes/kubernetes#111937: an entry of managedFields is of a version that is not served any more. The server refuses
// every apply then, with an error that names the version; once the entries are reset, all goes its way.
func TestStatusEntryOfARemovedVersion(t *testing.T) {
	t.Parallel()
	l := newStatusLab(t)
	crd := gaugeCRD(t, "Relic", "relics", nil)
	versions := func() []any { return crd.Object["spec"].(map[string]any)["versions"].([]any) }
	old := runtime.DeepCopyJSONValue(versions()[0]).(map[string]any)
	old["name"], old["storage"] = "v1alpha1", false
	crd.Object["spec"].(map[string]any)["versions"] = append(versions(), old)
	if err := l.other.Create(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.other.Delete(context.WithoutCancel(t.Context()), crd) })
	if err := statusServed(t.Context(), l.other, "Relic"); err != nil {
		t.Fatal(err)
	}
	before := schema.GroupVersionKind{Group: statusGroup.Group, Version: "v1alpha1", Kind: "Relic"}
	relic := &unstructured.Unstructured{}
	relic.SetGroupVersionKind(before)
	relic.SetNamespace(l.ns)
	relic.SetName("r")
	relic.Object["spec"] = map[string]any{"size": int64(1)}
	if err := l.other.Create(t.Context(), relic, client.FieldOwner("legacy")); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal([]any{gaugeCondition("Ready", "False", "Down"), gaugeCondition("Old", "True", "Up")})
	if err != nil {
		t.Fatal(err)
	}
	var list []any
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	relic.Object["status"].(map[string]any)["conditions"] = list
	if err := l.other.Status().Update(t.Context(), relic, client.FieldOwner("legacy")); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(relic.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == "legacy" && e.APIVersion == before.GroupVersion().String()
	}) {
		t.Fatalf("no entry is of the old version: %v", relic.GetManagedFields())
	}
	if err := l.other.Get(t.Context(), client.ObjectKeyFromObject(crd), crd); err != nil {
		t.Fatal(err)
	}
	crd.Object["spec"].(map[string]any)["versions"] = versions()[:1]
	if err := l.other.Update(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(statusGroup.WithKind("Relic"))
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		err := l.other.Get(t.Context(), client.ObjectKeyFromObject(relic), relic) // at the old version
		if apierrors.IsNotFound(err) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("v1alpha1 is still served: %v", err)
		}
	}
	if err := l.other.Get(t.Context(), client.ObjectKeyFromObject(relic), live); err != nil {
		t.Fatal(err)
	}
	w, err := statussync.For[GaugePayload](l.group(), "main", live, gaugeOwns)
	if err != nil {
		t.Fatal(err)
	}
	d := gaugeDesired(1, gaugeCondition("Ready", "True", "Up"))
	if _, err := w.Sync(t.Context(), live, d); err == nil || !strings.Contains(err.Error(), "Relic "+l.ns+"/r") || !strings.Contains(err.Error(), "v1alpha1") {
		t.Errorf("error = %v", err)
	}
	if err := l.other.Patch(t.Context(), live, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"managedFields":[{}]}}`))); err != nil {
		t.Fatal(err)
	}
	r := statusSync(t, w, live, d, statussync.Written)
	if list, _, _ := unstructured.NestedSlice(r.Object.(*unstructured.Unstructured).Object, "status", "conditions"); len(list) != 1 {
		t.Errorf("what the old version held is still there: %v", list)
	}
	statusSync(t, w, r.Object, d, statussync.NoOp)
}

// kubernetes-sigs/cluster-api#9299: the first pass adds a finalizer and nothing else, and tools took the object for
// current.
func TestStatusFirstVisitIsNotCurrent(t *testing.T) {
	t.Parallel()
	l := newStatusLab(t)
	judge := func() kstatus.Status {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(statusGroup.WithKind("Gauge"))
		if err := l.other.Get(t.Context(), client.ObjectKey{Namespace: l.ns, Name: "g"}, u); err != nil {
			t.Fatal(err)
		}
		r, err := kstatus.Compute(u)
		if err != nil {
			t.Fatal(err)
		}
		return r.Status
	}
	g := l.create("g")
	g.Finalizers = []string{"status.example.com/gauge"}
	if err := l.other.Update(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.other.Patch(context.WithoutCancel(t.Context()), g, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	})
	if got := judge(); got != kstatus.InProgressStatus {
		t.Errorf("after the finalizer: %s", got)
	}
	w := l.writer(gaugeOwns)
	for _, c := range []struct {
		verdict statussync.Desired[GaugePayload]
		want    kstatus.Status
	}{
		{gaugeDesired(1, gaugeCondition("Ready", "Unknown", "NotReported")), kstatus.InProgressStatus},
		{gaugeDesired(1, gaugeCondition("Ready", "True", "Up")), kstatus.CurrentStatus},
	} {
		statusSync(t, w, l.get("g"), c.verdict, statussync.Written)
		if got := judge(); got != c.want {
			t.Errorf("%s: %s, want %s", c.verdict.Conditions[0].Reason, got, c.want)
		}
	}
}
