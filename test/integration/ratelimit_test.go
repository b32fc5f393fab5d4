// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/ashlar-go/ashlar/ratelimit"
	"github.com/ashlar-go/ashlar/ratelimit/reconcilelimit"
)

// limited is a real manager with a controller in a namespace of its own, on the priority queue, that a Backoff limits.
type limited struct {
	*testing.T
	ns string
	c  client.Client // reads the cache of the manager
	b  *ratelimit.Backoff[reconcile.Request]

	mu     sync.Mutex
	events int // that the controller was told
}

// newLimited starts the manager with a controller for the kind that run reconciles; opts makes options that may read its
// cache, if there are any.
func newLimited[T any, O interface {
	*T
	client.Object
}](t *testing.T, ns string, b *ratelimit.Backoff[reconcile.Request], workers int,
	run func(context.Context, O) (reconcile.Result, error), opts func(cache client.Reader) []reconcilelimit.Option[reconcile.Request],
) *limited {
	t.Helper()
	l := &limited{T: t, ns: ns, b: b}
	yes := true
	mgr, err := ctrl.NewManager(cluster.Config(), ctrl.Options{
		Scheme: cluster.Scheme, Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{ns: {}}},
		Controller: config.Controller{UsePriorityQueue: &yes, SkipNameValidation: &yes},
	})
	if err != nil {
		t.Fatal(err)
	}
	l.c = mgr.GetClient()
	inner := reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		o := O(new(T))
		if err := l.c.Get(ctx, req.NamespacedName, o); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		return run(ctx, o)
	})
	var options []reconcilelimit.Option[reconcile.Request]
	if opts != nil {
		options = opts(l.c)
	}
	r, limiter := reconcilelimit.Wrap[reconcile.Request](inner, b, options...)
	count := predicate.NewPredicateFuncs(func(client.Object) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.events++
		return true
	})
	err = ctrl.NewControllerManagedBy(mgr).For(O(new(T))).WithEventFilter(predicate.And(
		predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() != "kube-root-ca.crt" }), count)).
		WithOptions(controller.Options{RateLimiter: limiter, MaxConcurrentReconciles: workers}).Complete(r)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("the cache does not come up")
	}
	return l
}

func (l *limited) create(name string, data map[string]string) {
	l.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: name}, Data: data}
	if err := cluster.Client.Create(l.Context(), cm); err != nil {
		l.Fatal(err)
	}
}

func (l *limited) patch(ctx context.Context, name, patch string) error {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: name}}
	return cluster.Client.Patch(ctx, cm, client.RawPatch(types.MergePatchType, []byte(patch)))
}

func (l *limited) key(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: l.ns, Name: name}}
}

// eventually waits until check is true.
func (l *limited) eventually(what string, limit time.Duration, check func() bool) {
	l.Helper()
	for end := time.Now().Add(limit); !check(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			l.Fatalf("waited %v until %s", limit, what)
		}
	}
}

