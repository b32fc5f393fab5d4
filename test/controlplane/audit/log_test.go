// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package audit_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/test/controlplane/audit"
)

// recorded is what a real API server wrote about a session with kubectl: see the requests in TestEverything.
const recorded = "testdata/kubectl.log"

func lines(reqs audit.Requests) []string {
	var out []string
	for _, r := range reqs {
		out = append(out, r.String())
	}
	return out
}

func equal(t *testing.T, got, want []string) {
	t.Helper()
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("got:\n%s\nwant:\n%s", g, w)
	}
}

func TestEverything(t *testing.T) {
	t.Parallel()
	all, err := audit.Open(recorded).Everything(audit.Mark{})
	if err != nil {
		t.Fatal(err)
	}
	// One line each, although the watches and the log were recorded twice.
	equal(t, lines(all), []string{
		"create namespaces demo 201 by admin",
		"create configmaps demo/a 201 by admin",
		"get /api  200 by admin",
		"get /apis  200 by admin",
		"get configmaps demo/a 200 by admin",
		"get configmaps demo/missing 404 by admin",
		"get namespaces demo 200 by admin",
		"list configmaps demo/ 200 by admin",
		"watch configmaps demo/ 200 by admin",
		"get configmaps demo/a 200 by admin",
		"patch configmaps demo/a 200 by admin",
		"get /openapi/v3  200 by admin",
		"get /openapi/v3/api/v1  200 by admin",
		"patch configmaps demo/b 201 by admin",
		"get /openapi/v3  200 by admin",
		"patch configmaps demo/b 200 by admin",
		"get /openapi/v3  200 by admin",
		"create configmaps demo/ 201 by admin",
		"list configmaps demo/ 403 by bob",
		"create pods demo/p 201 by admin",
		"get pods demo/p 200 by admin",
		"watch pods demo/p 200 by admin",
		"get pods demo/p 200 by admin",
		"get pods/log demo/p 500 by admin",
		"get /api/v1  200 by admin",
		"create selfsubjectaccessreviews.authorization.k8s.io  201 by admin",
		"delete configmaps demo/a 200 by admin",
		"get configmaps demo/a 404 by admin",
		"list configmaps demo/ 200 by admin",
		"delete configmaps demo/b 200 by admin",
		"delete configmaps demo/c-7vhvh 200 by admin",
		"delete configmaps demo/kube-root-ca.crt 200 by admin",
		"get configmaps demo/b 404 by admin",
		"get configmaps demo/c-7vhvh 404 by admin",
		"get configmaps demo/kube-root-ca.crt 404 by admin",
		"list nodes  403 by system:anonymous",
	})
	for _, r := range all {
		if r.Time.IsZero() || r.Duration <= 0 || r.Code == 0 || r.UserAgent == "" || r.URI == "" {
			t.Errorf("%s lacks a field: %+v", r, r)
		}
	}
}

func TestFilters(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason  string
		filters []audit.Filter
		want    int
	}{
		"none":           {"reviews, discovery and OpenAPI are noise: 8 of 36", nil, 28},
		"noise only":     {"Since never lets noise through", []audit.Filter{audit.Noise}, 0},
		"user":           {"an impersonated user is the user", []audit.Filter{audit.User("bob")}, 1},
		"account":        {"a service account is a user with a long name", []audit.Filter{audit.ServiceAccount("demo", "x")}, 0},
		"user agent":     {"the prefix is enough", []audit.Filter{audit.UserAgent("curl/")}, 1},
		"namespace":      {"the Namespace itself is in it", []audit.Filter{audit.Namespace("demo")}, 27},
		"resource":       {"subresources belong to the resource", []audit.Filter{audit.Resource("", "pods")}, 5},
		"subresource":    {"one of them", []audit.Filter{audit.Subresource("log")}, 1},
		"no subresource": {"the main resource only", []audit.Filter{audit.Resource("", "pods"), audit.Subresource("")}, 4},
		"object":         {"lists name no object", []audit.Filter{audit.Object("", "configmaps", "demo", "a")}, 6},
		"verb":           {"any of them", []audit.Filter{audit.Verb("list", "watch")}, 6},
		"code":           {"any of them", []audit.Filter{audit.Code(403, 404)}, 7},
		"not":            {"the others", []audit.Filter{audit.Not(audit.Namespace("demo"))}, 1},
		"or":             {"either", []audit.Filter{audit.Or(audit.User("bob"), audit.UserAgent("curl/"))}, 2},
		"both":           {"all must match", []audit.Filter{audit.User("bob"), audit.UserAgent("curl/")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := audit.Open(recorded).Since(audit.Mark{}, test.filters...)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != test.want {
				t.Errorf("%s: got %d, want %d:\n%s", test.reason, len(got), test.want, got.Table())
			}
		})
	}
}

func TestNoise(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason string
		r      audit.Request
		want   bool
	}{
		"lease":           {"leader election and node heartbeats", audit.Request{Group: "coordination.k8s.io", Resource: "leases"}, true},
		"foreign lease":   {"another group's leases are somebody's objects", audit.Request{Group: "example.org", Resource: "leases"}, false},
		"event":           {"core", audit.Request{Resource: "events"}, true},
		"new event":       {"events.k8s.io", audit.Request{Group: "events.k8s.io", Resource: "events"}, true},
		"foreign event":   {"another group's events are somebody's objects", audit.Request{Group: "example.org", Resource: "events"}, false},
		"access review":   {"a question", audit.Request{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}, true},
		"token review":    {"a question", audit.Request{Group: "authentication.k8s.io", Resource: "tokenreviews"}, true},
		"token request":   {"hands out a credential", audit.Request{Resource: "serviceaccounts", Subresource: "token"}, false},
		"root":            {"discovery", audit.Request{URI: "/"}, true},
		"version":         {"discovery", audit.Request{URI: "/version?timeout=32s"}, true},
		"health":          {"a probe", audit.Request{URI: "/readyz/ping"}, true},
		"metrics":         {"somebody reads on purpose", audit.Request{URI: "/metrics"}, false},
		"looks like apis": {"only whole path segments count", audit.Request{URI: "/apiserver"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := audit.Noise(test.r); got != test.want {
				t.Errorf("%s: got %t", test.reason, got)
			}
		})
	}
}

