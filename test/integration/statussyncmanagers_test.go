// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/statussync"
)

// The stub trap: another manager owns the keys. One JSON Patch, and only there.
func TestStatusDropReallyDrops(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason   string
		strip    bool
		requests string
	}{
		"managedFields visible":  {"they tell that the key is shared", false, "json-patch+json apply-patch"},
		"managedFields stripped": {"the refusal tells", true, "apply-patch json-patch+json apply-patch"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newStatusLab(t)
			l.create("g")
			l.update("legacy", "g", func(g *Gauge) {
				g.Status.Conditions = []metav1.Condition{gaugeCondition("Net", "True", "Up"), gaugeCondition("App", "True", "Up"),
					gaugeCondition("Foreign", "True", "Up")}
			})
			w := l.writer(gaugeOwns)
			both := gaugeDesired(1, gaugeCondition("Net", "False", "Down"), gaugeCondition("App", "False", "Down"))
			statusSync(t, w, l.get("g"), both, statussync.Written)
			statusExpect(t, "requests of the forced take-over", l.count.take(), "apply-patch")

			obj := l.get("g")
			if c.strip {
				obj = l.stripped("g")
			}
			one := gaugeDesired(1, gaugeCondition("App", "True", "Up"))
			r := statusSync(t, w, obj, one, statussync.Written)
			statusExpect(t, "requests of the drop", l.count.take(), c.requests)
			statusExpect(t, "types", statusTypes(l.get("g")), "App Foreign")
			statusExpect(t, "types of the fresh object", statusTypes(r.Object.(*Gauge)), "App Foreign")

			statusSync(t, w, l.get("g"), one, statussync.NoOp)
			// And for good: the next drop of what only we own is one request.
			statusSync(t, w, l.get("g"), both, statussync.Written)
			l.count.take()
			statusSync(t, w, l.get("g"), one, statussync.Written)
			statusExpect(t, "requests of the next drop", l.count.take(), "apply-patch")
			statusExpect(t, "types", statusTypes(l.get("g")), "App Foreign")
		})
	}
}

// A retired type of an old release that wrote with PUT, and that no apply ever touched.
func TestStatusRetiredGoes(t *testing.T) {
	t.Parallel()
	for name, strip := range map[string]bool{"visible": false, "stripped": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newStatusLab(t)
			l.create("g")
			l.update("legacy", "g", func(g *Gauge) { g.Status.Conditions = []metav1.Condition{gaugeCondition("Old", "True", "Up")} })
			w := l.writer(gaugeOwns)
			obj := l.get("g")
			if strip {
				obj = l.stripped("g")
			}
			statusSync(t, w, obj, gaugeDesired(1, gaugeCondition("Ready", "True", "Up")), statussync.Written)
			want := "json-patch+json apply-patch"
			if strip {
				want = "apply-patch json-patch+json"
			}
			statusExpect(t, "requests", l.count.take(), want)
			statusExpect(t, "types", statusTypes(l.get("g")), "Ready")
		})
	}
}

