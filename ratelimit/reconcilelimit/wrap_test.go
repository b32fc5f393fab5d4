// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconcilelimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/ashlar-go/ashlar/ratelimit"
	"github.com/ashlar-go/ashlar/ratelimit/reconcilelimit"
)

// An object that fails under 100 events a second. https://github.com/kubernetes/kubernetes/issues/132805
func TestKubernetes132805EventsUnderFailure(t *testing.T) {
	onBoth(t, func(t *testing.T, priority bool) {
		var runs, honoured, held, early int
		var fixed atomic.Bool
		b := newBackoff(t, time.Second, 30*time.Second, ratelimit.WithObserver(func(e ratelimit.Event) {
			switch e.Kind {
			case ratelimit.EventRetry:
				honoured++
			case ratelimit.EventHeld:
				held++
			case ratelimit.EventEarly:
				early++
			}
		}))
		var last time.Time
		r, limiter := reconcilelimit.Wrap(run(func(context.Context, request) (result, error) {
			runs++
			last = time.Now()
			if fixed.Load() {
				return result{}, nil
			}
			return result{}, errBoom
		}), b)
		trigger := start(t, priority, 1, r, limiter)
		begin := time.Now()
		for time.Since(begin) < 2*time.Minute {
			trigger(named("a"))
			sleep(10 * time.Millisecond)
			if most := honoured + 3 + int(time.Since(begin)/(10*time.Second)); runs > most {
				t.Fatalf("%d runs after %v, %d are the most: %d deadlines were honoured", runs, time.Since(begin), most, honoured)
			}
			if n := limiter.NumRequeues(named("a")); n != honoured {
				t.Fatalf("%d failures are counted, %d deadlines were honoured", n, honoured)
			}
		}
		if honoured < 8 || honoured > 13 || held < 1000 || early < 10 {
			t.Errorf("%d deadlines honoured, %d triggers held, %d early runs: the test shows nothing", honoured, held, early)
		}
		// One event repairs it, a while after the storm.
		sleep(15 * time.Second)
		fixed.Store(true)
		at := time.Now()
		trigger(named("a"))
		sleep(time.Second)
		if last.Sub(at) < 0 || last.Sub(at) > time.Second || b.Len() != 0 {
			t.Errorf("the event that repairs it ran %v later, %d keys are remembered", last.Sub(at), b.Len())
		}
		// And at the worst moment: the budget is used up.
		fixed.Store(false)
		for range 500 {
			trigger(named("a"))
			sleep(10 * time.Millisecond)
		}
		fixed.Store(true)
		at = time.Now()
		trigger(named("a"))
		sleep(11 * time.Second)
		if last.Sub(at) < 0 || b.Len() != 0 {
			t.Errorf("an event was swallowed: the last run was %v before it", at.Sub(last))
		}
	})
}

// Whoever throttles with RequeueAfter resets the curve, because the controller forgets the key then.
// https://github.com/kubernetes-sigs/cluster-api/pull/13416
func TestClusterAPI13416RequeueAfterOfOursResetsNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, priority bool) {
		b := newBackoff(t, time.Second, time.Hour, ratelimit.WithEarlyRuns(0, time.Second))
		gate, err := ratelimit.Bucket[request](0.1, 1)
		if err != nil {
			t.Fatal(err)
		}
		runs := 0
		r, limiter := reconcilelimit.Wrap(run(func(context.Context, request) (result, error) {
			runs++
			return result{}, errBoom
		}), b, reconcilelimit.WithGates(gate))
		trigger := start(t, priority, 2, r, limiter)
		for range 3000 {
			trigger(named("a"))
			sleep(100 * time.Millisecond)
		}
		if n := limiter.NumRequeues(named("a")); n != runs || runs < 6 || runs > 9 {
			t.Errorf("%d failures are counted after %d runs in five minutes", n, runs)
		}
	})
}

