// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ashlar-go/ashlar/finalizers"
)

// nsTerminating is what the server answers to a create in a namespace that is being deleted.
func nsTerminating() error {
	err := apierrors.NewForbidden(schema.GroupResource{Resource: "jobs"}, "backup",
		errors.New("unable to create new content in namespace ns because it is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause, Field: "metadata.namespace",
		Message: "namespace ns is being terminated"}}
	return err
}

// oursTest keeps progress off an object that another process has released meanwhile.
const oursTest = `,{"op":"test","path":"/metadata/finalizers/0","value":"example.com/cleanup"}`

const key = `/metadata/annotations/ashlar-go.github.io~1cleanup`

// entry is the stored progress of our finalizer, as the value of the annotation.
func entry(records string) string {
	return fmt.Sprintf(`{"uid":%q,"by":{%q:{"steps":%s}}}`, uid, name, records)
}

// TestOutcomes holds, for every outcome, what is stored, what is returned, and when the next pass is due.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	since := `,"since":"2026-03-01T10:00:00Z"`
	tests := map[string]struct {
		reason string
		step   step
		say    finalizers.Outcome
		state  finalizers.State
		stored string
		again  time.Duration
		err    string // substring of Sync's error
		why    string // substring of Progress.Err
	}{
		"wait": {
			reason: "the step names its own time", say: finalizers.Wait(3 * time.Second),
			state: finalizers.StateWaiting, stored: `[{"step":"s","state":"Wait"` + since + `}]`, again: 3 * time.Second,
		},
		"wait zero": {
			reason: "ten seconds when it names none", say: finalizers.Wait(0),
			state: finalizers.StateWaiting, stored: `[{"step":"s","state":"Wait"` + since + `}]`, again: 10 * time.Second,
		},
		"wait negative": {
			reason: "a negative time must not become an immediate pass", say: finalizers.Wait(-1),
			state: finalizers.StateWaiting, stored: `[{"step":"s","state":"Wait"` + since + `}]`, again: 10 * time.Second,
		},
		"blocked": {
			reason: "the blocker is stored with the state", say: finalizers.BlockedBy(finalizers.Ref{Kind: "Pod", Namespace: "ns", Name: "p"}),
			state:  finalizers.StateBlocked,
			stored: `[{"step":"s","state":"BlockedBy"` + since + `,"blocker":{"kind":"Pod","namespace":"ns","name":"p"}}]`, again: 10 * time.Second,
		},
		"retry": {
			reason: "the error goes to the workqueue, which backs off", say: finalizers.Retry(failed),
			state: finalizers.StateRetrying, stored: `[{"step":"s","state":"Retry"` + since + `}]`,
			err: `cleanup step "s": failed`, why: "failed",
		},
		"retry nil": {
			reason: "a missing error is said", say: finalizers.Retry(nil),
			state: finalizers.StateRetrying, stored: `[{"step":"s","state":"Retry"` + since + `}]`,
			err: "retry without an error", why: "retry without an error",
		},
		"zero": {
			reason: "nobody forgets a cleanup by returning the zero value", say: finalizers.Outcome{},
			state: finalizers.StateRetrying, stored: `[{"step":"s","state":"Retry"` + since + `}]`,
			err: "no outcome", why: "no outcome",
		},
		"stuck": {
			reason: "no workqueue spins on what needs a person", say: finalizers.Stuck(failed),
			state: finalizers.StateStuck, stored: `[{"step":"s","state":"Stuck"` + since + `}]`, again: 10 * time.Minute, why: "failed",
		},
		"stuck nil": {
			reason: "a missing error is said", say: finalizers.Stuck(nil),
			state: finalizers.StateStuck, stored: `[{"step":"s","state":"Stuck"` + since + `}]`, again: 10 * time.Minute, why: "stuck without",
		},
		"namespace terminating": {
			reason: "a class of its own, whose sentence says what is wrong", say: finalizers.Retry(fmt.Errorf("create backup: %w", nsTerminating())),
			state: finalizers.StateNamespaceTerminating, stored: `[{"step":"s","state":"NamespaceTerminating"` + since + `}]`,
			again: 10 * time.Minute, why: "namespace that is being deleted, where nothing can be created",
		},
		"namespace terminating, stuck": {
			reason: "the class does not depend on how the step returns the error", say: finalizers.Stuck(nsTerminating()),
			state: finalizers.StateNamespaceTerminating, stored: `[{"step":"s","state":"NamespaceTerminating"` + since + `}]`,
			again: 10 * time.Minute, why: "being deleted",
		},
		"namespace terminating, joined with another": {
			reason: "the other error may go away with a retry; giving up would leak it", say: finalizers.Retry(errors.Join(nsTerminating(), failed)),
			step:  step{InTerminatingNamespace: finalizers.Skip},
			state: finalizers.StateRetrying, stored: `[{"step":"s","state":"Retry"` + since + `}]`, err: "failed", why: "failed",
		},
		"forbidden for another reason": {
			reason: "only the cause counts, not the code", say: finalizers.Retry(apierrors.NewForbidden(schema.GroupResource{}, "x", failed)),
			step:  step{InTerminatingNamespace: finalizers.Skip},
			state: finalizers.StateRetrying, stored: `[{"step":"s","state":"Retry"` + since + `}]`, err: "forbidden", why: "forbidden",
		},
		"deadline ahead": {
			reason: "the pass that notices it is due with the deadline", step: step{Deadline: 4 * time.Second}, say: finalizers.Wait(time.Hour),
			state: finalizers.StateWaiting, stored: `[{"step":"s","state":"Wait"` + since + `}]`, again: 4 * time.Second,
		},
	}
	for title, tt := range tests {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, terminating("a", name))
			var log []string
			tt.step.Name, tt.step.Do = "s", say(&log, "s", tt.say)
			var a applied
			res, err := mustNew(t, []step{tt.step}).Sync(t.Context(), w, w, w.get("a"), a.apply)
			if got := fmt.Sprint(err); err != nil != (tt.err != "") || !strings.Contains(got, tt.err) {
				t.Errorf("%s: error %q, want %q", tt.reason, got, tt.err)
			}
			if res.Phase != finalizers.Cleaning || res.Progress.Steps[0].State != tt.state || res.RequeueAfter != tt.again {
				t.Errorf("%s: %v %v again after %v", tt.reason, res.Phase, res.Progress, res.RequeueAfter)
			}
			if got := fmt.Sprint(res.Progress.Err()); !strings.Contains(got, tt.why) {
				t.Errorf("%s: Progress.Err = %q, want %q", tt.reason, got, tt.why)
			}
			w.wantSent(`PATCH [` + uidTest() + oursTest + `,{"op":"test","path":"/metadata/annotations","value":null}` +
				`,{"op":"add","path":"/metadata/annotations","value":` + jsonOf(map[string]string{finalizers.Annotation: entry(tt.stored)}) + `}]`)
			if a.calls != 0 {
				t.Error("apply was called for a terminating object")
			}
			// The same outcome again changes nothing, so nothing is sent, whoever runs the pass.
			again, _ := mustNew(t, []step{tt.step}).Sync(t.Context(), w, w, w.get("a"), nil)
			w.wantSent()
			if again.Progress.Steps[0].Since != start() {
				t.Errorf("since moved to %v", again.Progress.Steps[0].Since)
			}
		})
	}
}

func TestSkipInTerminatingNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, terminating("a", name))
	var log []string
	var events []finalizers.Event
	f := mustNew(t, []step{
		{Name: "backup", Do: say(&log, "backup", finalizers.Retry(nsTerminating())), InTerminatingNamespace: finalizers.Skip},
		{Name: "remote", After: []string{"backup"}, Do: say(&log, "remote", finalizers.Done())},
	}, finalizers.WithObserver(func(e finalizers.Event) { events = append(events, e) }))
	res, err := f.Sync(t.Context(), w, w, w.get("a"), nil)
	if err != nil || res.Phase != finalizers.Released {
		t.Fatalf("Sync = %v, %v after %q", res.Phase, err, w.sent)
	}
	if diff := cmp.Diff([]string{"backup", "remote"}, log); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	first := events[0]
	if first.Kind != finalizers.EventSkipped || first.Step != "backup" || first.Message !=
		`namespace ns is terminating, nothing can be created in it: cleanup step "backup" was skipped; what it should have cleaned up may be left behind` {
		t.Errorf("first event = %+v; what may have leaked must be said before it is stored", first)
	}
	if want := (finalizers.Ref{APIVersion: "v1", Kind: "Namespace", Name: "ns"}); first.Regarding != want {
		t.Errorf("regarding %+v: an event can only be created outside of the terminating namespace", first.Regarding)
	}
}

