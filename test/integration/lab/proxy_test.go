// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ashlar-go/ashlar/test/integration/lab"
)

func TestProxyCounts(t *testing.T) {
	t.Parallel()
	const ns = "/api/v1/namespaces/a/"
	for name, row := range map[string]struct {
		reason, method, path string
		counts               bool
	}{
		"create":           {"asks for a change", "POST", ns + "configmaps", true},
		"apply":            {"asks for a change", "PATCH", "/apis/apps/v1/namespaces/a/statefulsets/db", true},
		"status":           {"asks for a change", "PATCH", "/apis/db.example.com/v1/namespaces/a/databases/db/status", true},
		"update":           {"asks for a change", "PUT", ns + "configmaps/db", true},
		"delete":           {"asks for a change", "DELETE", ns + "configmaps/db", true},
		"cluster":          {"short paths are no events", "POST", "/api/v1/namespaces", true},
		"named events":     {"an object may be called like a resource", "PUT", ns + "configmaps/events", true},
		"read":             {"changes nothing", "GET", ns + "configmaps/db", false},
		"event":            {"says nothing about a reconciler", "POST", ns + "events", false},
		"event of events":  {"the same in its own group", "POST", "/apis/events.k8s.io/v1/namespaces/a/events", false},
		"lease":            {"leader election", "PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/x", false},
		"access review":    {"a create that stores nothing", "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", false},
		"token review":     {"a create that stores nothing", "POST", "/apis/authentication.k8s.io/v1/tokenreviews", false},
		"outside the APIs": {"whatever it is, it is a write", "POST", "/", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _ := proxied(t)
			p.Arm(func(lab.Write, lab.Moment) bool { return false })
			if _, err := send(row.method, p.URL+row.path); err != nil {
				t.Fatal(err)
			}
			if got := len(p.Writes()) == 1; got != row.counts {
				t.Errorf("%s %s counts: %t, want %t: %s", row.method, row.path, got, row.counts, row.reason)
			}
		})
	}
}

// TestProxyCuts shows what the crash tests rely on: a request that was cut before
// never arrives, and the answer of one that was cut after is never seen.
func TestProxyCuts(t *testing.T) {
	t.Parallel()
	p, arrived := proxied(t)
	for name, row := range map[string]struct {
		cut          lab.Moment
		n            int
		seen, served int64
	}{
		"before the second": {lab.Before, 2, 1, 1},
		"after the second":  {lab.After, 2, 1, 2},
		"never":             {lab.After, 4, 3, 3},
	} {
		arrived.Store(0)
		p.Arm(func(w lab.Write, m lab.Moment) bool { return m == row.cut && w.N == row.n })
		seen := int64(0)
		for range 3 {
			said, err := send("POST", p.URL+"/api/v1/namespaces")
			if err != nil {
				break
			}
			if said != "token" {
				t.Errorf("%s: the server saw the credentials %q, want those of the proxy", name, said)
			}
			seen++
		}
		if seen != row.seen || arrived.Load() != row.served {
			t.Errorf("%s: the client saw %d answers and the server %d requests, want %d and %d", name, seen, arrived.Load(), row.seen, row.served)
		}
	}
}

// TestProxyStreams shows that a watch's events come through one by one.
func TestProxyStreams(t *testing.T) {
	t.Parallel()
	read := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "one")
		w.(http.Flusher).Flush()
		select {
		case <-read:
			fmt.Fprint(w, "two")
		case <-time.After(10 * time.Second):
		}
	}))
	t.Cleanup(server.Close)
	p := proxy(t, server)
	response, err := http.Get(p.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	first := make([]byte, 3)
	if _, err := io.ReadFull(response.Body, first); err != nil {
		t.Fatal(err)
	}
	close(read)
	rest, err := io.ReadAll(response.Body)
	if string(first)+string(rest) != "onetwo" || err != nil {
		t.Errorf("read %q and %q, %v", first, rest, err)
	}
}

func proxied(t *testing.T) (*lab.Proxy, *atomic.Int64) {
	t.Helper()
	arrived := new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived.Add(1)
		fmt.Fprint(w, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	}))
	t.Cleanup(server.Close)
	return proxy(t, server), arrived
}

func proxy(t *testing.T, server *httptest.Server) *lab.Proxy {
	t.Helper()
	p, err := lab.NewProxy(&rest.Config{Host: server.URL, BearerToken: "token"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func send(method, url string) (string, error) {
	request, err := http.NewRequest(method, url, strings.NewReader("{}"))
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}