// A reconciler's own RequeueAfter is a success. https://github.com/kubernetes-sigs/controller-runtime/issues/392
func TestControllerRuntime392RequeueAfterIsSuccess(t *testing.T) {
	onBoth(t, func(t *testing.T, priority bool) {
		b := newBackoff(t, time.Second, time.Hour)
		runs, waits := 0, []time.Duration{}
		last := time.Now()
		r, limiter := reconcilelimit.Wrap(run(func(context.Context, request) (result, error) {
			waits = append(waits, time.Since(last))
			last = time.Now()
			if runs++; runs%3 == 0 {
				return result{RequeueAfter: 30 * time.Second}, nil
			}
			return result{}, errBoom
		}), b)
		start(t, priority, 1, r, limiter)(named("a"))
		sleep(10 * time.Minute)
		if runs < 40 {
			t.Errorf("%d runs in 10 minutes: the curve was not reset by success", runs)
		}
		for i, wait := range waits[1:] {
			if limit := []time.Duration{time.Second, 2 * time.Second, 30 * time.Second}[i%3]; wait > limit+time.Millisecond {
				t.Errorf("run %d came after %v, want at most %v", i+1, wait, limit)
			}
		}
	})
}

// TerminalError is never forgotten: 100 of 100 entries stay. https://github.com/kubernetes/kubernetes/pull/138743
func TestKubernetes138743TerminalLeaksNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, priority bool) {
		b := newBackoff(t, time.Second, time.Hour)
		var runs atomic.Int64
		r, limiter := reconcilelimit.Wrap(run(func(_ context.Context, k request) (result, error) {
			if runs.Add(1) <= 100 {
				return result{}, errBoom // fails first
			}
			return result{}, fmt.Errorf("spec: %w", reconcile.TerminalError(errBoom))
		}), b)
		trigger := start(t, priority, 4, r, limiter)
		for i := range 100 {
			trigger(named(fmt.Sprint(i)))
		}
		sleep(time.Minute)
		if runs.Load() != 200 || b.Len() != 0 {
			t.Errorf("%d runs, %d keys are remembered", runs.Load(), b.Len())
		}
	})
}

// "Not ready" takes the error curve. https://github.com/kubernetes-sigs/cluster-api/issues/9775
func TestClusterAPI9775CurvesByClass(t *testing.T) {
	onBoth(t, func(t *testing.T, priority bool) {
		b := newBackoff(t, time.Second, time.Hour)
		conflict := apierrors.NewConflict(schema.GroupResource{Resource: "databases"}, "a", errBoom)
		errs := map[string]error{
			"waiting":   &ratelimit.Error{Class: ratelimit.Waiting, Err: errBoom},
			"throttled": fmt.Errorf("scale: %w", apierrors.NewTooManyRequests("busy", 40)),
			"conflict":  fmt.Errorf("update: %w", conflict),
			"transient": errBoom,
		}
		times := map[string][]time.Duration{}
		begin := time.Now()
		r, limiter := reconcilelimit.Wrap(run(func(_ context.Context, k request) (result, error) {
			times[k.Name] = append(times[k.Name], time.Since(begin))
			return result{}, errs[k.Name]
		}), b)
		trigger := start(t, priority, 1, r, limiter)
		for name := range errs {
			trigger(named(name))
		}
		sleep(10 * time.Minute)
		for name, want := range map[string][2]int{"waiting": {54, 68}, "throttled": {3, 15}, "conflict": {1000, 1500}, "transient": {9, 12}} {
			if n := len(times[name]); n < want[0] || n > want[1] {
				t.Errorf("%s ran %d times in 10 minutes, want %v", name, n, want)
			}
		}
		for i, at := range times["throttled"][1:] {
			if gap := at - times["throttled"][i]; gap < 40*time.Second {
				t.Errorf("throttled ran %v after being asked for 40s", gap)
			}
		}
		if second := times["conflict"][1]; second > 11*time.Millisecond {
			t.Errorf("a conflict was retried after %v", second)
		}
		if n := limiter.NumRequeues(named("waiting")); n != 0 {
			t.Errorf("waiting counts as %d failures", n)
		}
	})
}

// A deletion waits for the backoff of the past. https://github.com/gardener/gardener/pull/3144
func TestGardener3144GenerationAndDeletionRun(t *testing.T) {
	onBoth(t, func(t *testing.T, priority bool) {
		b := newBackoff(t, time.Minute, time.Hour, ratelimit.WithEarlyRuns(0, time.Second))
		var generation, exists atomic.Int64
		generation.Store(1)
		exists.Store(1)
		runs := 0
		r, limiter := reconcilelimit.Wrap(run(func(context.Context, request) (result, error) {
			runs++
			return result{}, errBoom
		}), b, reconcilelimit.WithGeneration(func(request) (int64, bool) { return generation.Load(), exists.Load() == 1 }))
		trigger := start(t, priority, 1, r, limiter)
		trigger(named("a"))
		sleep(20 * time.Second)
		generation.Store(7) // the first event after the failure tells of it
		trigger(named("a"))
		sleep(time.Second)
		if runs != 2 {
			t.Errorf("%d runs, the second generation waits", runs)
		}
		generation.Store(1)
		sleep(10 * time.Minute)
		before := runs
		step := func(what string, want int) {
			t.Helper()
			for range 20 { // many events tell of it
				trigger(named("a"))
				sleep(10 * time.Millisecond)
			}
			if runs-before != want {
				t.Errorf("%s: %d runs, want %d", what, runs-before, want)
			}
			before = runs
		}
		step("nothing has changed", 0)
		generation.Store(2) // a new spec, or a deletion timestamp
		step("a new generation", 1)
		if n := limiter.NumRequeues(named("a")); n != 1 {
			t.Errorf("the new generation begins with %d failures", n)
		}
		exists.Store(0)
		step("the object is gone", 1)
	})
}

