// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/statussync"
)

func TestSyncWritesOnceThenNothing(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(3))
	w := newWriter(t, s)

	r := sync_(t, w, live(t, other), ready(3, "db.shop"))
	if r.Outcome != statussync.Written || verbs(s.take()) != "apply" {
		t.Fatalf("first Sync: %+v", r)
	}
	got := live(t, other)
	if got.Status.ObservedGeneration != 3 || got.Status.Endpoint != "db.shop" || len(got.Status.Conditions) != 2 {
		t.Errorf("status = %+v", got.Status)
	}
	if diff := cmp.Diff(got.Status, r.Object.(*Database).Status); diff != "" {
		t.Errorf("Result.Object is not the fresh object (-live +got):\n%s", diff)
	}
	stripped := live(t, other)
	stripped.ManagedFields = nil
	for name, obj := range map[string]client.Object{
		"the fresh object": r.Object, "the live object": got, "a stripping cache": stripped,
	} {
		if r := sync_(t, w, obj, ready(3, "db.shop")); r.Outcome != statussync.NoOp || r.Object != nil {
			t.Errorf("Sync with %s: %+v", name, r)
		}
	}
	if rs := s.take(); len(rs) > 0 {
		t.Errorf("a converged object costs %v", rs)
	}
}

func TestSyncUnstructured(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(3, cond("Old", "True", "R"), cond("Foreign", "True", "R")))
	w, err := statussync.For[Payload](newGroup(t, s), "main", unstructuredKind(), mainOwns)
	if err != nil {
		t.Fatal(err)
	}
	d := ready(3, "db.shop")
	d.Status.Shards = []Shard{{"a", true}, {"b", false}}
	r := sync_(t, w, liveUnstructured(t, other), d)
	if r.Outcome != statussync.Written || r.Object.GetObjectKind().GroupVersionKind().Kind != "Database" {
		t.Fatalf("%+v", r)
	}
	if got := live(t, other).Status; len(got.Conditions) != 3 || got.Endpoint != "db.shop" || len(got.Shards) != 2 {
		t.Errorf("status = %+v", got)
	}
	s.take()
	sync_(t, w, r.Object, d)
	sync_(t, w, liveUnstructured(t, other), d)
	if rs := s.take(); len(rs) > 0 {
		t.Errorf("a converged object costs %v", rs)
	}
}

// Neither the cached object nor the verdict is changed, whatever happens.
func TestSyncChangesNoInput(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(3, cond("Old", "True", "R"), cond("App", "True", "R")))
	w := newWriter(t, s)
	obj := live(t, other)
	if err := other.Status().Update(t.Context(), live(t, other)); err != nil { // so that there is a conflict as well
		t.Fatal(err)
	}
	d := ready(3, "x")
	d.Conditions[0].Message = strings.Repeat("é", 40000)
	d.Status.Shards = []Shard{{"b", true}, {"a", true}}
	before, wanted := obj.DeepCopyObject(), fmt.Sprintf("%#v", d)
	sync_(t, w, obj, d)
	if _, err := w.Plan(obj, d); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, obj); diff != "" {
		t.Errorf("the object was changed:\n%s", diff)
	}
	if got := fmt.Sprintf("%#v", d); got != wanted {
		t.Error("the verdict was changed")
	}
}

