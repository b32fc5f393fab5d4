// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconcilelimit

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/ashlar-go/ashlar/ratelimit"
)

// Classify finds the class of an error of a reconciler, see ratelimit.Classify for how it goes through what is wrapped
// and joined, be it by apimachinery's NewAggregate:
//
//   - reconcile.TerminalError anywhere: Terminal, as in controller-runtime, which does not requeue it
//   - *ratelimit.Error: what it says
//   - the API server's 429: Throttled
//   - the API server's 409 Conflict: Conflict. AlreadyExists, which is a 409 as well, is not over by trying again
//   - everything else: Transient
//
// The pause that an API server asks for (Retry-After, or details.retryAfterSeconds) becomes After, for every class.
func Classify(err error) ratelimit.Error {
	if errors.Is(err, reconcile.TerminalError(nil)) {
		return ratelimit.Error{Class: ratelimit.Terminal, Err: err}
	}
	return ratelimit.Classify(err, status)
}

// status recognises what an API server says, and what apimachinery joins: its aggregates have no Unwrap.
func status(err error) (ratelimit.Error, bool) {
	if all, ok := err.(interface{ Errors() []error }); ok { //nolint:errorlint // the caller goes through the tree
		return ratelimit.Classify(errors.Join(all.Errors()...), status), true
	}
	if _, ok := err.(apierrors.APIStatus); !ok { //nolint:errorlint // the caller goes through the tree
		return ratelimit.Error{}, false
	}
	e := ratelimit.Error{Class: ratelimit.Transient}
	switch {
	case apierrors.IsTooManyRequests(err):
		e.Class = ratelimit.Throttled
	case apierrors.IsConflict(err):
		e.Class = ratelimit.Conflict
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
		e.After = time.Duration(seconds) * time.Second
	}
	return e, true
}
