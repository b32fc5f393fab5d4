// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/statussync"
)

// Tests in this file are named after the public report of the failure they keep out.

// A retry after a conflict took observedGeneration from the object it read anew, whose spec had moved on.
func TestFluxPkg253RetryKeepsTheGenerationOfTheVerdict(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(3))
	obj := live(t, other)
	s.before = func(n int, _ request) error {
		if n != 1 {
			return nil
		}
		d := live(t, other)
		d.Generation = 4
		if err := other.Update(t.Context(), d); err != nil {
			t.Error(err)
		}
		return conflict()
	}
	if r := sync_(t, newWriter(t, s), obj, ready(3, "x")); r.Outcome != statussync.Written {
		t.Fatalf("%+v", r)
	}
	got := live(t, other)
	if got.Generation != 4 || got.Status.ObservedGeneration != 3 || got.Status.Conditions[0].ObservedGeneration != 3 {
		t.Errorf("relabelled: generation %d, status %+v", got.Generation, got.Status)
	}
}

// A message of 47 KB was refused for ever.
func TestEnvoyGateway7146LongMessage(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(1))
	w := newWriter(t, s)
	d := ready(1, "x")
	d.Conditions[0].Message, d.Conditions[1].Message = strings.Repeat("é", 23500), "broken \xff text"
	if r := sync_(t, w, live(t, other), d); r.Findings != nil {
		t.Errorf("the server stored something else than was meant: %v", r.Findings)
	}
	got := live(t, other).Status.Conditions[0].Message
	if len(got) > 32768 || len(got) < 32700 || !utf8.ValidString(got) || !strings.HasSuffix(got, "(cut)") {
		t.Errorf("%d bytes, valid %v, end %q", len(got), utf8.ValidString(got), got[len(got)-10:])
	}
	s.take()
	for name, w := range map[string]*statussync.Writer[Payload]{"this process": w, "another one": newWriter(t, s)} {
		if r := sync_(t, w, live(t, other), d); r.Findings != nil || len(s.take()) > 0 {
			t.Errorf("%s writes it again: %+v", name, r)
		}
	}
}

// A status differed because time had passed.
func TestKnativeServing1181NothingChanged(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(1))
	c := newClock()
	w := newWriter(t, s, statussync.WithClock(c.now))
	sync_(t, w, live(t, other), ready(1, "x"))
	before := live(t, other)
	c.step(time.Hour)
	d := ready(1, "x")
	for i := range d.Conditions {
		d.Conditions[i].LastTransitionTime = metav1.NewTime(c.now())
	}
	s.take()
	for name, w := range map[string]*statussync.Writer[Payload]{"this process": w, "another one": newWriter(t, s)} {
		if r := sync_(t, w, before, d); r.Outcome != statussync.NoOp || r.Findings != nil || len(s.take()) > 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// The status was rebuilt from nothing in each pass, so every lastTransitionTime was now.
func TestPiraeusOperator905RebuiltFromScratch(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(1))
	c := newClock()
	w := newWriter(t, s, statussync.WithClock(c.now))
	for range 3 {
		sync_(t, w, live(t, other), ready(1, "x"))
		c.step(time.Hour)
	}
	if got := verbs(s.take()); got != "apply" {
		t.Errorf("requests = %s", got)
	}
	d := ready(1, "x")
	d.Conditions[0] = cond("Ready", "False", "Down")
	sync_(t, w, live(t, other), d)
	got := live(t, other).Status.Conditions
	if !got[0].LastTransitionTime.Time.Equal(c.now()) || !got[1].LastTransitionTime.Time.Equal(at) {
		t.Errorf("transition times: %v, %v", got[0].LastTransitionTime, got[1].LastTransitionTime)
	}
}

// observedGeneration was missing in the new condition and present in the live one: a diff for ever.
func TestSoperator1894MissingObservedGeneration(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(5))
	w := newWriter(t, s)
	sync_(t, w, live(t, other), ready(5, "x"))
	if got := live(t, other).Status.Conditions[0].ObservedGeneration; got != 5 {
		t.Errorf("observedGeneration = %d", got)
	}
	s.take()
	sync_(t, w, live(t, other), ready(5, "x"))
	if rs := s.take(); len(rs) > 0 {
		t.Errorf("requests: %v", rs)
	}
}

