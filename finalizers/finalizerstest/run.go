// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizerstest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/finalizers"
)

// Case is a cleanup under test and the world it lives in. World, Owner and New are required.
type Case[T client.Object] struct {
	// World makes a fresh world that holds everything but the owner. It is called for every run; an in-memory client
	// is the usual answer, and is given the rules of [Strict].
	World func(testing.TB) client.Client

	// Owner is created in the world, reconciled until it is Active, deleted, and reconciled until it is gone.
	Owner T

	// New makes the finalizer with steps that use c for everything they send. It stands for the start of the process
	// and is called again after every crash.
	New func(c client.Client) (*finalizers.Finalizer[T], error)

	// Apply is the callback for the live object; nil means none.
	Apply func(ctx context.Context, c client.Client, obj T) (time.Duration, error)

	// Between is called after every pass and plays the rest of the world: what ends what a step has started. It is
	// never disturbed. Nil means nobody else acts.
	Between func(ctx context.Context, c client.Client) error

	// Check looks for leftovers once the owner is gone; its error fails the run. Nil checks nothing.
	Check func(ctx context.Context, c client.Client) error

	// MaxPasses is how many passes each half of the life may take; zero means 50.
	MaxPasses int
}

// Run lets the owner live and die, first undisturbed and then once for every disturbance at every request of the
// undisturbed life:
//
//   - the process dies before the request is sent, or after the server has acted on it, and a new one starts;
//   - the request fails, and the same process goes on;
//   - somebody else adds a finalizer of their own at the front of the list just before it, and an annotation;
//   - the owner is deleted just before it;
//   - every pass is repeated by a second process that has read the object before the first one acted, so every step
//     is called twice.
//
// Each run must end: Active within MaxPasses, gone within MaxPasses, apply never called for a deleted owner, nobody
// else's finalizer lost, Check content. Everything that does not hold is an error of t that names the disturbance.
func Run[T client.Object](t testing.TB, c Case[T]) {
	t.Helper()
	if c.World == nil || c.New == nil || reflect.ValueOf(c.Owner).IsZero() {
		t.Errorf("finalizerstest: World, Owner and New are required")
		return
	}
	if c.MaxPasses == 0 {
		c.MaxPasses = 50
	}
	requests, err := c.live(t, disturbance{})
	if err != nil {
		t.Errorf("undisturbed: %v", err)
		return
	}
	disturbances := []disturbance{{kind: twice}}
	for n, r := range requests {
		for kind := dies; kind < twice; kind++ {
			if r.write || kind != diesAfter {
				disturbances = append(disturbances, disturbance{kind: kind, at: n})
			}
		}
	}
	for _, d := range disturbances {
		if _, err := c.live(t, d); err != nil {
			where := ""
			if d.kind != twice {
				where = fmt.Sprintf(" at request %d, %s", d.at, requests[d.at].text)
			}
			t.Errorf("%s%s: %v", d.kind, where, err)
		}
	}
}

// theirs is the finalizer that the second controller adds.
const theirs = "finalizerstest.example.com/other"

// life is one run.
type life[T client.Object] struct {
	Case[T]

	world   client.Client
	wire    *wire
	process *finalizers.Finalizer[T]
	owner   T
	deleted bool
	added   bool // the second controller has its finalizer on the owner
	misuse  error
}

// live runs one life and returns the requests of the code under test.
func (c Case[T]) live(t testing.TB, d disturbance) ([]request, error) {
	l := &life[T]{Case: c, world: Strict(c.World(t)), owner: c.Owner.DeepCopyObject().(T)}
	ctx := t.Context()
	l.owner.SetResourceVersion("")
	if err := l.world.Create(ctx, l.owner); err != nil {
		return nil, fmt.Errorf("create the owner: %w", err)
	}
	l.wire = &wire{Client: l.world, disturbance: d}
	l.wire.disturb = func() error { return l.disturb(ctx, d.kind) }
	if err := l.start(); err != nil {
		return nil, err
	}

	err := l.until(ctx, func(r finalizers.Result[T]) bool { return r.Phase == finalizers.Active || l.deleted })
	if err != nil {
		return nil, fmt.Errorf("alive: %w", err)
	}
	if err := l.remove(ctx); err != nil {
		return nil, err
	}
	err = l.until(ctx, func(r finalizers.Result[T]) bool { return r.Phase == finalizers.Released || r.Phase == finalizers.Gone })
	if err != nil {
		return nil, fmt.Errorf("being deleted: %w", err)
	}
	return l.wire.requests, l.end(ctx)
}