// TestProgressWrites holds the patch of the annotation for every state in which it may be found.
func TestProgressWrites(t *testing.T) {
	t.Parallel()
	next := entry(`[{"step":"s","state":"Wait","since":"2026-03-01T10:00:00Z"}]`)
	blocked := entry(`[{"step":"s","state":"BlockedBy","since":"2026-03-01T09:00:00Z","blocker":{"name":"x"}}]`)
	tests := map[string]struct {
		reason string
		have   map[string]string
		say    finalizers.Outcome
		patch  string
	}{
		"other annotations": {
			reason: "the map is there, the key is not: tested so that another controller's progress is not lost",
			have:   map[string]string{"x": "y"}, say: finalizers.Wait(0),
			patch: `{"op":"test","path":"` + key + `","value":null},{"op":"add","path":"` + key + `","value":` + jsonOf(next) + `}`,
		},
		"changed": {
			reason: "since stays when the state changes",
			have:   map[string]string{finalizers.Annotation: blocked}, say: finalizers.Wait(0),
			patch: `{"op":"test","path":"` + key + `","value":` + jsonOf(blocked) + `},{"op":"replace","path":"` + key + `","value":` +
				jsonOf(strings.Replace(next, "T10:", "T09:", 1)) + `}`,
		},
		"another finalizer": {
			reason: "the other controller's entry keeps its bytes, whatever they are",
			have:   map[string]string{finalizers.Annotation: fmt.Sprintf(`{"by":{"a.example.com/z":{"new":"form"}},"uid":%q}`, uid)},
			say:    finalizers.Wait(0),
			patch: `{"op":"test","path":"` + key + `","value":` + jsonOf(fmt.Sprintf(`{"by":{"a.example.com/z":{"new":"form"}},"uid":%q}`, uid)) +
				`},{"op":"replace","path":"` + key + `","value":` +
				jsonOf(strings.Replace(next, `"by":{`, `"by":{"a.example.com/z":{"new":"form"},`, 1)) + `}`,
		},
		"unreadable": {
			reason: "reported, replaced, not fatal",
			have:   map[string]string{finalizers.Annotation: "{"}, say: finalizers.Wait(0),
			patch: `{"op":"test","path":"` + key + `","value":"{"},{"op":"replace","path":"` + key + `","value":` + jsonOf(next) + `}`,
		},
		"another object's": {
			reason: "a restored manifest brings the progress of its predecessor along; nothing was cleaned up for this one",
			have:   map[string]string{finalizers.Annotation: `{"uid":"x","by":{"example.com/cleanup":{"steps":[{"step":"s","state":"Done"}]}}}`},
			say:    finalizers.Wait(0),
			patch: `{"op":"test","path":"` + key + `","value":` + jsonOf(`{"uid":"x","by":{"example.com/cleanup":{"steps":[{"step":"s","state":"Done"}]}}}`) +
				`},{"op":"replace","path":"` + key + `","value":` + jsonOf(next) + `}`,
		},
		"released": {
			reason: "the entry goes with the finalizer, in one request",
			have:   map[string]string{finalizers.Annotation: blocked}, say: finalizers.Done(),
			patch: `{"op":"test","path":"/metadata/finalizers/0","value":"example.com/cleanup"},{"op":"remove","path":"/metadata/finalizers/0"},` +
				`{"op":"test","path":"` + key + `","value":` + jsonOf(blocked) + `},{"op":"remove","path":"` + key + `"}`,
		},
		"released, nothing stored": {
			reason: "no annotation is written only to be removed",
			say:    finalizers.Done(),
			patch:  `{"op":"test","path":"/metadata/finalizers/0","value":"example.com/cleanup"},{"op":"remove","path":"/metadata/finalizers/0"}`,
		},
	}
	for title, tt := range tests {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			obj := terminating("a", name)
			obj.Annotations = tt.have
			w := newWorld(t, obj)
			var log []string
			var unreadable int
			f := mustNew(t, []step{{Name: "s", Do: say(&log, "s", tt.say)}}, finalizers.WithObserver(func(e finalizers.Event) {
				if e.Kind == finalizers.EventUnreadable && e.Err != nil {
					unreadable++
				}
			}))
			if _, err := f.Sync(t.Context(), w, w, w.get("a"), nil); err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(title, "released") {
				tt.patch = oursTest[1:] + "," + tt.patch
			}
			w.wantSent("PATCH [" + uidTest() + "," + tt.patch + "]")
			if want := strings.HasPrefix(title, "unreadable") || strings.HasPrefix(title, "another object"); (unreadable == 1) != want || len(log) != 1 {
				t.Errorf("%s: reported %d times, %d calls", tt.reason, unreadable, len(log))
			}
		})
	}
}