// kubernetes/kubernetes#136919: managedFields are wiped.
func TestStatusManagedFieldsWiped(t *testing.T) {
	t.Parallel()
	l := newStatusLab(t)
	l.create("g")
	w := l.writer(gaugeOwns)
	both := gaugeDesired(1, gaugeCondition("Ready", "True", "Up"), gaugeCondition("Net", "True", "Up"))
	statusSync(t, w, l.get("g"), both, statussync.Written)
	g := l.get("g")
	if err := l.other.Patch(t.Context(), g, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"managedFields":[{}]}}`))); err != nil {
		t.Fatal(err)
	}
	if n := len(l.get("g").ManagedFields); n != 0 {
		t.Fatalf("%d entries left", n)
	}
	l.count.take()
	statusSync(t, w, l.get("g"), gaugeDesired(1, gaugeCondition("Ready", "False", "Down")), statussync.Written)
	statusExpect(t, "requests", l.count.take(), "apply-patch json-patch+json")
	statusExpect(t, "types", statusTypes(l.get("g")), "Ready")
	statusSync(t, w, l.get("g"), both, statussync.Written)
	l.count.take()
	statusSync(t, w, l.get("g"), gaugeDesired(1, gaugeCondition("Ready", "False", "Down")), statussync.Written)
	statusExpect(t, "requests of the next drop", l.count.take(), "apply-patch")
	statusExpect(t, "types", statusTypes(l.get("g")), "Ready")
	if r, err := w.TakeOver(t.Context(), l.get("g"), "before-first-apply"); err != nil || r.Outcome != statussync.Written {
		t.Errorf("TakeOver = %+v, %v", r, err)
	}
	for _, e := range l.get("g").ManagedFields {
		if e.Manager != w.Manager() {
			t.Errorf("%s still holds %s", e.Manager, e.FieldsV1)
		}
	}
}

// The payload: a dropped field goes, also when an Update manager holds it.
func TestStatusPayloadFieldDrops(t *testing.T) {
	t.Parallel()
	l := newStatusLab(t)
	l.create("g")
	l.update("legacy", "g", func(g *Gauge) { g.Status.Parts = []string{"b", "a"}; n := int64(7); g.Status.Level = &n })
	w := l.writer(gaugeOwns)
	n := int64(0)
	d := gaugeDesired(1, gaugeCondition("Ready", "True", "Up"))
	d.Status.Level = &n
	statusSync(t, w, l.get("g"), d, statussync.Written)
	statusExpect(t, "requests", l.count.take(), "json-patch+json apply-patch")
	g := l.get("g")
	if g.Status.Parts != nil || g.Status.Level == nil || *g.Status.Level != 0 {
		t.Errorf("status = %+v", g.Status)
	}
	d.Status.Parts = []string{"z", "a"}
	statusSync(t, w, g, d, statussync.Written)
	if g = l.get("g"); !slices.Equal(g.Status.Parts, d.Status.Parts) {
		t.Errorf("the caller's order was lost: %v", g.Status.Parts)
	}
	d.Status.Parts = nil
	l.count.take()
	statusSync(t, w, g, d, statussync.Written)
	statusExpect(t, "requests", l.count.take(), "apply-patch")
	if g = l.get("g"); g.Status.Parts != nil {
		t.Errorf("status = %+v", g.Status)
	}
}

func TestStatusContested(t *testing.T) {
	t.Parallel()
	l := newStatusLab(t)
	l.create("g")
	w := l.writer(gaugeOwns)
	d := gaugeDesired(1, gaugeCondition("Ready", "True", "Up"))
	statusSync(t, w, l.stripped("g"), d, statussync.Written)
	take := func() {
		l.update("rival", "g", func(g *Gauge) { g.Status.Conditions[0].Status, g.Status.Conditions[0].Reason = "False", "NotMine" })
	}
	take()
	if r := statusSync(t, w, l.stripped("g"), d, statussync.Written); len(r.Findings) != 0 {
		t.Errorf("after one taking: %v", r.Findings)
	}
	take()
	r := statusSync(t, w, l.stripped("g"), d, statussync.Written)
	if len(r.Findings) != 1 || r.Findings[0] != (statussync.Finding{Kind: statussync.Contested, Manager: "rival", Field: "Ready"}) {
		t.Errorf("after two takings: %+v", r.Findings)
	}
	take()
	l.count.take()
	if r := statusSync(t, w, l.stripped("g"), d, statussync.Deferred); r.RequeueAfter <= 0 || l.count.take() != "" {
		t.Errorf("after three: %+v", r)
	}
	// What we ourselves have to say anew is never held back.
	statusSync(t, w, l.stripped("g"), gaugeDesired(1, gaugeCondition("Ready", "True", "Better")), statussync.Written)
}

func TestStatusTakeOver(t *testing.T) {
	t.Parallel()
	l := newStatusLab(t)
	l.create("g")
	l.update("legacy", "g", func(g *Gauge) {
		g.Status.Conditions = []metav1.Condition{gaugeCondition("Ready", "True", "Up"), gaugeCondition("Net", "True", "Up"), gaugeCondition("Foreign", "True", "Up")}
		g.Status.Endpoint = "gauge"
		g.Status.ObservedGeneration = 1
	})
	w := l.writer(gaugeOwns)
	before := l.get("g")
	r, err := w.TakeOver(t.Context(), before, "legacy", "nobody")
	if err != nil || r.Outcome != statussync.Written {
		t.Fatalf("TakeOver = %+v, %v", r, err)
	}
	statusExpect(t, "requests", l.count.take(), "GET json-patch+json")
	after := l.get("g")
	if fmt.Sprint(after.Status) != fmt.Sprint(before.Status) {
		t.Errorf("values changed: %+v", after.Status)
	}
	var owners []string
	for _, o := range statussync.Owners(after) {
		owners = append(owners, o.Condition+"="+o.Manager)
	}
	statusExpect(t, "owners", strings.Join(owners, " "), "Foreign=legacy Net=gauge-operator/main Ready=gauge-operator/main")
	if r, err = w.TakeOver(t.Context(), after, "legacy"); err != nil || r.Outcome != statussync.NoOp {
		t.Errorf("again: %+v, %v", r, err)
	}
	l.count.take()
	statusSync(t, w, after, gaugeDesired(1, gaugeCondition("Ready", "True", "Up")), statussync.Written)
	statusExpect(t, "requests of the first drop", l.count.take(), "apply-patch")
	statusExpect(t, "types", statusTypes(l.get("g")), "Foreign Ready")
}

// The schema defaults a field that is not desired: removed once, reported, not fought over for ever. A field the schema
// lacks is an error of the server that names it.
func TestStatusAltered(t *testing.T) {
	t.Parallel()
	l := newStatusLab(t)
	crd := gaugeCRD(t, "Meter", "meters", func(v map[string]any) {
		s := v["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)["properties"].(map[string]any)["status"].(map[string]any)
		s["properties"].(map[string]any)["level"].(map[string]any)["default"] = int64(5)
	})
	if err := l.other.Create(t.Context(), crd); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	if err := statusServed(t.Context(), l.other, "Meter"); err != nil {
		t.Fatal(err)
	}
	kind := &unstructured.Unstructured{}
	kind.SetGroupVersionKind(statusGroup.WithKind("Meter"))
	meter := kind.DeepCopy()
	meter.SetNamespace(l.ns)
	meter.SetName("m")
	if err := l.other.Create(t.Context(), meter); err != nil {
		t.Fatal(err)
	}
	get := func() *unstructured.Unstructured {
		u := kind.DeepCopy()
		if err := l.other.Get(t.Context(), client.ObjectKey{Namespace: l.ns, Name: "m"}, u); err != nil {
			t.Fatal(err)
		}
		u.SetManagedFields(nil)
		return u
	}
	g := l.group()
	w, err := statussync.For[GaugePayload](g, "loose", kind, statussync.Owns{Conditions: []string{"Ready"}})
	if err != nil {
		t.Fatal(err)
	}
	d := gaugeDesired(1, gaugeCondition("Ready", "True", "Up"))
	r := statusSync(t, w, get(), d, statussync.Written)
	want := statussync.Finding{Kind: statussync.Altered, Field: "status.level"}
	if len(r.Findings) != 1 || r.Findings[0] != want {
		t.Errorf("findings = %v", r.Findings)
	}
	l.count.take()
	statusSync(t, w, get(), d, statussync.NoOp)
	u := get()
	u.SetLabels(map[string]string{"x": "y"})
	if err := l.other.Update(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	if r = statusSync(t, w, get(), d, statussync.NoOp); len(r.Findings) != 1 || r.Findings[0] != want {
		t.Errorf("findings = %v", r.Findings)
	}
	statusExpect(t, "requests", l.count.take(), "")

	type payload struct {
		Unknown string `json:"unknown"`
	}
	lost, err := statussync.For[payload](g, "lost", kind, statussync.Owns{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = lost.Sync(t.Context(), get(), statussync.Desired[payload]{Generation: 1, Status: payload{"x"}}); err == nil || !strings.Contains(err.Error(), ".status.unknown: field not declared in schema") {
		t.Errorf("error = %v", err)
	}
}