func TestWrites(t *testing.T) {
	t.Parallel()
	all, err := audit.Open(recorded).Everything(audit.Mark{})
	if err != nil {
		t.Fatal(err)
	}
	// Not the dry run on b, and not the access review.
	equal(t, lines(all.Writes()), []string{
		"create namespaces demo 201 by admin",
		"create configmaps demo/a 201 by admin",
		"patch configmaps demo/a 200 by admin",
		"patch configmaps demo/b 201 by admin",
		"create configmaps demo/ 201 by admin",
		"create pods demo/p 201 by admin",
		"delete configmaps demo/a 200 by admin",
		"delete configmaps demo/b 200 by admin",
		"delete configmaps demo/c-7vhvh 200 by admin",
		"delete configmaps demo/kube-root-ca.crt 200 by admin",
	})
	dry := all.Filter(func(r audit.Request) bool { return r.DryRun })
	equal(t, lines(dry), []string{"patch configmaps demo/b 200 by admin"})
}

func TestImpersonation(t *testing.T) {
	t.Parallel()
	got, err := audit.Open(recorded).Since(audit.Mark{}, audit.User("bob"))
	if err != nil || len(got) != 1 {
		t.Fatalf("got %v, %v", got, err)
	}
	if got[0].Impersonator != "admin" {
		t.Errorf("the impersonator is %q, want admin", got[0].Impersonator)
	}
}

// TestMark adds to a log piece by piece, also in the middle of a line as a reader may see it.
func TestMark(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "audit.log")
	log := audit.Open(path)
	count := func(mark audit.Mark) int {
		t.Helper()
		reqs, err := log.Everything(mark)
		if err != nil {
			t.Fatal(err)
		}
		return len(reqs)
	}
	before := log.Mark()
	if n := count(before); n != 0 {
		t.Fatalf("a log that does not exist yet has %d requests", n)
	}
	first, rest, _ := strings.Cut(string(text), "\n")
	appendTo(t, path, first)
	if n := count(before); n != 0 {
		t.Errorf("a line without its end is counted: %d", n)
	}
	half := log.Mark()
	appendTo(t, path, "\n")
	if n := count(half); n != 1 {
		t.Errorf("after a mark inside a line, that line is counted %d times, want 1", n)
	}
	mark := log.Mark()
	if n := count(mark); n != 0 {
		t.Errorf("%d requests after the last", n)
	}
	appendTo(t, path, rest)
	if n := count(mark); n != 35 {
		t.Errorf("got %d requests after the first, want 35", n)
	}
	if n := count(before); n != 36 {
		t.Errorf("got %d requests from the beginning, want 36", n)
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func TestNotCounted(t *testing.T) {
	t.Parallel()
	var none *audit.Log
	for name, log := range map[string]*audit.Log{"nil": none, "zero": {}} {
		if log.Counted() || log.Path() != "" {
			t.Errorf("%s: says that it counts", name)
		}
		if _, err := log.Since(log.Mark()); !errors.Is(err, audit.ErrNotCounted) {
			t.Errorf("%s: Since: got %v", name, err)
		}
		if err := log.Settle(t.Context(), time.Millisecond); !errors.Is(err, audit.ErrNotCounted) {
			t.Errorf("%s: Settle: got %v", name, err)
		}
	}
}

func TestBrokenLogIsAnError(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	appendTo(t, path, "{\"stage\":\n")
	_, err := audit.Open(path).Everything(audit.Mark{})
	if err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want an error that names the file", err)
	}
}

func TestSettle(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	path := filepath.Join(t.TempDir(), "audit.log")
	appendTo(t, path, line+"\n")
	log := audit.Open(path)

	busy, stop := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	writer.Go(func() {
		for busy.Err() == nil {
			appendTo(t, path, line+"\n")
			time.Sleep(5 * time.Millisecond)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	err = log.Settle(ctx, 200*time.Millisecond)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "create namespaces demo") {
		t.Errorf("while requests come: got %v, want a deadline and the last request", err)
	}
	if err := log.Settle(t.Context(), 100*time.Millisecond, audit.User("bob")); err != nil {
		t.Errorf("while other users' requests come: %v", err)
	}
	stop()
	writer.Wait()
	if err := log.Settle(t.Context(), 100*time.Millisecond); err != nil {
		t.Errorf("after the last request: %v", err)
	}
}

func FuzzLog(f *testing.F) {
	text, err := os.ReadFile(recorded)
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f.Add(line)
	}
	f.Add(`{"stage":"ResponseComplete","requestURI":"/x?%zz&dryRun","objectRef":{}}` + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "audit.log")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		log := audit.Open(path)
		reqs, err := log.Everything(audit.Mark{})
		if err != nil {
			return
		}
		if len(reqs) > strings.Count(text, "\n") {
			t.Errorf("%d requests in %d lines", len(reqs), strings.Count(text, "\n"))
		}
		if left := reqs.Uncovered(reqs.Rules()); len(left) > 0 {
			t.Errorf("the rules of the requests do not cover %v", left)
		}
		if table := reqs.Table(); !strings.HasSuffix(table, fmt.Sprintf("%d\n", len(reqs))) {
			t.Errorf("the table of %d requests ends differently:\n%s", len(reqs), table)
		}
	})
}