// TestTwoReplicas: another process moves the same cleanup on between our read and our write. Nothing that either has
// found out is lost, and nothing is undone.
func TestTwoReplicas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, terminating("a", name, other))
	var log []string
	mine := mustNew(t, []step{
		{Name: "x", Do: say(&log, "x", finalizers.Done())},
		{Name: "y", Do: say(&log, "y", finalizers.Wait(0))},
	})
	theirs := mustNew(t, []step{
		{Name: "x", Do: say(&log, "x", finalizers.Wait(0))},
		{Name: "y", Do: say(&log, "y", finalizers.Done())},
	})
	w.before = func(n int, _ string) error {
		if n == 0 {
			if _, err := theirs.Sync(t.Context(), w.base, w.base, w.get("a"), nil); err != nil {
				t.Error(err)
			}
		}
		return nil
	}
	res, err := mine.Sync(t.Context(), w, w, w.get("a"), nil)
	if err != nil || res.Phase != finalizers.Released {
		t.Errorf("Sync = %v %v, %v; x is done here and y there, so all is over", res.Phase, res.Progress, err)
	}
	if diff := cmp.Diff([]string{other}, w.get("a").Finalizers); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
}

// TestStaleCacheAfterProgress: the pass after our own write sees the object without it. It must neither call what is
// done again nor be refused by the server.
func TestStaleCacheAfterProgress(t *testing.T) {
	t.Parallel()
	w := newWorld(t, terminating("a", name))
	var log []string
	f := mustNew(t, []step{
		{Name: "x", Do: say(&log, "x", finalizers.Done())},
		{Name: "y", Do: say(&log, "y", finalizers.Wait(0), finalizers.Wait(0), finalizers.Done())},
	})
	stale := w.get("a")
	for _, want := range [][]string{{"PATCH"}, {"GET"}, {"GET", "PATCH"}} {
		if _, err := f.Sync(t.Context(), w, w, stale, nil); err != nil {
			t.Fatal(err)
		}
		w.wantVerbs(want...)
	}
	if w.exists("a") {
		t.Error("not released")
	}
	if diff := cmp.Diff([]string{"x", "y", "y", "y"}, log); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// TestStaleCacheAfterStore: a second entry of our name would be accepted by the server.
func TestStaleCacheAfterStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, configMap("a", other))
	stale := w.get("a")
	f := mustNew(t, nil)
	var a applied
	for range 2 {
		if _, err := f.Sync(t.Context(), w, w, stale, a.apply); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{other, name}, w.get("a").Finalizers); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	if len(w.sent) != 2 || w.sent[1] != "GET a" || a.calls != 2 || a.last.ResourceVersion != w.get("a").ResourceVersion {
		t.Errorf("sent %q, %d calls of apply", w.sent, a.calls)
	}
}

