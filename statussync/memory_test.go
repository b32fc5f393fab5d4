// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/ashlar-go/ashlar/statussync"
)

// A cached object older than our own write is no evidence of anything.
func TestStaleCache(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(3))
	w := newWriter(t, s)
	old := live(t, other)
	sync_(t, w, old, ready(3, "x"))
	s.take()

	// The caller sees its own transition again and stamps it anew.
	d := ready(3, "x")
	d.Conditions[0].LastTransitionTime = metav1.NewTime(at.Add(time.Minute))
	if r := sync_(t, w, old, d); r.Outcome != statussync.NoOp || len(s.take()) != 0 {
		t.Errorf("the same verdict: %+v", r)
	}

	// Another verdict on the old object: the write would be refused for sure, so the live object is read first.
	if r := sync_(t, w, old, ready(3, "y")); r.Outcome != statussync.Written || verbs(s.take()) != "get apply" {
		t.Errorf("another verdict: %+v", r)
	}

	// The verdict that equals what the old object says is news as well: it is not what we wrote last.
	mid := live(t, other)
	sync_(t, w, mid, ready(3, "z"))
	s.take()
	if r := sync_(t, w, mid, ready(3, "y")); r.Outcome != statussync.Written || live(t, other).Status.Endpoint != "y" {
		t.Errorf("back to the old value: %+v", r)
	}

	// An older generation is stale without asking anybody.
	newer := live(t, other)
	newer.Generation = 4
	if err := other.Update(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	sync_(t, w, live(t, other), ready(4, "y"))
	s.take()
	if r := sync_(t, w, mid, ready(3, "q")); r.Outcome != statussync.Stale || len(s.take()) != 0 {
		t.Errorf("an older generation: %+v", r)
	}
}

// A reply that was lost: the write happened, and the next pass finds out with one live read, the one after for free.
func TestLostReply(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(3))
	w := newWriter(t, s)
	old := live(t, other)
	sync_(t, newWriter(t, s), old, ready(3, "x")) // as if it had been ours
	s.take()
	if r := sync_(t, w, old, ready(3, "x")); r.Outcome != statussync.NoOp || verbs(s.take()) != "apply get" {
		t.Errorf("%+v", r)
	}
	if r := sync_(t, w, old, ready(3, "x")); r.Outcome != statussync.NoOp || verbs(s.take()) != "" {
		t.Errorf("again: %+v", r)
	}
}

// Request ids and durations in messages make every pass "new" (crossplane provider-aws#69, hypershift#958).
func TestMessagesAreSpaced(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(3))
	c := newClock()
	w := newWriter(t, s, statussync.WithClock(c.now))
	say := func(n int, change func(*statussync.Desired[Payload])) statussync.Result {
		d := ready(3, "x")
		d.Conditions[0].Message = fmt.Sprintf("request %d", n)
		if change != nil {
			change(&d)
		}
		return sync_(t, w, live(t, other), d)
	}
	say(0, nil)
	if r := say(1, nil); r.Outcome != statussync.Written {
		t.Errorf("the first message: %+v", r)
	}
	c.step(10 * time.Second)
	if r := say(2, nil); r.Outcome != statussync.Deferred || r.RequeueAfter != 20*time.Second {
		t.Errorf("the second: %+v", r)
	}
	c.step(20 * time.Second)
	if r := say(3, nil); r.Outcome != statussync.Written || live(t, other).Status.Conditions[0].Message != "request 3" {
		t.Errorf("when it is due: %+v", r)
	}
	for name, change := range map[string]func(*statussync.Desired[Payload]){
		"status":   func(d *statussync.Desired[Payload]) { d.Conditions[1].Status = "False" },
		"reason":   func(d *statussync.Desired[Payload]) { d.Conditions[1].Reason = "Other" },
		"payload":  func(d *statussync.Desired[Payload]) { d.Status.Endpoint = "y" },
		"removal":  func(d *statussync.Desired[Payload]) { d.Conditions = d.Conditions[:1] },
		"addition": func(d *statussync.Desired[Payload]) { d.Conditions = append(d.Conditions, cond("App", "True", "Up")) },
		"generation": func(d *statussync.Desired[Payload]) {
			o := live(t, other)
			o.Generation++
			if err := other.Update(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			d.Generation = o.Generation
		},
	} {
		if name == "generation" {
			continue // last: it does not go back
		}
		if r := say(4, change); r.Outcome != statussync.Written {
			t.Errorf("a change of %s is held back: %+v", name, r)
		}
		say(5, nil)
	}
	s2, other2 := newServer(t, db(3))
	w2 := newWriter(t, s2, statussync.WithMessageInterval(0))
	for n := range 3 {
		d := ready(3, "x")
		d.Conditions[0].Message = fmt.Sprint(n)
		if r := sync_(t, w2, live(t, other2), d); r.Outcome != statussync.Written {
			t.Errorf("without an interval: %+v", r)
		}
	}
}