// TestRatelimitStorm: an object that fails under a hundred watch events a second runs as often as its deadlines say, and
// 3 + t/10 s times more; its count is the number of deadlines it has honoured, although every turned-away trigger makes
// controller-runtime forget the key; and the one event that repairs it runs within a second.
// https://github.com/kubernetes/kubernetes/issues/132805, https://github.com/kubernetes-sigs/cluster-api/pull/13416
func TestRatelimitStorm(t *testing.T) {
	// Not parallel: beside a test that keeps the API server busy the storm would be none.
	const storm = 30 * time.Second
	var mu sync.Mutex
	var first, deadline, repaired time.Time
	runs, honoured, held := 0, 0, 0
	b, err := ratelimit.New[reconcile.Request](ratelimit.Exp(500*time.Millisecond, 8*time.Second),
		ratelimit.WithObserver(func(e ratelimit.Event) {
			mu.Lock()
			defer mu.Unlock()
			switch e.Kind {
			case ratelimit.EventRetry:
				deadline = time.Now().Add(e.Delay)
			case ratelimit.EventHeld:
				held++
			}
		}))
	if err != nil {
		t.Fatal(err)
	}
	l := newLimited(t, namespace(t.Context(), t), b, 2, func(_ context.Context, cm *corev1.ConfigMap) (reconcile.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		if cm.Data["fixed"] != "" {
			repaired = time.Now()
			return reconcile.Result{}, nil
		}
		runs++
		if first.IsZero() {
			first = time.Now()
		}
		// The observer is told a moment after the store: that much a run may seem to be early.
		if !time.Now().Before(deadline.Add(-5 * time.Millisecond)) {
			honoured++
		}
		if most := honoured + 3 + int(time.Since(first)/(10*time.Second)); runs > most {
			t.Errorf("%d runs after %v, %d are the most: %d deadlines were honoured", runs, time.Since(first), most, honoured)
		}
		return reconcile.Result{}, errors.New("not repaired yet")
	}, nil)
	l.create("a", nil)

	ctx, cancel := context.WithTimeout(t.Context(), storm)
	defer cancel()
	var wg sync.WaitGroup
	const writers = 8 // so that a slow answer does not slow the storm down; more of them would be in each other's way
	begin := time.Now()
	var sent atomic.Int64
	for w := range writers {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if due := int64(160 * time.Since(begin).Seconds()); sent.Add(1) > due { // more than a hundred a second, for some come late
					sent.Add(-1)
					time.Sleep(5 * time.Millisecond)
					continue
				}
				if err := l.patch(ctx, "a", fmt.Sprintf(`{"metadata":{"annotations":{"example.com/w%d":"%d"}}}`, w, n)); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	time.Sleep(100 * time.Millisecond) // a run may be under way
	mu.Lock()
	count := b.NumRequeues(l.key("a"))
	if count != honoured {
		t.Errorf("%d failures are counted, %d deadlines were honoured", count, honoured)
	}
	// 0.5, 1, 2, 4, 8, 8, 8 s less half of it at most: between 6 and 12 deadlines.
	if honoured < 5 || honoured > 13 || held < 100 {
		t.Errorf("%d deadlines honoured and %d triggers held in %v: the storm shows nothing", honoured, held, storm)
	}
	l.mu.Lock()
	rate := float64(l.events) / storm.Seconds()
	t.Logf("%.0f events a second; %d runs, %d deadlines honoured, %d triggers held", rate, runs, honoured, held)
	l.mu.Unlock()
	if rate < 100 {
		t.Errorf("%.0f events a second, a hundred were meant", rate)
	}
	mu.Unlock()

	time.Sleep(11 * time.Second) // one early run is there again
	l.eventually("it waits for long", 10*time.Second, func() bool { return b.Remaining(l.key("a")) > 3*time.Second })
	at := time.Now()
	if err := l.patch(t.Context(), "a", `{"data":{"fixed":"yes"}}`); err != nil {
		t.Fatal(err)
	}
	l.eventually("the event that repairs it runs", time.Second, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return !repaired.IsZero()
	})
	t.Logf("repaired %v after the event", repaired.Sub(at))
	l.eventually("it is forgotten", time.Second, func() bool { return b.Len() == 0 })
}