// Only observedGeneration differs; a stored 0 was taken for a wildcard and never filled in.
func TestUpjet591OnlyObservedGenerationDiffers(t *testing.T) {
	t.Parallel()
	old := cond("Ready", "True", "Serving")
	old.LastTransitionTime = metav1.NewTime(at.Add(-time.Hour))
	obj := db(2, old)
	obj.Status.ObservedGeneration = 2
	s, other := newServer(t, obj)
	w := newWriter(t, s)
	d := statussync.Desired[Payload]{Generation: 2, Conditions: []metav1.Condition{cond("Ready", "True", "Serving")}}
	sync_(t, w, live(t, other), d)
	got := live(t, other).Status.Conditions[0]
	if got.ObservedGeneration != 2 || !got.LastTransitionTime.Time.Equal(at.Add(-time.Hour)) {
		t.Errorf("condition = %+v", got)
	}
	sync_(t, w, live(t, other), d)
	if n := verbs(s.take()); n != "apply" {
		t.Errorf("requests = %s", n)
	}
}

// lastTransitionTime moved with reason and message.
func TestNumaplane107ReasonChangeKeepsTransitionTime(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(1))
	c := newClock()
	w := newWriter(t, s, statussync.WithClock(c.now))
	sync_(t, w, live(t, other), ready(1, "x"))
	c.step(time.Hour)
	d := ready(1, "x")
	d.Conditions[0].Reason, d.Conditions[0].Message = "StillServing", "for an hour"
	d.Conditions[0].LastTransitionTime = metav1.NewTime(c.now())
	sync_(t, w, live(t, other), d)
	if got := live(t, other).Status.Conditions[0]; got.Reason != "StillServing" || !got.LastTransitionTime.Time.Equal(at) {
		t.Errorf("condition = %+v", got)
	}
}

// Two controllers with stale copies of one list reverted each other.
func TestCloudNativePG6328TwoControllersOneList(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(1))
	g := newGroup(t, s)
	a, err := statussync.For[endpointOnly](g, "a", &Database{}, statussync.Owns{Conditions: []string{"Ready"}, Primary: true})
	if err != nil {
		t.Fatal(err)
	}
	b, err := statussync.For[struct{}](g, "b", &Database{}, statussync.Owns{Conditions: []string{"Backup"}})
	if err != nil {
		t.Fatal(err)
	}
	stale := live(t, other)
	sync_(t, a, stale, statussync.Desired[endpointOnly]{Generation: 1, Conditions: []metav1.Condition{cond("Ready", "True", "Up")}, Status: endpointOnly{"x"}})
	sync_(t, b, stale, statussync.Desired[struct{}]{Generation: 1, Conditions: []metav1.Condition{cond("Backup", "True", "Done")}})
	if got := live(t, other).Status; len(got.Conditions) != 2 || got.Endpoint != "x" {
		t.Errorf("after one write of each: %+v", got)
	}
	sync_(t, a, live(t, other), statussync.Desired[endpointOnly]{Generation: 1, Conditions: []metav1.Condition{cond("Ready", "False", "Down")}, Status: endpointOnly{"x"}})
	sync_(t, b, live(t, other), statussync.Desired[struct{}]{Generation: 1})
	got := live(t, other).Status
	if len(got.Conditions) != 1 || got.Conditions[0].Reason != "Down" || got.Endpoint != "x" || got.ObservedGeneration != 1 {
		t.Errorf("status = %+v", got)
	}
}

// Two progress writes in one pass ended in "modified by a different process".
func TestClusterAPI3260TwoWritesInOnePass(t *testing.T) {
	t.Parallel()
	for name, fresh := range map[string]bool{"passing the fresh object on": true, "with the object read first": false} {
		s, other := newServer(t, db(1))
		w := newWriter(t, s)
		var obj client.Object = live(t, other)
		for _, reason := range []string{"Starting", "Loading", "Serving"} {
			d := ready(1, "x")
			d.Conditions[0].Reason = reason
			r := sync_(t, w, obj, d)
			if r.Outcome != statussync.Written {
				t.Errorf("%s: %s: %+v", name, reason, r)
			}
			if fresh {
				obj = r.Object
			}
		}
		if got := live(t, other).Status.Conditions[0].Reason; got != "Serving" {
			t.Errorf("%s: reason = %s", name, got)
		}
		want := "apply apply apply"
		if !fresh {
			want = "apply get apply get apply" // never a write that must conflict
		}
		if got := verbs(s.take()); got != want {
			t.Errorf("%s: requests = %s", name, got)
		}
	}
}