// An object without a generation, such as a ConfigMap, is gone: that is a new intent, as it is for all others.
func TestGardener3144NoGeneration(t *testing.T) {
	onBoth(t, func(t *testing.T, priority bool) {
		b := newBackoff(t, time.Minute, time.Hour, ratelimit.WithEarlyRuns(0, time.Second))
		var exists atomic.Bool
		exists.Store(true)
		runs := 0
		r, limiter := reconcilelimit.Wrap(run(func(context.Context, request) (result, error) {
			runs++
			return result{}, errBoom
		}), b, reconcilelimit.WithGeneration(func(request) (int64, bool) { return 0, exists.Load() }))
		trigger := start(t, priority, 1, r, limiter)
		for want, what := range []string{1: "it fails", 2: "it is gone", 3: "it is back"} {
			if want == 0 {
				continue
			}
			exists.Store(want != 2)
			for range 2 {
				trigger(named("a"))
				sleep(time.Second)
			}
			if runs != want {
				t.Errorf("%s: %d runs, want %d", what, runs, want)
			}
		}
	})
}

// A remote that throttles costs no worker. https://github.com/kubernetes-sigs/cluster-api/issues/8306
func TestClusterAPI8306ThrottledRemoteCostsNoWorker(t *testing.T) {
	onBoth(t, func(t *testing.T, priority bool) {
		remotes, err := ratelimit.NewRemotes[string](50, 5)
		if err != nil {
			t.Fatal(err)
		}
		b := newBackoff(t, time.Second, time.Minute)
		runs := map[string]int{}
		var slow time.Duration
		sent := map[string]time.Time{}
		r, limiter := reconcilelimit.Wrap(run(func(_ context.Context, k request) (result, error) {
			remote, _, _ := strings.Cut(k.Name, "-")
			runs[remote]++
			if remote == "busy" {
				return result{}, &ratelimit.Error{Class: ratelimit.Throttled, After: time.Minute, Err: errBoom}
			}
			if remote == "down" {
				time.Sleep(10 * time.Second)
				return result{}, errBoom
			}
			slow = max(slow, time.Since(sent[k.Name]))
			return result{}, nil
		}), b, reconcilelimit.WithGates(ratelimit.PerRemote(remotes, func(k request) string {
			remote, _, _ := strings.Cut(k.Name, "-")
			return remote
		})))
		trigger := start(t, priority, 1, r, limiter) // one worker
		for i := range 200 {
			trigger(named(fmt.Sprint("busy-", i)))
		}
		sleep(time.Second)
		for i := range 500 {
			sent[fmt.Sprint("fine-", i)] = time.Now()
			trigger(named(fmt.Sprint("fine-", i)))
			sleep(50 * time.Millisecond)
		}
		if runs["busy"] != 1 || runs["fine"] != 500 || slow > time.Millisecond {
			t.Errorf("runs %v while the remote asks for a minute, the others wait up to %v", runs, slow)
		}
		for i := range 20 {
			trigger(named(fmt.Sprint("down-", i)))
		}
		sleep(5 * time.Minute)
		if runs["down"] < 6 || runs["down"] > 20 {
			t.Errorf("%d timeouts of 10s in 5 minutes", runs["down"])
		}
	})
}