func TestSyncRefuses(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(3, cond("Foreign", "True", "R")))
	obj := live(t, other)
	unread := db(3)
	changed := obj.Status.Conditions[0]
	changed.Status = "False"
	var typedNil *Database
	with := func(generation int64, conds ...metav1.Condition) statussync.Desired[Payload] {
		return statussync.Desired[Payload]{Generation: generation, Conditions: conds}
	}
	good := cond("Ready", "True", "Up")
	for name, c := range map[string]struct {
		reason string
		obj    client.Object
		d      statussync.Desired[Payload]
		want   string
	}{
		"no generation":          {"0 is a forgotten field", obj, with(0, good), "generation is 0"},
		"negative generation":    {"no object has one", obj, with(-1, good), "negative"},
		"future generation":      {"the object is older than the verdict", obj, with(4, good), "generation 4 is above the object's 3"},
		"neither owned nor live": {"a typo, or a missing declaration", obj, with(3, good, cond("Raedy", "True", "Up")), `"Raedy" is not owned by this writer and not live`},
		"foreign and changed":    {"it is another writer's", obj, with(3, good, changed), `"Foreign" is not owned by this writer and differs`},
		"retired":                {"it can only go", obj, with(3, good, cond("Old", "True", "Up")), `"Old" is retired`},
		"twice":                  {"which of them is meant", obj, with(3, good, good), `"Ready" is given twice`},
		"condition ahead":        {"it observed what the verdict did not", obj, with(3, metav1.Condition{Type: "Ready", Status: "True", Reason: "R", ObservedGeneration: 4}), "above the verdict's"},
		"no condition":           {"an observed generation alone reads as current", obj, with(3), "no condition is given"},
		"bad status":             {"the server would refuse it", obj, with(3, cond("Ready", "Maybe", "Up")), `status "Maybe"`},
		"no reason":              {"the server would refuse it", obj, with(3, cond("Ready", "True", "")), `reason ""`},
		"bad reason":             {"the server would refuse it", obj, with(3, cond("Ready", "True", "Not Good")), `reason "Not Good"`},
		"reason ends in colon":   {"the server would refuse it", obj, with(3, cond("Ready", "True", "A:")), `reason "A:"`},
		"negative observed":      {"the server would refuse it", obj, with(3, metav1.Condition{Type: "Ready", Status: "True", Reason: "R", ObservedGeneration: -1}), "negative"},
		"never read":             {"there is no version to write on", unread, with(3, good), "never read"},
		"another type":           {"the writer reads by field position", liveUnstructured(t, other), with(3, good), "the writer is for *statussync_test.Database"},
		"nil":                    {"nothing to write", nil, with(3, good), "object is <nil>"},
		"typed nil":              {"nothing to write", typedNil, with(3, good), "*statussync_test.Database"},
	} {
		w := newWriter(t, s)
		_, err := w.Sync(t.Context(), c.obj, c.d)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s (%s): Sync error = %v, want one with %q", name, c.reason, err, c.want)
		}
		if _, err := w.Plan(c.obj, c.d); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s (%s): Plan error = %v, want one with %q", name, c.reason, err, c.want)
		}
	}
	if rs := s.take(); len(rs) > 0 {
		t.Errorf("requests: %v", rs)
	}
}

// conflict is what the server says to a write on an old version.
func conflict() error {
	return apierrors.NewConflict(schema.GroupResource{Group: group.Group, Resource: "databases"}, "db", errors.New("the object has been modified"))
}

// bare422 is what the server says to a JSON Patch whose test failed.
func bare422() error {
	err := apierrors.NewInvalid(schema.GroupKind{Kind: "Database"}, "db", nil)
	err.ErrStatus.Details = nil
	return err
}

// stub422 is what it says to a result that is not valid.
func stub422(path string) error {
	err := apierrors.NewInvalid(schema.GroupKind{Kind: "Database"}, "db", nil)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueRequired, Field: path, Message: "Required value"}}
	return err
}

func TestSyncGivesWay(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(3))
	applyAs(t, other, "autoscaler", `{"checkedAt": "2026-09-01T00:00:00Z"}`)
	obj := live(t, other)
	synctest.Test(t, func(t *testing.T) {
		s.before = func(_ int, r request) error {
			if r.Verb == "apply" {
				return conflict()
			}
			return nil
		}
		start := time.Now()
		r, err := newWriter(t, s).Sync(t.Context(), obj, ready(3, "x"))
		if err != nil || r.Outcome != statussync.Deferred || !strings.Contains(r.Why, "autoscaler") {
			t.Errorf("Sync = %+v, %v", r, err)
		}
		if r.RequeueAfter < time.Second || r.RequeueAfter > 5*time.Second {
			t.Errorf("RequeueAfter = %s", r.RequeueAfter)
		}
		if d := time.Since(start); d > 30*time.Millisecond {
			t.Errorf("it paused for %s", d)
		}
		if got := verbs(s.take()); got != "apply get apply get apply" {
			t.Errorf("requests = %s", got)
		}
	})
}

// Pauses are jittered, so that two writers part, and end with the context.
func TestSyncPauses(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(3))
	obj := live(t, other)
	s.before = func(_ int, r request) error {
		if r.Verb == "apply" {
			return conflict()
		}
		return nil
	}
	synctest.Test(t, func(t *testing.T) {
		seen := map[time.Duration]bool{}
		for range 20 {
			start := time.Now()
			if _, err := newWriter(t, s).Sync(t.Context(), obj, ready(3, "x")); err != nil {
				t.Fatal(err)
			}
			seen[time.Since(start)] = true
		}
		if len(seen) < 10 {
			t.Errorf("20 pauses took %d different times", len(seen))
		}
		s.take()

		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond) // no time for a pause
		defer cancel()
		r, err := newWriter(t, s).Sync(ctx, obj, ready(3, "x"))
		if err != nil || r.Outcome != statussync.Deferred || verbs(s.take()) != "apply" {
			t.Errorf("with a near deadline: %+v, %v", r, err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		if _, err := newWriter(t, s).Sync(ctx, obj, ready(3, "x")); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	})
}

