// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/test/integration/lab"
)

// phases of a Database's life that the crash tests disturb.
var phases = []string{"create", "scale", "delete"}

// crew is how many lives the crash tests run side by side.
const crew = 5

// TestCrashAtEveryWrite kills the operator with SIGKILL before and after each write
// request of create, scale and delete. The k-th run crashes at the k-th write of each
// phase; it ends when there is no k-th write in any phase any more.
func TestCrashAtEveryWrite(t *testing.T) {
	t.Parallel()
	plan := &crashPlan{hits: map[crashPoint]map[string]lab.Write{}}
	var workers sync.WaitGroup
	for range crew {
		workers.Go(func() {
			for point, more := plan.next(); more; point, more = plan.next() {
				t.Run(fmt.Sprintf("%s-%02d", point.moment, point.n), func(t *testing.T) {
					hits := map[string]lab.Write{}
					defer func() { plan.done(point, hits) }()
					newLife(t).live(func(_ context.Context, l *life, phase string) (hook lab.Hook) {
						var once atomic.Bool
						return func(w lab.Write, m lab.Moment) bool {
							if w.N != point.n || m != point.moment || !once.CompareAndSwap(false, true) || !l.keeper.kill() {
								return false
							}
							l.mu.Lock()
							defer l.mu.Unlock()
							hits[phase] = w
							return true
						}
					})
				})
			}
		})
	}
	workers.Wait()
	for _, phase := range phases {
		for _, moment := range []lab.Moment{lab.Before, lab.After} {
			covered := plan.covered(phase, moment)
			t.Logf("%s: crashed %s %d writes", phase, moment, len(covered))
			for _, n := range slices.Sorted(maps.Keys(covered)) {
				t.Logf("  %2d %s %s", n, covered[n].Method, covered[n].Path)
			}
			// The least that each phase writes: finalizer, three children and two states; the set and one state;
			// the Job, its deletion, the set's, two volumes' and the finalizer.
			if least := map[string]int{"create": 6, "scale": 2, "delete": 6}[phase]; len(covered) < least {
				t.Errorf("%s: crashed %s %d writes only, want at least %d", phase, moment, len(covered), least)
			}
		}
	}
}

// crashPoint is one run: in each phase the n-th write, before or after.
type crashPoint struct {
	n      int
	moment lab.Moment
}

// crashPlan hands out crash points until a number is reached at which nothing crashed.
type crashPlan struct {
	mu     sync.Mutex
	issued int
	hits   map[crashPoint]map[string]lab.Write // by phase
}

func (p *crashPlan) next() (crashPoint, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := 1; n <= p.issued/2; n++ {
		before, first := p.hits[crashPoint{n, lab.Before}]
		after, second := p.hits[crashPoint{n, lab.After}]
		if first && second && len(before)+len(after) == 0 {
			return crashPoint{}, false
		}
	}
	p.issued++
	return crashPoint{(p.issued + 1) / 2, []lab.Moment{lab.After, lab.Before}[p.issued%2]}, true
}

func (p *crashPlan) done(point crashPoint, hits map[string]lab.Write) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hits[point] = hits
}

func (p *crashPlan) covered(phase string, moment lab.Moment) map[int]lab.Write {
	p.mu.Lock()
	defer p.mu.Unlock()
	writes := map[int]lab.Write{}
	for point, hits := range p.hits {
		if write, ok := hits[phase]; ok && point.moment == moment {
			writes[point.n] = write
		}
	}
	return writes
}

// TestCrashAtRandom kills the operator three times in each phase at random moments.
// CRASH_SEED runs one seed again.
func TestCrashAtRandom(t *testing.T) {
	t.Parallel()
	runs := 5
	if os.Getenv("SOAK") != "" {
		runs = 30
	}
	var seeds []uint64
	if text := os.Getenv("CRASH_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = append(seeds, seed)
	}
	for len(seeds) < runs && os.Getenv("CRASH_SEED") == "" {
		seeds = append(seeds, uint64(rand.Uint32()))
	}
	queue := make(chan uint64, len(seeds))
	for _, seed := range seeds {
		queue <- seed
	}
	close(queue)
	var kills atomic.Int64
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for seed := range queue {
				t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
					t.Logf("CRASH_SEED=%d runs this again", seed)
					random := rand.New(rand.NewPCG(seed, 0))
					newLife(t).live(func(ctx context.Context, l *life, phase string) lab.Hook {
						pauses := make([]time.Duration, 3)
						for i := range pauses {
							pauses[i] = time.Duration(random.Int64N(int64(2500 * time.Millisecond)))
						}
						l.strikes.Go(func() {
							for _, pause := range pauses {
								select {
								case <-time.After(pause):
									if l.keeper.kill() {
										kills.Add(1)
									}
								case <-ctx.Done(): // the phase is over
									return
								}
							}
						})
						return nil
					})
				})
			}
		})
	}
	workers.Wait()
	t.Logf("killed at %d random moments", kills.Load())
	if kills.Load() == 0 {
		t.Error("nothing was killed")
	}
}