// TestRatelimitNewGeneration: an object that waits for an hour runs within a second when its spec changes and when it is
// deleted, and no other event makes it run. The objects are NetworkPolicies, because a ConfigMap has no generation.
// https://github.com/gardener/gardener/pull/3144
func TestRatelimitNewGeneration(t *testing.T) {
	t.Parallel()
	type visit struct {
		generation int64
		deleted    bool
		count      int // before the run
	}
	var mu sync.Mutex
	var visits []visit
	b, err := ratelimit.New[reconcile.Request](ratelimit.Exp(time.Hour, time.Hour), ratelimit.WithEarlyRuns(0, time.Second))
	if err != nil {
		t.Fatal(err)
	}
	l := newLimited(t, namespace(t.Context(), t), b, 1, func(_ context.Context, np *networkingv1.NetworkPolicy) (reconcile.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		deleted := !np.DeletionTimestamp.IsZero()
		visits = append(visits, visit{np.Generation, deleted, b.NumRequeues(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(np)})})
		return reconcile.Result{}, errors.New("fails for ever")
	}, func(cache client.Reader) []reconcilelimit.Option[reconcile.Request] {
		return []reconcilelimit.Option[reconcile.Request]{reconcilelimit.WithGeneration(func(r reconcile.Request) (int64, bool) {
			np := &networkingv1.NetworkPolicy{}
			err := cache.Get(t.Context(), r.NamespacedName, np)
			return np.Generation, err == nil
		})}
	})
	np := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "a", Finalizers: []string{"example.com/hold"}}}
	if err := cluster.Client.Create(t.Context(), np); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		np.Finalizers = nil
		if err := cluster.Client.Patch(context.Background(), np, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
			t.Error(err)
		}
	})
	key := l.key("a")
	runs := func(n int) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(visits) == n && b.Remaining(key) > time.Minute
		}
	}
	l.eventually("the first run has failed", 5*time.Second, runs(1))
	for n, step := range []struct {
		what string
		do   func() error
	}{
		{"the spec has changed", func() error {
			return cluster.Client.Patch(t.Context(), np, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"podSelector":{"matchLabels":{"a":"b"}}}}`)))
		}},
		{"it is being deleted", func() error { return cluster.Client.Delete(t.Context(), np) }},
	} {
		l.mu.Lock()
		before := l.events
		l.mu.Unlock()
		for i := range 10 { // events that tell nothing new
			patch := fmt.Sprintf(`{"metadata":{"annotations":{"example.com/n":"%d-%d"}}}`, n, i)
			if err := cluster.Client.Patch(t.Context(), np, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
				t.Fatal(err)
			}
		}
		l.eventually("the events are there", 5*time.Second, func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.events >= before+10
		})
		time.Sleep(200 * time.Millisecond)
		if !runs(n + 1)() {
			t.Fatalf("an event that tells nothing new made it run: %+v", visits)
		}
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		l.eventually("it runs: "+step.what, time.Second, runs(n+2))
	}
	mu.Lock()
	defer mu.Unlock()
	if want := []visit{{1, false, 0}, {2, false, 0}, {3, true, 0}}; !slices.Equal(visits, want) {
		t.Errorf("runs %+v, want %+v", visits, want)
	}
	if n := b.NumRequeues(key); n != 1 {
		t.Errorf("%d failures are counted after the deletion, it had one", n)
	}
}

// TestRatelimitTerminalLeaksNothing: controller-runtime never forgets a key that ended in a TerminalError.
// https://github.com/kubernetes/kubernetes/pull/138743
func TestRatelimitTerminalLeaksNothing(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	runs := map[string]int{}
	b, err := ratelimit.New[reconcile.Request](ratelimit.Exp(50*time.Millisecond, time.Second))
	if err != nil {
		t.Fatal(err)
	}
	l := newLimited(t, namespace(t.Context(), t), b, 4, func(_ context.Context, cm *corev1.ConfigMap) (reconcile.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		if runs[cm.Name]++; runs[cm.Name] < 3 {
			return reconcile.Result{}, errors.New("fails twice")
		}
		return reconcile.Result{}, fmt.Errorf("spec: %w", reconcile.TerminalError(errors.New("no such flavour")))
	}, nil)
	const objects = 60
	for i := range objects {
		l.create(fmt.Sprint("o", i), nil)
	}
	done := func() bool {
		mu.Lock()
		defer mu.Unlock()
		n := 0
		for _, r := range runs {
			if r == 3 {
				n++
			}
		}
		return n == objects
	}
	l.eventually("all have ended", 30*time.Second, done)
	time.Sleep(2 * time.Second) // longer than any wait
	if n := b.Len(); n != 0 || !done() {
		t.Errorf("%d keys are remembered; runs %v", n, runs)
	}
}

// TestRatelimitThrottledRemote: one worker, one remote that asks for a pause, and objects of another remote, which must
// not notice. https://github.com/kubernetes-sigs/cluster-api/issues/8306
func TestRatelimitThrottledRemote(t *testing.T) {
	t.Parallel()
	const pause = 15 * time.Second
	remotes, err := ratelimit.NewRemotes[string](100, 10)
	if err != nil {
		t.Fatal(err)
	}
	b, err := ratelimit.New[reconcile.Request](ratelimit.Exp(time.Second, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var throttled time.Time
	busy, recovered, fine := 0, 0, map[string]time.Time{}
	l := newLimited(t, namespace(t.Context(), t), b, 1, func(_ context.Context, cm *corev1.ConfigMap) (reconcile.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		if cm.Name[:4] == "fine" {
			fine[cm.Name] = time.Now()
			return reconcile.Result{}, nil
		}
		if throttled.IsZero() {
			throttled = time.Now()
		}
		if time.Since(throttled) < pause {
			busy++
			return reconcile.Result{}, &ratelimit.Error{Class: ratelimit.Throttled, After: pause, Err: errors.New("429")}
		}
		recovered++
		return reconcile.Result{}, nil
	}, func(client.Reader) []reconcilelimit.Option[reconcile.Request] {
		return []reconcilelimit.Option[reconcile.Request]{
			reconcilelimit.WithGates(ratelimit.PerRemote(remotes, func(r reconcile.Request) string { return r.Name[:4] })),
		}
	})
	const many = 100
	for i := range many {
		l.create(fmt.Sprint("busy-", i), nil)
	}
	l.eventually("the remote has throttled", 10*time.Second, func() bool { return remotes.State("busy").Pause > 0 })
	var slowest time.Duration
	for i := range 40 {
		name, at := fmt.Sprint("fine-", i), time.Now()
		l.create(name, nil)
		l.eventually("an object of the other remote runs", time.Second, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return !fine[name].IsZero()
		})
		slowest = max(slowest, time.Since(at))
	}
	if s := remotes.State("busy"); s.Pause == 0 {
		t.Error("the pause is over before the others were measured: the test shows nothing")
	}
	mu.Lock()
	// The burst of the remote was admitted before it throttled, all by one worker: the first answer stops the rest.
	if busy != 1 {
		t.Errorf("%d runs were spent on a remote that asked for %v", busy, pause)
	}
	mu.Unlock()
	l.eventually("all objects of the busy remote have run", time.Minute, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return recovered == many
	})
	t.Logf("the slowest of the others took %v from its creation", slowest)
}

// TestRatelimitRestartDoesNotStampede: a process that starts with many objects spreads their first runs, and an object
// that is created meanwhile does not wait. https://github.com/bookingcom/shipper/pull/209
func TestRatelimitRestartDoesNotStampede(t *testing.T) {
	t.Parallel()
	const objects, window = 1000, 20 * time.Second
	ns := namespace(t.Context(), t)
	setup := &limited{T: t, ns: ns}
	for i := range objects {
		setup.create(fmt.Sprint("o", i), nil)
	}
	b, err := ratelimit.New[reconcile.Request](ratelimit.Exp(time.Second, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	ran := map[string]time.Time{}
	time.Sleep(1100 * time.Millisecond) // creation timestamps are whole seconds
	start := time.Now().Truncate(time.Second)
	l := newLimited(t, ns, b, 4, func(_ context.Context, cm *corev1.ConfigMap) (reconcile.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		if ran[cm.Name].IsZero() {
			ran[cm.Name] = time.Now()
		}
		return reconcile.Result{}, nil
	}, func(cache client.Reader) []reconcilelimit.Option[reconcile.Request] {
		return []reconcilelimit.Option[reconcile.Request]{reconcilelimit.WithGates(ratelimit.Smear(window, func(r reconcile.Request) bool {
			cm := &corev1.ConfigMap{}
			return cache.Get(t.Context(), r.NamespacedName, cm) == nil && !cm.CreationTimestamp.Time.Before(start)
		}))}
	})
	time.Sleep(3 * time.Second)
	const created = 3
	for i := range created {
		name, at := fmt.Sprint("new", i), time.Now()
		l.create(name, nil)
		l.eventually("the new object runs", time.Second, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return !ran[name].IsZero()
		})
		t.Logf("a new object ran %v after it was created", time.Since(at))
	}
	l.eventually("all have run", 2*window, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(ran) == objects+created
	})
	second := map[int]int{}
	for _, at := range ran {
		second[int(at.Sub(start).Seconds())]++
	}
	most := 0
	for _, n := range second {
		most = max(most, n)
	}
	if even := float64(objects) / window.Seconds(); float64(most) > math.Ceil(2*even) {
		t.Errorf("%d objects in one second, %.0f would be even: %v", most, even, second)
	}
}
