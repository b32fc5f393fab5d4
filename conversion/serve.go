// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Serve runs a handler on a listener until ctx ends, for processes that have no webhook server yet. It has a limit for
// every phase of a request, and finishes what it has begun (30 seconds, what an API server waits) before it returns; what
// arrives afterwards is refused, and the API server tries another replica. The listener is closed in any case. A nil
// config serves without TLS, which an API server never calls: for tests.
func Serve(ctx context.Context, l net.Listener, h http.Handler, config *tls.Config) error {
	const patience = 30 * time.Second
	defer func() { _ = l.Close() }() // ServeTLS leaves it open when there is no certificate; a second time is an error, and none of ours
	s := &http.Server{
		Handler:           h,
		TLSConfig:         config.Clone(), // a server adds its protocols
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       patience,
		WriteTimeout:      2 * patience, // counts from the end of the header, so it holds the conversion, too
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
	served := make(chan error, 1)
	go func() {
		if config == nil {
			served <- s.Serve(l)
		} else {
			served <- s.ServeTLS(l, "", "")
		}
	}()
	select {
	case err := <-served:
		return fmt.Errorf("serve conversions: %w", err)
	case <-ctx.Done():
	}
	// The context of the caller is over, and its requests have some time left.
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	err := s.Shutdown(drain)
	if err != nil {
		err = errors.Join(err, s.Close())
	}
	if got := <-served; !errors.Is(got, http.ErrServerClosed) {
		err = errors.Join(err, got)
	}
	if err != nil {
		return fmt.Errorf("stop serving conversions: %w", err)
	}
	return nil
}