// life is a Database that is created, scaled and deleted while its operator dies again
// and again.
type life struct {
	*scene
	proxy   *lab.Proxy
	keeper  *keeper
	strikes sync.WaitGroup
	mu      sync.Mutex
}

func newLife(t *testing.T) *life {
	t.Helper()
	l := &life{scene: newScene(t)}
	proxy, err := cluster.Proxy()
	l.must(err)
	l.proxy = proxy
	l.keeper = keep(func() (*lab.Process, error) {
		return cluster.Run(lab.Operator{Namespaces: []string{l.ns}, Server: proxy.URL})
	}, l.end)
	t.Cleanup(func() {
		l.keeper.stop()
		if t.Failed() {
			l.Logf("the operators said:\n%s", l.keeper.tails())
		}
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// live goes through the phases. trouble prepares what disturbs a phase; its context
// ends with the phase.
func (l *life) live(trouble func(ctx context.Context, l *life, phase string) lab.Hook) {
	db := l.database(1)
	converged := func(replicas int) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := isReady(ctx, db.DeepCopy()); err != nil {
				return err
			}
			return populated(ctx, l.ns, whole(replicas))
		}
	}
	for _, phase := range phases {
		ctx, over := context.WithCancel(l.ctx)
		l.proxy.Arm(trouble(ctx, l, phase))
		switch phase {
		case "create":
			l.create(db)
			l.until("the Database is ready", converged(1))
		case "scale":
			l.patch(db.DeepCopy(), `{"spec":{"scalePolicy":{"replicas":2}}}`)
			l.until("the Database is scaled", converged(2))
		case "delete":
			l.must(cluster.Client.Delete(l.ctx, db.DeepCopy()))
			l.gone()
		}
		over()
		l.strikes.Wait()
	}
	l.keeper.stop()

	changes := l.changes()
	for _, fault := range lab.Disorder(changes, true) {
		l.Error(fault)
	}
	if jobs := lab.Incarnations(changes, "Job"); len(jobs) != 1 || slices.Max(slices.Collect(maps.Values(jobs))) != 1 {
		l.Errorf("backup Jobs %v, want one that was created once", jobs)
	}
	for _, kind := range []string{"Service", "StatefulSet", "PersistentVolumeClaim"} {
		for name, n := range lab.Incarnations(changes, kind) {
			if n != 1 {
				l.Errorf("%s %s was created %d times", kind, name, n)
			}
		}
	}
	l.honest()
}

// keeper keeps an operator running: one that was killed is started again, and one that
// ends by itself is a fault.
type keeper struct {
	done chan struct{}

	mu       sync.Mutex
	current  *lab.Process // nil while there is none
	killed   bool         // current was
	stopping bool
	all      []*lab.Process
}

func keep(run func() (*lab.Process, error), fault func(error)) *keeper {
	k := &keeper{done: make(chan struct{})}
	go func() {
		defer close(k.done)
		for {
			p, err := run()
			if err != nil {
				fault(err)
				return
			}
			if !k.started(p) {
				p.Kill()
				return
			}
			<-p.Done()
			switch again, err := k.ended(); {
			case err != nil:
				fault(err)
				return
			case !again:
				return
			}
		}
	}()
	return k
}

func (k *keeper) started(p *lab.Process) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current, k.killed, k.all = p, false, append(k.all, p)
	return !k.stopping
}

func (k *keeper) ended() (again bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current = nil
	if !k.killed && !k.stopping {
		return false, errors.New("the operator ended by itself")
	}
	return !k.stopping, nil
}

// kill ends the operator with SIGKILL, and says whether there was one.
func (k *keeper) kill() bool {
	k.mu.Lock()
	p := k.current
	if p == nil || k.killed || k.stopping {
		k.mu.Unlock()
		return false
	}
	k.killed = true
	k.mu.Unlock()
	p.Kill()
	return true
}

// stop ends the operator for good. How it went does not matter: it may be starting.
func (k *keeper) stop() {
	k.mu.Lock()
	k.stopping = true
	p := k.current
	k.mu.Unlock()
	if p != nil {
		p.Kill()
	}
	<-k.done
}

func (k *keeper) tails() (text string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, p := range k.all {
		text += fmt.Sprintf("--- %d of %d\n%s\n", i+1, len(k.all), p.Tail(6_000))
	}
	return text
}