// Two programs want the same condition: write, report with a name, and back off.
func TestContested(t *testing.T) {
	t.Parallel()
	for name, strip := range map[string]bool{"managedFields visible": false, "managedFields stripped": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, other := newServer(t, db(3))
			c := newClock()
			w := newWriter(t, s, statussync.WithClock(c.now))
			cached := func() client.Object {
				d := live(t, other)
				if strip {
					d.ManagedFields = nil
				}
				return d
			}
			take := func() {
				applyAs(t, other, "rival", `{"conditions":[{"type":"Ready","status":"False","reason":"Mine","message":"","lastTransitionTime":"2026-09-01T12:00:00Z"}]}`)
			}
			sync_(t, w, cached(), ready(3, "x"))
			take()
			if r := sync_(t, w, cached(), ready(3, "x")); r.Outcome != statussync.Written || r.Findings != nil {
				t.Errorf("after one taking: %+v", r)
			}
			take()
			s.take()
			r := sync_(t, w, cached(), ready(3, "x"))
			want := statussync.Finding{Kind: statussync.Contested, Manager: "rival", Field: "Ready"}
			if r.Outcome != statussync.Written || len(r.Findings) != 1 || r.Findings[0] != want {
				t.Errorf("after two: %+v", r)
			}
			if got := verbs(s.take()); strip && got != "get apply" || !strip && got != "apply" {
				t.Errorf("requests = %s", got)
			}
			var waits []time.Duration
			for range 8 {
				take()
				r := sync_(t, w, cached(), ready(3, "x"))
				if r.Outcome != statussync.Deferred || len(r.Findings) != 1 || r.Findings[0] != want {
					t.Fatalf("held: %+v", r)
				}
				waits = append(waits, r.RequeueAfter)
				c.step(r.RequeueAfter)
				if r = sync_(t, w, cached(), ready(3, "x")); r.Outcome != statussync.Written {
					t.Fatalf("when it is due: %+v", r)
				}
			}
			if got := fmt.Sprint(waits); got != "[10s 20s 40s 1m20s 2m40s 5m0s 5m0s 5m0s]" {
				t.Errorf("waits = %s", got)
			}
			take()
			d := ready(3, "x")
			d.Conditions[0].Reason = "News"
			if r := sync_(t, w, cached(), d); r.Outcome != statussync.Written {
				t.Errorf("news of our own is held back: %+v", r)
			}
			c.step(time.Hour)
			take()
			if r := sync_(t, w, cached(), d); r.Outcome != statussync.Written || r.Findings != nil {
				t.Errorf("long after: %+v", r)
			}
		})
	}
}

// Another writer's change to its own fields is no contest.
func TestNotContested(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(3))
	w := newWriter(t, s)
	for n := range 5 {
		d := ready(3, fmt.Sprint(n))
		applyAs(t, other, "neighbour", fmt.Sprintf(`{"conditions":[{"type":"Theirs","status":"True","reason":"R%d","message":"","lastTransitionTime":"2026-09-01T12:00:00Z"}]}`, n))
		if r := sync_(t, w, live(t, other), d); r.Outcome != statussync.Written || r.Findings != nil {
			t.Errorf("%+v", r)
		}
	}
}

