// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest

import (
	"net/http"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// TB is the part of testing.TB that a [LawTransport] needs.
type TB interface {
	// Helper marks the caller as a helper.
	Helper()
	// Errorf fails the test and lets it go on.
	Errorf(format string, args ...any)
}

// LawTransport passes requests on and holds each write against the laws, [DeletePolicy] to [Readable]. A request that
// breaks one is reported and still sent: the transport watches, it does not protect.
//
// It is safe for concurrent use. It keeps the uids of the objects it has seen terminating, nothing else.
type LawTransport struct {
	next http.RoundTripper
	laws *laws
}

// laws is what all transports made by Wrap share.
type laws struct {
	exempt  map[schema.GroupResource]bool
	foreign []func(Write) bool

	// Reporting has a lock of its own: a test that ends meanwhile waits for it, and what t does on Errorf may ask
	// for the violations.
	reporting sync.RWMutex
	tb        TB // nil once the test is over

	mu         sync.Mutex
	violations []Violation
	dying      map[object]types.UID
	conflicts  map[types.UID]int // conflicts of fenced deletes
}

// object is an address, whatever version it was asked for in.
type object struct {
	resource        schema.GroupResource
	namespace, name string
}

// NewLawTransport returns a transport over next (nil: http.DefaultTransport) that fails t for every request that
// breaks a law. With a nil t it only records, see [LawTransport.Violations]. When t has a Cleanup method, as testing.TB
// does, nothing is reported to it after its end.
//
// Requests: those that pass through, none of its own.
func NewLawTransport(t TB, next http.RoundTripper, opts ...Option) *LawTransport {
	l := &laws{
		exempt:    exemptByDefault(),
		tb:        t,
		dying:     map[object]types.UID{},
		conflicts: map[types.UID]int{},
	}
	for _, o := range opts {
		o.apply(l)
	}
	if c, ok := t.(interface{ Cleanup(func()) }); ok {
		c.Cleanup(func() {
			l.reporting.Lock()
			defer l.reporting.Unlock()
			l.tb = nil
		})
	}
	return (&LawTransport{laws: l}).Wrap(next)
}

// Wrap returns a transport over another next that judges and records together with this one. Give it to
// rest.Config.Wrap, and every client made from that config is judged:
//
//	laws := reconciletest.NewLawTransport(t, nil)
//	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return laws.Wrap(rt) })
func (t *LawTransport) Wrap(next http.RoundTripper) *LawTransport {
	if next == nil {
		next = http.DefaultTransport
	}
	return &LawTransport{next: next, laws: t.laws}
}

// Violations returns what was recorded so far, oldest first. The slice is the caller's.
func (t *LawTransport) Violations() []Violation {
	t.laws.mu.Lock()
	defer t.laws.mu.Unlock()
	return slices.Clone(t.laws.violations)
}

// RoundTrip judges the request and passes it on. Its errors are those of the next transport, and of reading the
// request's own body.
func (t *LawTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	w, ok := address(r.URL.Path)
	if !ok {
		return t.next.RoundTrip(r)
	}
	if w.Verb = verb(r, w); w.Verb == "" {
		resp, err := t.next.RoundTrip(r)
		if err == nil {
			t.laws.learn(w, r, resp)
		}
		return resp, err
	}
	body, r, err := peek(r)
	if err != nil {
		return nil, err
	}
	fenced := t.laws.judge(r, &w, body)
	resp, err := t.next.RoundTrip(r)
	if err == nil {
		t.laws.learn(w, r, resp)
		if fenced && resp.StatusCode == http.StatusConflict {
			t.laws.conflict(w.UID)
		}
	}
	return resp, err
}

// report records a violation and fails the test.
func (l *laws) report(law Law, w Write, what string) {
	v := Violation{Law: law, Write: w, What: what}
	l.mu.Lock()
	l.violations = append(l.violations, v)
	l.mu.Unlock()

	l.reporting.RLock()
	defer l.reporting.RUnlock()
	if l.tb != nil {
		l.tb.Helper()
		l.tb.Errorf("%v", v)
	}
}
