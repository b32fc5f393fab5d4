// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Phase is where an object is in its life, as far as this finalizer is concerned.
type Phase uint8

const (
	// Pending: the finalizer could not be stored, so apply has not run. Sync returned an error.
	Pending Phase = iota
	// Active: the object is live, the finalizer is stored, and apply was called.
	Active
	// Cleaning: the object is being deleted and still has our finalizer.
	Cleaning
	// Released: the object is being deleted and nothing on it is ours, any more or from the start.
	Released
	// Gone: the object does not exist any more, or another one has its name now.
	Gone
)

// String is the name of the constant.
func (p Phase) String() string {
	if names := [...]string{"Pending", "Active", "Cleaning", "Released", "Gone"}; int(p) < len(names) {
		return names[p]
	}
	return fmt.Sprintf("Phase(%d)", p)
}

// Result is what [Finalizer.Sync] leaves behind.
type Result[T client.Object] struct {
	// Object is the freshest copy that was seen, with the resourceVersion to go on with: the reply to our own write,
	// what a live read returned, or the object that was passed in. It is never nil.
	Object T

	Phase Phase

	// Progress is where the cleanup is, errors included. It is zero for a live object.
	Progress Progress

	// RequeueAfter is when the next pass is due by itself; zero means not at all. In phase Active it is what apply
	// returned.
	RequeueAfter time.Duration
}

// Sync takes obj one pass further: it stores the finalizer and then calls apply, or, once the object is being deleted,
// calls the cleanup steps and in the end removes the finalizer.
//
//   - live, finalizer stored: apply(obj). No request and no allocation of our own.
//   - live, finalizer not stored: one PATCH, then apply with the object that came back, in the same pass. A former
//     name is replaced in that PATCH.
//   - being deleted, nothing of ours on it: nothing at all. The server refuses new finalizers there, and cleaning up
//     after somebody who never started would be wrong.
//   - being deleted, ours on it: the steps whose dependencies are over are called, wave after wave as far as outcomes
//     allow. One PATCH stores what a wave has changed before the next one is called, and the last one removes the
//     finalizer when every step is over.
//   - gone, or replaced by another object of that name: phase Gone, no error.
//
// c sends the patches; its cache is not read. live must be an uncached reader (mgr.GetAPIReader()). It is asked when the
// server refuses a patch, when obj does not show what this process has written, when a write of this process was not
// answered, and before steps that wait for each other are called for the first time in this process. obj is not modified. apply is never called for an object that is
// known to be deleted; nil means that there is nothing to apply.
//
// Worst case for each of these writes: three PATCH and three GET, when others keep changing the same entries; then
// [ErrContended].
//
// Errors: that of apply as it is; an [*Error] for a request that failed; a [*StepError] for every step that asked for a
// retry, joined. Steps that wait, are blocked or stuck are no error: they are in Result.Progress. The result is valid
// with an error, too.
//
// RBAC: patch and get on the object's resource. The finalizers subresource is not needed: it is about owner references
// of other objects.
func (f *Finalizer[T]) Sync(ctx context.Context, c client.Client, live client.Reader, obj T,
	apply func(context.Context, T) (time.Duration, error),
) (Result[T], error) {
	res := Result[T]{Object: obj}
	if live == nil || obj.GetUID() == "" {
		return res, &Error{Op: opStore, Finalizer: f.name, Object: refOf(obj), Err: incomplete(live)}
	}
	// What most passes come to is decided before anything is allocated.
	switch f.verb(obj) {
	case Keep:
		return f.apply(ctx, res, apply)
	case Leave:
		res.Phase = Released
		return res, nil
	}
	return f.change(ctx, &call[T]{c: c, live: live, finalizer: f.name}, res, apply)
}

func incomplete(live client.Reader) error {
	if live == nil {
		return errors.New("no live reader was given")
	}
	return errNoUID
}

// change is a pass that has something to write.
func (f *Finalizer[T]) change(ctx context.Context, k *call[T], res Result[T],
	apply func(context.Context, T) (time.Duration, error),
) (Result[T], error) {
	known := f.memory.peek(res.Object.GetUID())
	for fresh := false; ; {
		v := f.verb(res.Object)
		switch {
		case v == Leave, v == Clean && known.released:
			res.Phase = Released
			return res, nil
		case v == Keep:
			return f.apply(ctx, res, apply)
		case !fresh && (v == Store && known.stored || v == Clean && f.behind(res.Object, known)):
			// The cache does not show what we have written, or might not show what another process has. A second entry
			// of our name would be accepted, and a step called out of order.
			live, err := k.read(ctx, res.Object)
			if err != nil {
				return gone(f.cleaning(res), err)
			}
			res.Object, fresh = live, true
			if f.verb(live) == Clean {
				_, progress, _ := f.entry(live)
				f.memory.progress(live.GetUID(), progress)
			}
		case v == Store:
			next, wrote, err := k.patch(ctx, opStore, res.Object, f.storeOps(res.Object))
			if err != nil {
				if unheard(err) {
					f.memory.stored(res.Object.GetUID()) // perhaps: look before it is stored again
				}
				return gone(res, err)
			}
			if wrote {
				f.memory.stored(next.GetUID())
				f.tell(Event{Kind: EventStored, Object: refOf(next), Message: "the finalizer is stored"})
			}
			res.Object, fresh = next, true
		default:
			return f.clean(ctx, k, res.Object)
		}
	}
}

// cleaning fills in what is known of a cleanup that could not be looked at.
func (f *Finalizer[T]) cleaning(res Result[T]) Result[T] {
	if f.verb(res.Object) == Clean {
		_, stored, _ := f.entry(res.Object)
		res.Phase = Cleaning
		res.Progress = Progress{Finalizer: f.name, Policy: stored.Policy, Steps: f.resume(stored)}
	}
	return res
}

// apply runs the caller's callback on a live object that has the finalizer.
func (f *Finalizer[T]) apply(ctx context.Context, res Result[T], apply func(context.Context, T) (time.Duration, error),
) (_ Result[T], err error) {
	res.Phase = Active
	if apply != nil {
		res.RequeueAfter, err = apply(ctx, res.Object)
	}
	return res, err
}

// gone turns the news that the object is gone into a phase; other errors stay errors.
func gone[T client.Object](res Result[T], err error) (Result[T], error) {
	if errors.Is(err, ErrGone) {
		res.Phase, res.RequeueAfter = Gone, 0
		return res, nil
	}
	return res, err
}
