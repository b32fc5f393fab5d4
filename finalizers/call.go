// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxTries bounds the patches of one call. Only a change of the very entries we touch makes a patch fail, so three
// losses in a row mean that somebody works against us, and the caller's backoff is the better place to wait.
const maxTries = 3

const (
	opStore    = "store finalizer"
	opProgress = "store progress of finalizer"
	opRelease  = "remove finalizer"
	opRead     = "read live for finalizer"
)

// call is the executor of one Sync, Hold or Unhold: it sends patches and, when one is refused, finds out why.
type call[T client.Object] struct {
	c         client.Client
	live      client.Reader
	finalizer string

	tries   int
	refused []byte // the last patch that was answered 422
	why     error
}

// patch sends ops, which were decided on obj. When it was applied, wrote is true and next is the reply. When the server
// refused it, next is the live object to decide on again: a failed test is a bare 422 that does not say which test it
// was. ErrGone means that the object is not there any more.
func (k *call[T]) patch(ctx context.Context, what string, obj T, ops []op) (next T, wrote bool, err error) {
	body := encode(ops)
	if k.why != nil && bytes.Equal(body, k.refused) {
		// The live object leads to the same patch, so nobody was in the way: the server does not want it.
		return obj, false, k.fail(what, obj, k.why)
	}
	if k.tries++; k.tries > maxTries {
		return obj, false, k.fail(what, obj, ErrContended)
	}
	next = blank(obj)
	err = k.c.Patch(ctx, next, client.RawPatch(types.JSONPatchType, body))
	switch {
	case err == nil:
		return named(next, obj), true, nil
	case apierrors.IsNotFound(err):
		return obj, false, k.fail(what, obj, fmt.Errorf("%w: %v", ErrGone, err))
	case apierrors.IsInvalid(err):
		k.refused, k.why = body, err
	case apierrors.IsConflict(err):
		// Either the server ran out of its own retries, or the object was deleted under the patch.
	default:
		return obj, false, k.fail(what, obj, err)
	}
	next, err = k.read(ctx, obj)
	return next, false, err
}

// unheard reports whether the write that failed with err may have been carried out nevertheless: the connection broke, or
// the server gave up waiting for its own storage.
func unheard(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Code >= http.StatusInternalServerError
	}
	return !errors.Is(err, ErrContended)
}

// reset begins another write of the same call, with tries of its own.
func (k *call[T]) reset() { k.tries, k.refused, k.why = 0, nil, nil }

// read gets the live object. ErrGone also stands for another object of the same name.
func (k *call[T]) read(ctx context.Context, obj T) (T, error) {
	next := blank(obj)
	err := k.live.Get(ctx, client.ObjectKeyFromObject(obj), next)
	switch {
	case apierrors.IsNotFound(err):
		return obj, k.fail(opRead, obj, fmt.Errorf("%w: %v", ErrGone, err))
	case err != nil:
		return obj, k.fail(opRead, obj, err)
	case next.GetUID() != obj.GetUID():
		return obj, k.fail(opRead, obj, fmt.Errorf("%w: another one with uid %s has its name", ErrGone, next.GetUID()))
	}
	return named(next, obj), nil
}

func (k *call[T]) fail(what string, obj T, err error) error {
	return &Error{Op: what, Finalizer: k.finalizer, Object: refOf(obj), Err: err}
}

// blank is an empty object of the same kind and name. Replies are decoded into an empty object, because decoding into a
// copy would keep what the server has dropped: the last finalizer, an annotation.
func blank[T client.Object](obj T) T {
	t := reflect.TypeOf(obj)
	if t.Kind() != reflect.Pointer {
		return obj.DeepCopyObject().(T)
	}
	next := reflect.New(t.Elem()).Interface().(T)
	next.GetObjectKind().SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
	next.SetNamespace(obj.GetNamespace())
	next.SetName(obj.GetName())
	return next
}

// named gives next the kind that obj was read with: typed clients drop it from replies.
func named[T client.Object](next, obj T) T {
	if next.GetObjectKind().GroupVersionKind().Empty() {
		next.GetObjectKind().SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
	}
	return next
}