// An observedGeneration above the generation is corrupt: no verdict would ever pass it.
func TestRepaired(t *testing.T) {
	t.Parallel()
	ahead := cond("Net", "True", "Up")
	ahead.ObservedGeneration = 9
	for name, c := range map[string]struct {
		reason string
		obj    *Database
		field  string
	}{
		"the object's":    {"restored from a backup of another object", func() *Database { d := db(3); d.Status.ObservedGeneration = 9; return d }(), "status.observedGeneration"},
		"a condition's":   {"the same, one level below", db(3, ahead), "condition Net"},
		"a dropped one's": {"it is removed anyway", func() *Database { a := ahead; a.Type = "App"; return db(3, a) }(), "condition App"},
	} {
		s, other := newServer(t, c.obj)
		w := newWriter(t, s)
		r := sync_(t, w, live(t, other), ready(3, "x"))
		want := statussync.Finding{Kind: statussync.Repaired, Field: c.field}
		if r.Outcome != statussync.Written || len(r.Findings) != 1 || r.Findings[0] != want {
			t.Errorf("%s (%s): %+v", name, c.reason, r)
		}
		got := live(t, other).Status
		if got.ObservedGeneration != 3 || len(got.Conditions) != 2 || got.Conditions[1].ObservedGeneration != 3 {
			t.Errorf("%s: status = %+v", name, got)
		}
		if r := sync_(t, w, live(t, other), ready(3, "x")); r.Outcome != statussync.NoOp || r.Findings != nil {
			t.Errorf("%s: again: %+v", name, r)
		}
	}
}

// The CRD default of -1, which is how a new object is not Current, is no fence.
func TestDefaultObservedGeneration(t *testing.T) {
	t.Parallel()
	d := db(1)
	d.Status.ObservedGeneration = -1
	s, other := newServer(t, d)
	if r := sync_(t, newWriter(t, s), live(t, other), ready(1, "x")); r.Outcome != statussync.Written || r.Findings != nil {
		t.Errorf("%+v", r)
	}
}

// A condition older than the live one never replaces it, though the verdict as a whole is new enough.
func TestOldConditionInANewVerdict(t *testing.T) {
	t.Parallel()
	n := cond("Net", "False", "Down")
	n.ObservedGeneration = 3
	s, other := newServer(t, db(3, n))
	d := ready(3, "x")
	d.Conditions[1].ObservedGeneration = 2
	if r := sync_(t, newWriter(t, s), live(t, other), d); r.Outcome != statussync.Stale || len(s.take()) != 0 {
		t.Errorf("%+v", r)
	}
}