// The status write after the last finalizer's removal failed with NotFound.
func TestClusterAPI10787GoneIsNoError(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(1))
	s.before = func(int, request) error {
		return apierrors.NewNotFound(schema.GroupResource{Group: group.Group, Resource: "databases"}, "db")
	}
	w := newWriter(t, s)
	obj := live(t, other)
	r := sync_(t, w, obj, ready(1, "x"))
	if r.Outcome != statussync.Gone || verbs(s.take()) != "apply get" { // the read tells a missing subresource apart
		t.Errorf("%+v", r)
	}
	answer := s.before
	s.before = nil
	sync_(t, w, obj, ready(1, "x"))
	s.before = answer
	s.take()
	if r := sync_(t, w, live(t, other), ready(1, "y")); r.Outcome != statussync.Gone || verbs(s.take()) != "apply" {
		t.Errorf("once something was written: %+v", r)
	}
}

// An object was Current to kstatus before it had a condition: its generation was observed, and nothing else was said.
func TestClusterAPI9299FirstVisitIsNotCurrent(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(1))
	_, err := newWriter(t, s).Sync(t.Context(), live(t, other), statussync.Desired[Payload]{Generation: 1, Status: Payload{Endpoint: "x"}})
	if err == nil || !strings.Contains(err.Error(), "no condition is given") || len(s.take()) != 0 {
		t.Errorf("error = %v", err)
	}
}

// observedGeneration stayed behind when a new spec changed no condition.
func TestCassOperator657GenerationAdvancesAlone(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(1))
	w := newWriter(t, s)
	sync_(t, w, live(t, other), ready(1, "x"))
	d := live(t, other)
	d.Generation = 2
	if err := other.Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	s.take()
	sync_(t, w, live(t, other), ready(2, "x"))
	got := live(t, other).Status
	if got.ObservedGeneration != 2 || got.Conditions[1].ObservedGeneration != 2 || verbs(s.take()) != "apply" {
		t.Errorf("status = %+v", got)
	}
	// It alone stayed behind.
	d = live(t, other)
	d.Status.ObservedGeneration = 1
	if err := other.Status().Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	sync_(t, w, live(t, other), ready(2, "x"))
	if got := live(t, other).Status.ObservedGeneration; got != 2 || verbs(s.take()) != "apply" {
		t.Errorf("observedGeneration = %d", got)
	}
}

// A type retired in a new release stayed True in old clusters for ever.
func TestKubeSchedulerOperator142RetiredTypeGoes(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(1, cond("Foreign", "True", "R"), cond("Old", "True", "R")))
	w := newWriter(t, s)
	sync_(t, w, live(t, other), ready(1, "x"))
	for _, c := range live(t, other).Status.Conditions {
		if c.Type == "Old" {
			t.Error("the retired condition is still there")
		}
	}
	if n := len(live(t, other).Status.Conditions); n != 3 {
		t.Errorf("%d conditions", n)
	}
	if got := verbs(s.take()); got != "apply patch" {
		t.Errorf("requests = %s", got)
	}
	sync_(t, w, live(t, other), ready(1, "x"))
	if rs := s.take(); len(rs) > 0 {
		t.Errorf("a second time: %v", rs)
	}
}

// managedFields were wiped: the server then gives all there is to before-first-apply, and leaving it out drops nothing.
func TestKubernetes136919ManagedFieldsWiped(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(1))
	w := newWriter(t, s)
	sync_(t, w, live(t, other), ready(1, "x"))
	if err := other.Patch(t.Context(), live(t, other), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"managedFields":[{}]}}`))); err != nil {
		t.Fatal(err)
	}
	d := ready(1, "x")
	d.Conditions = d.Conditions[:1]
	sync_(t, w, live(t, other), d)
	if got := live(t, other).Status.Conditions; len(got) != 1 || got[0].Type != "Ready" {
		t.Errorf("conditions = %+v", got)
	}
}

// A failed pass returned no error because the status had changed as well.
func TestReconcilerRuntimeErrorReachesTheWorkqueue(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(1))
	failed := errors.New("the write failed")
	s.before = func(int, request) error { return failed }
	if _, err := newWriter(t, s).Sync(t.Context(), live(t, other), ready(1, "x")); !errors.Is(err, failed) {
		t.Errorf("error = %v", err)
	}
}