// Each live read decides first.
func TestSyncAfterAConflict(t *testing.T) {
	t.Parallel()
	write := func(change func(*Database)) func(*testing.T, client.Client) {
		return func(t *testing.T, c client.Client) {
			d := live(t, c)
			change(d)
			if err := c.Status().Update(context.Background(), d, client.FieldOwner("other")); err != nil {
				t.Error(err)
			}
		}
	}
	for name, c := range map[string]struct {
		reason  string
		between func(*testing.T, client.Client)
		want    statussync.Outcome
		verbs   string
		why     string
	}{
		"something else changed": {
			"the verdict still holds", write(func(d *Database) { d.Status.Network = &Network{} }), statussync.Written, "apply get apply", "differs",
		},
		"it says so already": {
			"a write that arrived although its reply was lost", func(t *testing.T, c client.Client) {
				s2, err := statussync.New(c, c, "database-operator", statussync.WithClock(newClock().now))
				if err != nil {
					t.Fatal(err)
				}
				w, err := statussync.For[Payload](s2, "main", &Database{}, mainOwns)
				if err != nil {
					t.Fatal(err)
				}
				sync_(t, w, live(t, c), ready(3, "x"))
			}, statussync.NoOp, "apply get", "so already",
		},
		"a newer verdict": {
			"another process is ahead", func(t *testing.T, c client.Client) {
				d := live(t, c)
				d.Generation = 4
				if err := c.Update(context.Background(), d); err != nil {
					t.Fatal(err)
				}
				write(func(d *Database) { d.Status.ObservedGeneration = 4 })(t, c)
			}, statussync.Stale, "apply get", "status.observedGeneration is 4; the verdict is for 3",
		},
		"a newer condition": {
			"a writer that is not the Primary fences on its conditions", func(t *testing.T, c client.Client) {
				d := live(t, c)
				d.Generation = 4
				if err := c.Update(context.Background(), d); err != nil {
					t.Fatal(err)
				}
				n := cond("Net", "True", "Up")
				n.ObservedGeneration = 4
				write(func(d *Database) { d.Status.Conditions = []metav1.Condition{n} })(t, c)
			}, statussync.Stale, "apply get", "condition Net is of generation 4",
		},
		"a newer condition that is not desired": {
			"it would be dropped by an old verdict", func(t *testing.T, c client.Client) {
				d := live(t, c)
				d.Generation = 4
				if err := c.Update(context.Background(), d); err != nil {
					t.Fatal(err)
				}
				n := cond("App", "True", "Up")
				n.ObservedGeneration = 4
				write(func(d *Database) { d.Status.Conditions = []metav1.Condition{n} })(t, c)
			}, statussync.Stale, "apply get", "condition App is of generation 4",
		},
		"gone": {
			"deleted meanwhile", func(t *testing.T, c client.Client) {
				if err := c.Delete(context.Background(), live(t, c)); err != nil {
					t.Fatal(err)
				}
			}, statussync.Gone, "apply get", "does not exist",
		},
		"made again": {
			"deleted and recreated under its name", func(t *testing.T, c client.Client) {
				if err := c.Delete(context.Background(), live(t, c)); err != nil {
					t.Fatal(err)
				}
				n := db(3)
				n.UID = "uid-2"
				if err := c.Create(context.Background(), n); err != nil {
					t.Fatal(err)
				}
			}, statussync.Gone, "apply get", "another one has its name",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, other := newServer(t, db(3))
			obj := live(t, other)
			s.before = func(n int, r request) error {
				if n != 1 {
					return nil
				}
				c.between(t, other)
				if name == "gone" { // the fake client would create it; a real server does not
					return apierrors.NewNotFound(schema.GroupResource{Group: group.Group, Resource: "databases"}, "db")
				}
				return conflict()
			}
			r := sync_(t, newWriter(t, s), obj, ready(3, "x"))
			if r.Outcome != c.want || !strings.Contains(r.Why, c.why) {
				t.Errorf("%s: Sync = %s: %s", c.reason, r.Outcome, r.Why)
			}
			if got := verbs(s.take()); got != c.verbs {
				t.Errorf("requests = %q, want %q", got, c.verbs)
			}
			if c.want != statussync.Written && r.Object != nil {
				t.Error("an object is returned though nothing was written")
			}
		})
	}
}