func TestDeletionTellsTheStep(t *testing.T) {
	t.Parallel()
	for gc, want := range map[string]metav1.DeletionPropagation{
		metav1.FinalizerDeleteDependents: metav1.DeletePropagationForeground,
		metav1.FinalizerOrphanDependents: metav1.DeletePropagationOrphan,
		other:                            "",
	} {
		w := newWorld(t, terminating("a", name, gc))
		now := start()
		var got []finalizers.Deletion[*corev1.ConfigMap]
		f := mustNew(t, []step{{Name: "s", Do: func(_ context.Context, d finalizers.Deletion[*corev1.ConfigMap]) finalizers.Outcome {
			got = append(got, d)
			return finalizers.Wait(0)
		}}}, finalizers.WithClock(func() time.Time { return now }))
		for range 2 {
			if _, err := f.Sync(t.Context(), w, w, w.get("a"), nil); err != nil {
				t.Fatal(err)
			}
			now = now.Add(90 * time.Second)
		}
		if got[0].Policy != want || got[1].Policy != want {
			t.Errorf("%s: policy %q", gc, got[0].Policy)
		}
		if !got[0].Since.Equal(start()) || !got[1].Since.Equal(start()) {
			t.Errorf("since %v, then %v; want the time of the first call", got[0].Since, got[1].Since)
		}
	}
}

func TestPanicIsTheStepsFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t, terminating("a", name))
	var log []string
	f := mustNew(t, []step{
		{Name: "bad", Do: func(context.Context, finalizers.Deletion[*corev1.ConfigMap]) finalizers.Outcome { panic("boom") }},
		{Name: "good", Do: say(&log, "good", finalizers.Done())},
	})
	res, err := f.Sync(t.Context(), w, w, w.get("a"), nil)
	var p *finalizers.PanicError
	if !errors.As(err, &p) || p.Value != "boom" || len(p.Stack) == 0 || err.Error() != `cleanup step "bad": panic: boom` {
		t.Errorf("error = %v", err)
	}
	if len(log) != 1 || res.Progress.Steps[1].State != finalizers.StateDone {
		t.Errorf("the other step of the wave: %v", res.Progress)
	}
}

func TestCancelledContextCallsNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, terminating("a", name))
	ctx, cancel := context.WithCancel(t.Context())
	var log []string
	f := mustNew(t, []step{
		{Name: "x", Do: func(context.Context, finalizers.Deletion[*corev1.ConfigMap]) finalizers.Outcome {
			cancel()
			return finalizers.Done()
		}},
		{Name: "y", Do: say(&log, "y", finalizers.Done())},
	})
	res, err := f.Sync(ctx, w, w, w.get("a"), nil)
	if !errors.Is(err, context.Canceled) || res.Phase != finalizers.Cleaning || log != nil {
		t.Errorf("Sync = %v, %v after %q", res.Phase, err, log)
	}
	w.wantSent()
}

// TestAttempts: counted in memory, per object; the stored progress does not change with them.
func TestAttempts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, terminating("a", name))
	var log []string
	f := mustNew(t, []step{{Name: "s", Do: say(&log, "s", finalizers.Retry(errors.New("no")))}})
	for i := range 4 {
		res, _ := f.Sync(t.Context(), w, w, w.get("a"), nil)
		if got := res.Progress.Steps[0].Attempts; got != i+1 {
			t.Errorf("pass %d: %d attempts", i, got)
		}
	}
	if len(w.sent) != 1 {
		t.Errorf("sent %q; a retry is no change", w.sent)
	}
}

// TestWriteFailureKeepsTheSteps: our write fails after the steps have run; their errors are not lost over it.
func TestWriteFailureKeepsTheSteps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, terminating("a", name))
	w.before = func(int, string) error { return apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New("no")) }
	failed := errors.New("failed")
	var log []string
	res, err := mustNew(t, []step{{Name: "s", Do: say(&log, "s", finalizers.Retry(failed))}}).Sync(t.Context(), w, w, w.get("a"), nil)
	var e *finalizers.Error
	if !errors.Is(err, failed) || !errors.As(err, &e) || e.Op != "store progress of finalizer" || !apierrors.IsForbidden(e) {
		t.Errorf("error = %v", err)
	}
	if res.Phase != finalizers.Cleaning || res.Object == nil || len(res.Progress.Steps) != 1 {
		t.Errorf("result = %+v", res)
	}
}