func (l *life[T]) start() (err error) {
	l.process, err = l.New(l.wire)
	if err != nil {
		return fmt.Errorf("the case's New: %w", err)
	}
	return nil
}

// until runs passes until one ends as wanted, without an error.
func (l *life[T]) until(ctx context.Context, done func(finalizers.Result[T]) bool) error {
	var last error
	for range l.MaxPasses {
		obj, err := l.read(ctx)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		res, err := l.process.Sync(ctx, l.wire, l.wire, obj, l.apply)
		last = errors.Join(err, res.Progress.Err())
		if l.misuse != nil {
			return l.misuse
		}
		if l.wire.dead {
			l.wire.dead = false
			if err := l.start(); err != nil {
				return err
			}
			last = errors.New("the process died")
		} else if err == nil && done(res) {
			if l.wire.kind != twice {
				return nil
			}
		}
		if l.wire.kind == twice { // the repetition may learn that it is late; it must do no harm
			if err := l.start(); err != nil {
				return err
			}
			res, err = l.process.Sync(ctx, l.wire, l.wire, obj, l.apply)
			last = errors.Join(err, res.Progress.Err())
			if l.misuse != nil {
				return l.misuse
			}
			if err == nil && done(res) {
				return nil
			}
		}
		if l.Between != nil {
			if err := l.Between(ctx, l.world); err != nil {
				return fmt.Errorf("the case's Between: %w", err)
			}
		}
	}
	return fmt.Errorf("not there after %d passes; the last one said: %w", l.MaxPasses, last)
}

// apply is the caller's callback under watch.
func (l *life[T]) apply(ctx context.Context, obj T) (time.Duration, error) {
	if stored, err := l.read(ctx); err == nil {
		switch {
		case stored.GetDeletionTimestamp() != nil && obj.GetDeletionTimestamp() != nil:
			l.misuse = errors.New("apply was called for an object that is being deleted")
		case !slices.Contains(stored.GetFinalizers(), l.process.Name()):
			l.misuse = errors.New("apply was called before the finalizer was stored")
		}
	}
	if l.Apply == nil {
		return 0, nil
	}
	return l.Apply(ctx, l.wire, obj)
}

func (l *life[T]) read(ctx context.Context) (T, error) {
	obj := reflect.New(reflect.TypeOf(l.owner).Elem()).Interface().(T)
	obj.GetObjectKind().SetGroupVersionKind(l.owner.GetObjectKind().GroupVersionKind())
	err := l.world.Get(ctx, client.ObjectKeyFromObject(l.owner), obj)
	return obj, err
}

// remove deletes the owner, once.
func (l *life[T]) remove(ctx context.Context) error {
	if l.deleted {
		return nil
	}
	l.deleted = true
	obj, err := l.read(ctx)
	if err == nil {
		err = l.world.Delete(ctx, obj)
	}
	if err != nil {
		return fmt.Errorf("delete the owner: %w", err)
	}
	return nil
}

// disturb is what somebody else does just before a request.
func (l *life[T]) disturb(ctx context.Context, kind kind) error {
	switch kind {
	case deletes:
		return l.remove(ctx)
	case adds:
		obj, err := l.read(ctx)
		if err != nil {
			return client.IgnoreNotFound(err)
		}
		notes := map[string]string{}
		for k, v := range obj.GetAnnotations() {
			notes[k] = v
		}
		notes["finalizerstest.example.com/seen"] = "yes"
		obj.SetAnnotations(notes)
		if obj.GetDeletionTimestamp() == nil {
			obj.SetFinalizers(append([]string{theirs}, obj.GetFinalizers()...))
			l.added = true
		}
		return l.world.Update(ctx, obj)
	}
	return nil
}

// end takes the second controller's finalizer away, which must be there still, and looks for leftovers.
func (l *life[T]) end(ctx context.Context) error {
	obj, err := l.read(ctx)
	if err == nil {
		switch left := obj.GetFinalizers(); {
		case l.added && !slices.Contains(left, theirs):
			return fmt.Errorf("the finalizer of another controller is lost: %q is left", left)
		case slices.Contains(left, l.process.Name()):
			return fmt.Errorf("the finalizer is still there: %q is left", left)
		}
		obj.SetFinalizers(nil)
		if err := l.world.Update(ctx, obj); err != nil {
			return fmt.Errorf("remove the other finalizers: %w", err)
		}
	} else if !apierrors.IsNotFound(err) {
		return err
	} else if l.added {
		return errors.New("the owner is gone although another controller had a finalizer on it")
	}
	if l.Check != nil {
		if err := l.Check(ctx, l.world); err != nil {
			return fmt.Errorf("left behind: %w", err)
		}
	}
	return nil
}