// What a gate has charged comes back when a later gate says no, and so does an early run.
func TestControllerRuntime1594ChargesComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, err := ratelimit.Bucket[request](0.001, 5)
		if err != nil {
			t.Fatal(err)
		}
		open := false
		second := gateFunc(func(request) (time.Duration, bool) { return 0, open })
		b := newBackoff(t, time.Hour, time.Hour)
		runs := 0
		r, _ := reconcilelimit.Wrap(run(func(context.Context, request) (result, error) {
			runs++
			return result{}, errBoom
		}), b, reconcilelimit.WithGates(first, nil, second))
		b.Observe(named("a"), errBoom) // it waits: every run is an early one
		for range 100 {
			if res, err := r.Reconcile(t.Context(), named("a")); err != nil || res.RequeueAfter <= 0 || runs > 0 {
				t.Fatalf("Reconcile = %v, %v after %d runs: a no must come back", res, err, runs)
			}
		}
		open = true
		for range 10 {
			_, _ = r.Reconcile(t.Context(), named("a"))
		}
		if runs != 3 {
			t.Errorf("%d early runs, want the 3 that were not made use of", runs)
		}
	})
}

type gateFunc func(request) (time.Duration, bool)

func (f gateFunc) Admit(k request) (time.Duration, bool) { return f(k) }

func TestResults(t *testing.T) {
	t.Parallel()
	//lint:ignore SA1019 it must keep its meaning
	requeue := result{Requeue: true}
	terminal := reconcile.TerminalError(errBoom)
	priority := 7
	for name, tt := range map[string]struct {
		reason string
		res    result
		err    error
		opts   []ratelimit.Option
		want   func(res result, err error, left time.Duration) bool
	}{
		"success": {"", result{}, nil, nil, func(res result, err error, left time.Duration) bool {
			return res == result{} && err == nil && left == 0
		}},
		"periodic": {"passed on", result{RequeueAfter: time.Hour}, nil, nil, func(res result, err error, left time.Duration) bool {
			return res.RequeueAfter == time.Hour && err == nil && left == 0
		}},
		"transient": {"the error is what it was", result{}, errBoom, nil, func(res result, err error, left time.Duration) bool { return err == errBoom && left > 0 }},
		"priority":  {"what the reconciler says about it stays", result{Priority: &priority}, errBoom, nil, func(res result, err error, left time.Duration) bool { return *res.Priority == 7 }},
		"requeue":   {"rate limited, as it always was", requeue, nil, nil, func(res result, err error, left time.Duration) bool { return res == requeue && err == nil && left > 0 }},
		"waiting": {"nothing failed, so no error is logged", requeue, &ratelimit.Error{Class: ratelimit.Waiting}, nil, func(res result, err error, left time.Duration) bool {
			return err == nil && res == result{RequeueAfter: res.RequeueAfter} && res.RequeueAfter > 9*time.Second
		}},
		"waiting, sooner": {"the reconciler knows something that is due earlier", result{RequeueAfter: time.Second}, &ratelimit.Error{Class: ratelimit.Waiting}, nil, func(res result, err error, left time.Duration) bool {
			return err == nil && res.RequeueAfter == time.Second
		}},
		"waiting, later": {"then the curve is what is due first", result{RequeueAfter: time.Hour}, &ratelimit.Error{Class: ratelimit.Waiting}, nil, func(res result, err error, left time.Duration) bool {
			return err == nil && res.RequeueAfter > 9*time.Second && res.RequeueAfter < time.Minute
		}},
		"terminal": {"passed on as it is", result{}, terminal, nil, func(res result, err error, left time.Duration) bool { return err == terminal && left == 0 }},
		"terminal of ours": {"controller-runtime must understand it", result{}, &ratelimit.Error{Class: ratelimit.Terminal, Err: errBoom}, nil, func(res result, err error, left time.Duration) bool {
			return errors.Is(err, reconcile.TerminalError(nil)) && errors.Is(err, errBoom) && left == 0
		}},
		"given up": {"the same", result{}, errBoom, []ratelimit.Option{ratelimit.WithGiveUpAfter(1, 0)}, func(res result, err error, left time.Duration) bool {
			return errors.Is(err, reconcile.TerminalError(nil)) && errors.Is(err, errBoom) && left == 0
		}},
		"given up requeue": {"or it would go on for ever", requeue, nil, []ratelimit.Option{ratelimit.WithGiveUpAfter(1, 0)}, func(res result, err error, left time.Duration) bool {
			return errors.Is(err, reconcile.TerminalError(nil))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBackoff(t, time.Minute, time.Hour, tt.opts...)
			r, _ := reconcilelimit.Wrap(run(func(context.Context, request) (result, error) { return tt.res, tt.err }), b)
			res, err := r.Reconcile(t.Context(), named("a"))
			if !tt.want(res, err, b.Remaining(named("a"))) {
				t.Errorf("%s: %+v, %v, %v left", tt.reason, res, err, b.Remaining(named("a")))
			}
		})
	}
}

