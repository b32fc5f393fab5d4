// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package canned is an API server made of fixed replies. A side that talks to it pays for everything a client does,
// encoding, the request, decoding, and for nothing a server does.
package canned

import (
	"bytes"
	"io"
	"net/http"
	"sync/atomic"
)

// Answer replies to one request. An empty reply with status 0 is answered with 404.
type Answer func(r *http.Request, body []byte) (status int, reply []byte)

// Server is a round tripper that answers in the caller's goroutine.
type Server struct {
	Answer Answer

	reads, writes, wire atomic.Int64
}

// RoundTrip answers one request. A watch is answered with the reply and then stays open until it is cancelled.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		if err := r.Body.Close(); err != nil {
			return nil, err
		}
	}
	if r.Method == http.MethodGet {
		s.reads.Add(1)
	} else {
		s.writes.Add(1)
	}
	status, reply := s.Answer(r, body)
	if status == 0 {
		status, reply = http.StatusNotFound, []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	}
	s.wire.Add(int64(len(body) + len(reply)))
	resp := &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(reply)),
		Body: io.NopCloser(bytes.NewReader(reply)),
	}
	if IsWatch(r) {
		resp.ContentLength = -1
		resp.Body = &open{Reader: bytes.NewReader(reply), done: r.Context().Done()}
	}
	return resp, nil
}

// IsWatch tells a watch from a list.
func IsWatch(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }

// open is the body of a watch: what there is to say, then silence.
type open struct {
	*bytes.Reader
	done <-chan struct{}
}

func (o *open) Read(p []byte) (int, error) {
	if o.Len() > 0 {
		return o.Reader.Read(p)
	}
	<-o.done
	return 0, io.EOF
}

func (o *open) Close() error { return nil }

// Counts are requests, of them reads (GET) and writes, and wire, the bytes of all bodies in both directions.
func (s *Server) Counts() map[string]int64 {
	r, w := s.reads.Load(), s.writes.Load()
	return map[string]int64{"requests": r + w, "reads": r, "writes": w, "wire": s.wire.Load()}
}