// TestUnder: what one step finds out about the deletion is told to those after it, and survives a restart.
func TestUnder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, terminating("a", name))
	var got []metav1.DeletionPropagation
	outcome := finalizers.Wait(0)
	newProcess := func() *finalizers.Finalizer[*corev1.ConfigMap] {
		return mustNew(t, []step{
			{Name: "look", Do: func(context.Context, finalizers.Deletion[*corev1.ConfigMap]) finalizers.Outcome {
				return finalizers.Done().Under(metav1.DeletePropagationOrphan)
			}},
			{Name: "act", After: []string{"look"}, Do: func(_ context.Context, d finalizers.Deletion[*corev1.ConfigMap]) finalizers.Outcome {
				got = append(got, d.Policy)
				return outcome
			}},
		})
	}
	res, err := newProcess().Sync(t.Context(), w, w, w.get("a"), nil)
	if err != nil || res.Progress.Policy != metav1.DeletePropagationOrphan {
		t.Fatalf("Sync = %v %q, %v", res.Phase, res.Progress.Policy, err)
	}
	outcome = finalizers.Done()
	if res, err = newProcess().Sync(t.Context(), w, w, w.get("a"), nil); err != nil || res.Phase != finalizers.Released {
		t.Fatalf("Sync = %v, %v", res.Phase, err)
	}
	if diff := cmp.Diff([]metav1.DeletionPropagation{metav1.DeletePropagationOrphan, metav1.DeletePropagationOrphan}, got); diff != "" {
		t.Errorf("policies (-want +got):\n%s", diff)
	}
}

// TestOrphanIsRemembered: the garbage collector takes its finalizer away after a few seconds; the cleanup goes on under
// the policy that was seen.
func TestOrphanIsRemembered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, terminating("a", metav1.FinalizerOrphanDependents, name))
	var got []metav1.DeletionPropagation
	for range 2 {
		f := mustNew(t, []step{{Name: "s", Do: func(_ context.Context, d finalizers.Deletion[*corev1.ConfigMap]) finalizers.Outcome {
			got = append(got, d.Policy)
			return finalizers.Wait(0)
		}}})
		if _, err := f.Sync(t.Context(), w, w, w.get("a"), nil); err != nil {
			t.Fatal(err)
		}
		w.set("a", name)
	}
	if diff := cmp.Diff([]metav1.DeletionPropagation{metav1.DeletePropagationOrphan, metav1.DeletePropagationOrphan}, got); diff != "" {
		t.Errorf("policies (-want +got):\n%s", diff)
	}
}

func TestStuckInTerminatingNamespaceIsSaid(t *testing.T) {
	t.Parallel()
	w := newWorld(t, terminating("a", name))
	var events []finalizers.Event
	var log []string
	f := mustNew(t, []step{{Name: "backup", Do: say(&log, "backup", finalizers.Retry(nsTerminating()))}},
		finalizers.WithObserver(func(e finalizers.Event) { events = append(events, e) }))
	if _, err := f.Sync(t.Context(), w, w, w.get("a"), nil); err != nil {
		t.Fatal(err)
	}
	want := `namespace ns is terminating, nothing can be created in it: cleanup step "backup" is stuck`
	if len(events) != 1 || events[0].Message != want || events[0].Regarding.Kind != "Namespace" {
		t.Errorf("events %+v, want %q regarding the namespace", events, want)
	}
}

// TestLiveReadFails: without a look at the object no ordered step is called, and what is known is still reported.
func TestLiveReadFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, terminating("a", name))
	w.before = func(int, string) error { return apierrors.NewInternalError(errors.New("no")) }
	var log []string
	f := mustNew(t, []step{
		{Name: "one", Do: say(&log, "one", finalizers.Done())},
		{Name: "two", After: []string{"one"}, Do: done},
	})
	res, err := f.Sync(t.Context(), w, w, w.get("a"), nil)
	if !apierrors.IsInternalError(err) || log != nil || res.Phase != finalizers.Cleaning || res.Progress.String() != "one: Pending, two: Pending" {
		t.Errorf("Sync = %v %v, %v after %q", res.Phase, res.Progress, err, log)
	}
}
