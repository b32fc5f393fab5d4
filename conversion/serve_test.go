// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion_test

import (
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-go/ashlar/conversion"
)

// one is a listener with one connection.
type one struct {
	conn net.Conn
	once sync.Once
	end  chan struct{}
}

func (l *one) Accept() (net.Conn, error) {
	conn := l.conn
	if l.conn = nil; conn != nil {
		return conn, nil
	}
	<-l.end
	return nil, net.ErrClosed
}

func (l *one) Close() error   { l.once.Do(func() { close(l.end) }); return nil }
func (l *one) Addr() net.Addr { return &net.TCPAddr{} }

// Every phase of a request has an end: who is slow, or gone without a word, holds a connection for so long and no longer.
func TestServeHasTimeouts(t *testing.T) {
	t.Parallel()
	h := handler(t, build(t))
	const head = "POST /convert HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
	review := reviewOf("example.com/v1", oldWidget(`{"replicas":1}`))
	for name, tt := range map[string]struct {
		reason, sent string
		after        time.Duration
	}{
		"half a header": {"a header that never ends", head, 10 * time.Second},
		"half a body":   {"a body that never ends", head + "Content-Length: 9999\r\n\r\n{", 30 * time.Second},
		"idle":          {"an answered connection", head + "Content-Length: " + strconv.Itoa(len(review)) + "\r\n\r\n" + review, 2 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			client, server := net.Pipe()
			ctx, cancel := context.WithCancel(context.Background())
			served := make(chan error, 1)
			go func() { served <- conversion.Serve(ctx, &one{conn: server, end: make(chan struct{})}, h, nil) }()
			start := time.Now()
			go func() { _, _ = io.WriteString(client, tt.sent) }()
			answer, _ := io.ReadAll(client) // until the server closes
			if took := time.Since(start); took < tt.after || took > tt.after+2*time.Second {
				t.Errorf("%s (%s): the connection ends after %v, want %v", name, tt.reason, took, tt.after)
			}
			if name == "idle" && !strings.Contains(string(answer), "Success") {
				t.Errorf("the answer was %q", answer)
			}
			cancel()
			if err := <-served; err != nil {
				t.Errorf("%s: Serve = %v", name, err)
			}
			client.Close()
		})
	}
}