func TestSyncErrors(t *testing.T) {
	t.Parallel()
	gr := schema.GroupResource{Group: group.Group, Resource: "databases"}
	for name, c := range map[string]struct {
		reason string
		answer error
		is     func(error) bool
		says   string
	}{
		"forbidden":      {"it says which right is missing", apierrors.NewForbidden(gr, "db", errors.New("no")), apierrors.IsForbidden, "needs the verb patch"},
		"invalid":        {"it names the object and keeps the causes", apierrors.NewInvalid(schema.GroupKind{Kind: "Database"}, "db", nil), apierrors.IsInvalid, "Database shop/db"},
		"busy":           {"without a time the workqueue's back-off is better", apierrors.NewGenericServerResponse(http.StatusTooManyRequests, "patch", gr, "db", "", 0, true), apierrors.IsTooManyRequests, "shop/db"},
		"no subresource": {"it is not taken for a deleted object", apierrors.NewNotFound(gr, "db"), apierrors.IsNotFound, "its kind has no status subresource"},
		"broken":         {"it reaches the workqueue", apierrors.NewInternalError(errors.New("etcd")), apierrors.IsInternalError, "etcd"},
		"unreachable":    {"the cause can be asked for", fmt.Errorf("dial: %w", context.DeadlineExceeded), func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }, "sync status of"},
	} {
		s, other := newServer(t, db(3))
		s.before = func(_ int, r request) error {
			if r.Verb == "get" {
				return nil
			}
			return c.answer
		}
		r, err := newWriter(t, s).Sync(t.Context(), live(t, other), ready(3, "x"))
		if err == nil || !c.is(err) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s (%s): error = %v", name, c.reason, err)
		}
		if r.Outcome != statussync.NoOp || r.Object != nil {
			t.Errorf("%s: result beside an error: %+v", name, r)
		}
	}
}

// The server says when to come back: that is no failure of this object.
func TestSyncHonoursRetryAfter(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(3))
	s.before = func(int, request) error { return apierrors.NewTooManyRequests("later", 7) }
	r := sync_(t, newWriter(t, s), live(t, other), ready(3, "x"))
	if r.Outcome != statussync.Deferred || r.RequeueAfter != 7*time.Second {
		t.Errorf("%+v", r)
	}
}

func TestObserver(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(3))
	var events []statussync.Event
	w := newWriter(t, s, statussync.WithObserver(func(e statussync.Event) { events = append(events, e) }))
	obj := live(t, other)
	sync_(t, w, obj, ready(3, "x"))
	sync_(t, w, live(t, other), ready(3, "x"))
	if _, err := w.Sync(t.Context(), obj, statussync.Desired[Payload]{}); err == nil {
		t.Error("no error")
	}
	if _, err := w.Sync(t.Context(), nil, ready(3, "x")); err == nil {
		t.Error("no error")
	}
	var got []string
	for _, e := range events {
		got = append(got, e.LogValue().String())
	}
	want := []string{
		"[writer=database-operator/main kind=Database object=shop/db generation=3 outcome=Written why=status.observedGeneration differs requests=1]",
		"[writer=database-operator/main kind=Database object=shop/db generation=3 outcome=NoOp why=the live object says so already requests=0]",
		"[writer=database-operator/main kind=Database object=shop/db generation=0 outcome=NoOp why= requests=0 error=sync status of Database shop/db: generation is 0: it must be that of the object the verdict was computed from]",
		"[writer=database-operator/main kind=Database object= generation=3 outcome=NoOp why= requests=0 error=sync status of Database: object is <nil>, the writer is for *statussync_test.Database]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// A writer is shared by all workers of a controller.
func TestSyncConcurrently(t *testing.T) {
	t.Parallel()
	var objs []client.Object
	for i := range 20 {
		d := db(1)
		d.Name, d.UID = fmt.Sprintf("db-%d", i), types.UID(fmt.Sprint(i))
		objs = append(objs, d)
	}
	s, other := newServer(t, objs...)
	w := newWriter(t, s)
	var wg sync.WaitGroup
	for _, o := range objs {
		wg.Go(func() {
			for n := range 10 {
				d := &Database{}
				if err := other.Get(t.Context(), client.ObjectKeyFromObject(o), d); err != nil {
					t.Error(err)
					return
				}
				if r, err := w.Sync(t.Context(), d, ready(1, fmt.Sprint(n/2))); err != nil || (r.Outcome == statussync.Written) != (n%2 == 0) {
					t.Errorf("%s, pass %d: %+v, %v", o.GetName(), n, r, err)
				}
			}
		})
	}
	wg.Wait()
	if n := len(s.take()); n != 100 {
		t.Errorf("%d requests", n)
	}
}
