// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package canned_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/test/bench/canned"
)

func TestServerCountsWhatPasses(t *testing.T) {
	t.Parallel()
	s := &canned.Server{Answer: func(r *http.Request, body []byte) (int, []byte) {
		if r.URL.Path == "/missing" {
			return 0, nil
		}
		return http.StatusOK, append([]byte("re:"), body...)
	}}
	c := http.Client{Transport: s}
	resp, err := c.Post("https://server/a", "text/plain", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(resp.Body)
	if err != nil || string(got) != "re:hello" {
		t.Errorf("got %q, %v", got, err)
	}
	counts := s.Counts()
	if counts["requests"] != 1 || counts["writes"] != 1 || counts["reads"] != 0 || counts["wire"] != int64(len("hello")+len("re:hello")) {
		t.Errorf("got %v", counts)
	}
	resp, err = c.Get("https://server/missing")
	if err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("got %v, %v", resp, err)
	}
	if counts := s.Counts(); counts["requests"] != 2 || counts["reads"] != 1 {
		t.Errorf("got %v", counts)
	}
}

func TestWatchStaysOpen(t *testing.T) {
	t.Parallel()
	s := &canned.Server{Answer: func(*http.Request, []byte) (int, []byte) { return http.StatusOK, []byte("one\n") }}
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://server/a?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan string, 1)
	go func() {
		all, _ := io.ReadAll(resp.Body)
		ended <- string(all)
	}()
	select {
	case got := <-ended:
		t.Fatalf("ended with %q while the watch was open", got)
	case <-time.After(20 * time.Millisecond):
	}
	cancel()
	if got := <-ended; got != "one\n" {
		t.Errorf("got %q", got)
	}
}