// A slow clock, or a verdict that waited, does not turn the time back. A CRD may forbid that by rule.
func TestTransitionTimeNeverGoesBack(t *testing.T) {
	t.Parallel()
	old := cond("Ready", "False", "Down")
	old.LastTransitionTime = metav1.NewTime(at.Add(time.Minute))
	for name, given := range map[string]metav1.Time{"by the writer's clock": {}, "by the caller's": metav1.NewTime(at)} {
		s, other := newServer(t, db(1, old))
		d := ready(1, "x")
		d.Conditions[0].LastTransitionTime = given
		sync_(t, newWriter(t, s), live(t, other), d)
		if got := live(t, other).Status.Conditions[0]; got.Status != "True" || !got.LastTransitionTime.Equal(&old.LastTransitionTime) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Somebody else holds a key inside a field we own. It cannot be removed by leaving it out: reported, and not written
// again with every pass; but a change of what is ours is still seen.
func TestAlteredPayload(t *testing.T) {
	t.Parallel()
	for name, loose := range map[string]bool{"typed": false, "unstructured": true} {
		s, other := newServer(t, db(3))
		applyAs(t, other, "neighbour", `{"labels":{"theirs":"1"}}`)
		kind, get := client.Object(&Database{}), func() client.Object { return live(t, other) }
		if loose {
			kind, get = unstructuredKind(), func() client.Object { return liveUnstructured(t, other) }
		}
		w, err := statussync.For[Payload](newGroup(t, s), "main", kind, mainOwns)
		if err != nil {
			t.Fatal(err)
		}
		d := ready(3, "x")
		d.Status.Labels = map[string]string{"ours": "1"}
		want := statussync.Finding{Kind: statussync.Altered, Field: "status.labels"}
		r := sync_(t, w, get(), d)
		if len(r.Findings) != 1 || r.Findings[0] != want || verbs(s.take()) != "apply" {
			t.Errorf("%s: %+v", name, r)
		}
		for range 3 {
			applyAs(t, other, "third", `{"checkedAt":"2026-09-01T00:00:00Z"}`)
			if r = sync_(t, w, get(), d); r.Outcome != statussync.NoOp || len(r.Findings) != 1 || r.Findings[0] != want {
				t.Errorf("%s: again: %+v", name, r)
			}
		}
		if p, err := w.Plan(get(), d); err != nil || !p.Empty() || len(p.Findings) != 1 {
			t.Errorf("%s: plan = %s, %v", name, p, err)
		}
		if got := verbs(s.take()); got != "" {
			t.Errorf("%s: requests = %s", name, got)
		}
		applyAs(t, other, "rival", `{"labels":{"ours":"2"}}`)
		if r = sync_(t, w, get(), d); r.Outcome != statussync.Written || live(t, other).Status.Labels["ours"] != "1" {
			t.Errorf("%s: what is ours was not taken back: %+v", name, r)
		}
		// The neighbour leaves: the value is as desired.
		applyAs(t, other, "neighbour", `{}`)
		if r = sync_(t, w, get(), d); r.Outcome != statussync.NoOp || len(r.Findings) != 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// A webhook rewrites a message on its way in.
func TestAlteredCondition(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(3))
	c := interceptor.NewClient(s, interceptor.Funcs{
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, ac runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			if err := c.SubResource(sub).Apply(ctx, ac, opts...); err != nil {
				return err
			}
			d := live(t, other)
			d.Status.Conditions[0].Message = "rewritten"
			if err := other.Status().Update(ctx, d); err != nil {
				return err
			}
			raw, err := json.Marshal(live(t, other))
			if err != nil {
				return err
			}
			return json.Unmarshal(raw, ac)
		},
	})
	g, err := statussync.New(c, c, "database-operator")
	if err != nil {
		t.Fatal(err)
	}
	w, err := statussync.For[Payload](g, "main", &Database{}, mainOwns)
	if err != nil {
		t.Fatal(err)
	}
	want := statussync.Finding{Kind: statussync.Altered, Field: "Ready"}
	for n, outcome := range []statussync.Outcome{statussync.Written, statussync.NoOp, statussync.NoOp} {
		r := sync_(t, w, live(t, other), ready(3, "x"))
		if r.Outcome != outcome || len(r.Findings) != 1 || r.Findings[0] != want {
			t.Errorf("pass %d: %+v", n, r)
		}
	}
}

// The removal went through, the apply after it met a conflict, and the live object is as desired: something was written.
func TestRemovedThenConverged(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(1))
	w := newWriter(t, s)
	applyAs(t, other, "rival", `{"conditions":[{"type":"Net","status":"True","reason":"R","message":"","lastTransitionTime":"2026-09-01T12:00:00Z"}]}`)
	d := statussync.Desired[Payload]{Generation: 1, Conditions: []metav1.Condition{cond("Ready", "True", "Up")}}
	s.before = func(_ int, r request) error {
		if r.Verb != "apply" {
			return nil
		}
		s.before = nil
		applyAs(t, other, "database-operator/main", `{"observedGeneration":1,"conditions":[{"type":"Ready","status":"True","observedGeneration":1,"reason":"Up","message":"","lastTransitionTime":"2026-09-01T12:00:00Z"}]}`)
		return conflict()
	}
	r := sync_(t, w, live(t, other), d)
	if r.Outcome != statussync.Written || r.Object == nil || r.Object.GetResourceVersion() != live(t, other).ResourceVersion {
		t.Errorf("%+v", r)
	}
	if got := verbs(s.take()); got != "patch apply get" {
		t.Errorf("requests = %s", got)
	}
}
