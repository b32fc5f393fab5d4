// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
)

// Moment is where in the life of a write request a proxy asks what to do.
type Moment string

const (
	// Before: the client has sent the request and the server has not seen it.
	Before Moment = "before"
	// After: the server has answered and the client does not know.
	After Moment = "after"
)

// Write is a request that asks for a change.
type Write struct {
	N            int // 1 for the first one after Arm
	Method, Path string
}

// Hook is asked twice about a write, before and after. An answer of true cuts it: the
// request does not go on, or its answer does not come back, and the connection ends.
// It is called from as many goroutines as there are requests under way.
type Hook func(Write, Moment) (cut bool)

// Proxy stands between one operator and the API server and counts writes. It speaks
// plain HTTP to the operator and brings the operator's credentials itself.
type Proxy struct {
	// URL is where the operator finds it.
	URL string

	server *http.Server
	next   http.RoundTripper
	done   chan struct{}

	mu     sync.Mutex
	hook   Hook
	writes []Write
}

// errCut is what the reverse proxy sees of a request that a hook has cut.
var errCut = errors.New("cut by a hook")

// NewProxy opens a proxy towards the server of config under the credentials of config.
func NewProxy(config *rest.Config) (*Proxy, error) {
	target, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("open a proxy: %w", err)
	}
	next, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("open a proxy: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open a proxy: %w", err)
	}
	p := &Proxy{URL: "http://" + listener.Addr().String(), next: next, done: make(chan struct{})}
	quiet := log.New(io.Discard, "", 0) // that a killed client's connections break is the purpose
	p.server = &http.Server{ErrorLog: quiet, Handler: &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     p,
		FlushInterval: -1, // watches stream
		ErrorLog:      quiet,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if errors.Is(err, errCut) {
				panic(http.ErrAbortHandler) // the server's way to end the connection without an answer
			}
			w.WriteHeader(http.StatusBadGateway)
		},
	}}
	go func() {
		defer close(p.done)
		p.server.Serve(listener) // ends with Close
	}()
	return p, nil
}

// Proxy opens a proxy under the operator's credentials.
func (l *Lab) Proxy() (*Proxy, error) { return NewProxy(l.OperatorConfig()) }

// Close ends the proxy and every connection through it.
func (p *Proxy) Close() error {
	err := p.server.Close()
	<-p.done
	return err
}

// Arm starts the count again at 1 and asks hook about every write from now on; nil
// lets everything pass.
func (p *Proxy) Arm(hook Hook) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook, p.writes = hook, nil
}

// Writes returns the writes since Arm in the order in which they arrived, those that
// were cut included.
func (p *Proxy) Writes() []Write {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Write(nil), p.writes...)
}

// RoundTrip passes a request on; the reverse proxy calls it.
func (p *Proxy) RoundTrip(r *http.Request) (*http.Response, error) {
	if !counts(r) {
		return p.next.RoundTrip(r)
	}
	p.mu.Lock()
	write := Write{N: len(p.writes) + 1, Method: r.Method, Path: r.URL.Path}
	p.writes = append(p.writes, write)
	hook := p.hook
	p.mu.Unlock()

	if hook != nil && hook(write, Before) {
		return nil, errCut
	}
	response, err := p.next.RoundTrip(r)
	if err != nil || hook == nil {
		return response, err
	}
	// The server has answered when the whole body is here.
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil {
		return nil, err
	}
	if hook(write, After) {
		return nil, errCut
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}

// counts says whether a request asks for a change that says something about a
// reconciler: leases, events and reviews do not.
func counts(r *http.Request) bool {
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return false
	}
	part := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if part[0] == "apis" && len(part) > 1 {
		switch part[1] {
		case "coordination.k8s.io", "events.k8s.io", "authorization.k8s.io", "authentication.k8s.io":
			return false
		}
	}
	// /api/v1/namespaces/<ns>/events
	return part[0] != "api" || len(part) < 5 || part[4] != "events"
}