func TestPanicCounts(t *testing.T) {
	onBoth(t, func(t *testing.T, priority bool) {
		b := newBackoff(t, time.Second, time.Hour)
		runs := 0
		r, limiter := reconcilelimit.Wrap(run(func(context.Context, request) (result, error) {
			runs++
			panic("boom")
		}), b)
		start(t, priority, 1, r, limiter)(named("a"))
		sleep(time.Minute)
		if n := limiter.NumRequeues(named("a")); n != runs || runs < 6 || runs > 8 {
			t.Errorf("%d panics in a minute, %d are counted", runs, n)
		}
	})
}

func TestCancelledRunsDoNotCount(t *testing.T) {
	t.Parallel()
	b := newBackoff(t, time.Second, time.Hour)
	r, _ := reconcilelimit.Wrap(run(func(ctx context.Context, _ request) (result, error) { return result{}, ctx.Err() }), b)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Reconcile(ctx, named("a")); !errors.Is(err, context.Canceled) || b.Len() != 0 {
		t.Errorf("%v, %d keys", err, b.Len())
	}
	// Nor does it use up an early run.
	b.Observe(named("waits"), errBoom)
	for range 10 {
		if res, err := r.Reconcile(ctx, named("waits")); !errors.Is(err, context.Canceled) {
			t.Fatalf("%v, %v: the early runs are used up", res, err)
		}
	}
	b.Forget(named("waits"))
	ctx, cancel = context.WithTimeout(t.Context(), -1)
	defer cancel()
	if _, err := r.Reconcile(ctx, named("a")); !errors.Is(err, context.DeadlineExceeded) || b.Len() != 1 {
		t.Errorf("a timeout is a failure: %v, %d keys", err, b.Len())
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	gr := schema.GroupResource{Group: "db.example.com", Resource: "databases"}
	for name, tt := range map[string]struct {
		reason string
		err    error
		class  ratelimit.Class
		after  time.Duration
	}{
		"conflict":          {"", apierrors.NewConflict(gr, "a", errBoom), ratelimit.Conflict, 0},
		"already exists":    {"a 409, too, and not over by waiting", apierrors.NewAlreadyExists(gr, "a"), ratelimit.Transient, 0},
		"throttled":         {"", fmt.Errorf("x: %w", apierrors.NewTooManyRequests("busy", 37)), ratelimit.Throttled, 37 * time.Second},
		"server timeout":    {"the server may ask for zero seconds", apierrors.NewServerTimeout(gr, "get", 0), ratelimit.Transient, 0},
		"with a pause":      {"", apierrors.NewServerTimeout(gr, "get", 5), ratelimit.Transient, 5 * time.Second},
		"terminal":          {"", fmt.Errorf("x: %w", reconcile.TerminalError(errBoom)), ratelimit.Terminal, 0},
		"joined":            {"controller-runtime looks for it anywhere", errors.Join(errBoom, reconcile.TerminalError(errBoom)), ratelimit.Terminal, 0},
		"conflict and more": {"what needs more patience wins", errors.Join(apierrors.NewConflict(gr, "a", errBoom), errBoom), ratelimit.Transient, 0},
		"said":              {"", &ratelimit.Error{Class: ratelimit.Waiting, Err: apierrors.NewConflict(gr, "a", errBoom)}, ratelimit.Waiting, 0},
		"nil":               {"", nil, 0, 0},
	} {
		if got := reconcilelimit.Classify(tt.err); got.Class != tt.class || got.After != tt.after {
			t.Errorf("%s (%s): %v after %v, want %v after %v", name, tt.reason, got.Class, got.After, tt.class, tt.after)
		}
	}
}

func TestWithClassify(t *testing.T) {
	t.Parallel()
	b := newBackoff(t, time.Minute, time.Hour)
	r, _ := reconcilelimit.Wrap(run(func(context.Context, request) (result, error) { return result{}, errBoom }), b,
		reconcilelimit.WithClassify[request](func(error) ratelimit.Error { return ratelimit.Error{Class: ratelimit.Waiting} }),
		reconcilelimit.WithClassify[request](nil))
	if res, err := r.Reconcile(t.Context(), named("a")); err != nil || res.RequeueAfter < 9*time.Second {
		t.Errorf("%v, %v", res, err)
	}
}
