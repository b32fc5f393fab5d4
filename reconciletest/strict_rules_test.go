// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ashlar-go/ashlar/reconciletest"
)

// scenario is one block of testdata/rules.txt.
type scenario struct {
	name, reason string
	steps        []step
}

type step struct {
	line                   int
	verb, path, body, code string
	checks                 []string
}

func scenarios(t *testing.T) []scenario {
	t.Helper()
	data, err := os.ReadFile("testdata/rules.txt")
	if err != nil {
		t.Fatal(err)
	}
	var out []scenario
	for i, line := range strings.Split(string(data), "\n") {
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "== "):
			name, reason, _ := strings.Cut(line[3:], ": ")
			out = append(out, scenario{name: name, reason: reason})
		case strings.HasPrefix(line, "  "):
			s := &out[len(out)-1].steps
			last := &(*s)[len(*s)-1]
			last.checks = append(last.checks, strings.TrimSpace(line))
		default:
			request, code, ok := strings.Cut(line, " -> ")
			if !ok {
				t.Fatalf("line %d: no code", i+1)
			}
			verb, rest, _ := strings.Cut(request, " ")
			path, body, _ := strings.Cut(rest, " ")
			s := &out[len(out)-1].steps
			*s = append(*s, step{line: i + 1, verb: verb, path: path, body: body, code: code})
		}
	}
	return out
}

var (
	collections = map[string]string{
		"W": "/apis/example.com/v1/namespaces/NS/widgets",
		"C": "/api/v1/namespaces/NS/configmaps",
		"J": "/apis/batch/v1/namespaces/NS/jobs",
	}
	media = map[string]string{"JSONPATCH": patchType, "MERGE": mergeType, "SMP": smpType, "APPLY": applyType}
)

// run sends the requests of a scenario and checks the replies.
func (s scenario) run(t *testing.T, rt http.RoundTripper, base, namespace string) {
	t.Helper()
	vars := map[string]string{}
	for _, st := range s.steps {
		head, rest, _ := strings.Cut(st.path, "/")
		head, query, hasQuery := strings.Cut(head, "?")
		path := st.path
		if c, ok := collections[head]; ok {
			path = c
			if rest != "" {
				path += "/" + rest
			}
			if hasQuery {
				path += "?" + query
			}
		}
		path = expand(strings.ReplaceAll(path, "NS", namespace), vars)
		method, mediaType := st.verb, jsonType
		if m, ok := media[st.verb]; ok {
			method, mediaType = http.MethodPatch, m
		}
		r, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(expand(strings.ReplaceAll(st.body, "NS", namespace), vars)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("User-Agent", "rules/1")
		if st.body != "" {
			r.Header.Set("Content-Type", mediaType)
		}
		resp, err := rt.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		var reply any
		// A path that is not served at all is answered in plain text.
		if err := json.Unmarshal(data, &reply); err != nil && resp.Header.Get("Content-Type") == jsonType {
			t.Fatalf("line %d: %v: %s", st.line, err, data)
		}
		if got := strconv.Itoa(resp.StatusCode); got != st.code {
			t.Fatalf("%s\nline %d: %s %s: got %s, want %s\n%s", s.reason, st.line, st.verb, st.path, got, st.code, data)
		}
		for _, c := range st.checks {
			check(t, s, st, reply, c, vars)
		}
		remember(reply, vars)
	}
}

// expand puts remembered values in; $before. is what was remembered before this reply, which is all there is then.
func expand(text string, vars map[string]string) string {
	for name, v := range vars {
		text = strings.ReplaceAll(strings.ReplaceAll(text, "$before."+name, v), "$"+name, v)
	}
	return text
}

func remember(reply any, vars map[string]string) {
	name, _ := at(reply, "metadata.name").(string)
	if name != "" {
		for field, short := range map[string]string{"uid": "uid.", "resourceVersion": "rv."} {
			if v, ok := at(reply, "metadata."+field).(string); ok {
				vars[short+name] = v
			}
		}
	}
	if v, ok := at(reply, "metadata.continue").(string); ok {
		vars["continue"] = v
	}
}

func at(v any, path string) any {
	for _, p := range strings.Split(path, ".") {
		switch t := v.(type) {
		case map[string]any:
			v = t[p]
		case []any:
			i, err := strconv.Atoi(p)
			if err != nil || i >= len(t) {
				return nil
			}
			v = t[i]
		default:
			return nil
		}
	}
	return v
}

func check(t *testing.T, s scenario, st step, reply any, c string, vars map[string]string) {
	t.Helper()
	path, rest, _ := strings.Cut(c, " ")
	got := at(reply, path)
	switch {
	case rest == "present":
		if got == nil {
			t.Errorf("%s\nline %d: %s is absent", s.reason, st.line, path)
		}
	case rest == "absent":
		if got != nil {
			t.Errorf("%s\nline %d: %s is %v, want nothing", s.reason, st.line, path, got)
		}
	case strings.HasPrefix(rest, "= "):
		var want any
		if err := json.Unmarshal([]byte(expand(rest[2:], vars)), &want); err != nil {
			t.Fatalf("line %d: check %q: %v", st.line, c, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s\nline %d: %s is %v, want %v", s.reason, st.line, path, got, want)
		}
	default:
		t.Fatalf("line %d: unknown check %q", st.line, c)
	}
}

func widgets(t *testing.T, more ...reconciletest.Resource) *reconciletest.StrictServer {
	t.Helper()
	s, err := reconciletest.NewStrictServer(append([]reconciletest.Resource{
		{GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, Plural: "widgets"},
		{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Plural: "configmaps", NoStatus: true},
		{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, Plural: "namespaces", Cluster: true},
		{GroupVersionKind: schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, Plural: "jobs"},
	}, more...))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestStrictServerRules replays testdata/rules.txt, which a real API server passes too.
func TestStrictServerRules(t *testing.T) {
	t.Parallel()
	list := scenarios(t)
	if len(list) < 20 {
		t.Fatalf("%d scenarios, that cannot be all", len(list))
	}
	for _, s := range list {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.run(t, widgets(t), "https://strict", "shop")
		})
	}
}

// FuzzStrictServer sends arbitrary bodies: whatever comes, the reply is an object or a status with its own code.
func FuzzStrictServer(f *testing.F) {
	for _, st := range []struct{ method, media, body string }{
		{http.MethodPatch, patchType, `[{"op":"add","path":"/metadata/finalizers/-","value":"x.io/a"},{"op":"move","from":"/spec","path":"/status"}]`},
		{http.MethodPatch, patchType, `[{"op":"copy","from":"","path":"/spec/x"},{"op":"remove","path":""}]`},
		{http.MethodPatch, mergeType, `{"metadata":5,"spec":null}`},
		{http.MethodPatch, mergeType, `[]`},
		{http.MethodPatch, applyType, "apiVersion: example.com/v1\nkind: Widget\nmetadata: {finalizers: 5}\n"},
		{http.MethodPut, jsonType, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"ownerReferences":[5]}}`},
		{http.MethodDelete, jsonType, `{"preconditions":{"uid":5}}`},
	} {
		f.Add(st.method, st.media, []byte(st.body))
	}
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	f.Fuzz(func(t *testing.T, method, media string, body []byte) {
		s, err := reconciletest.NewStrictServer([]reconciletest.Resource{{GroupVersionKind: kind, Plural: "widgets"}})
		if err != nil {
			t.Fatal(err)
		}
		const path = "https://strict/apis/example.com/v1/namespaces/shop/widgets"
		for _, r := range []struct{ method, url, media, body string }{
			{http.MethodPost, path, jsonType, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","finalizers":["x.io/b"]},"spec":{"l":[1]}}`},
			{method, path + "/a?fieldManager=m", media, string(body)},
			{http.MethodGet, path, "", ""},
		} {
			req, err := http.NewRequestWithContext(t.Context(), r.method, r.url, strings.NewReader(r.body))
			if err != nil {
				t.Skip()
			}
			req.Header.Set("Content-Type", r.media)
			resp, err := s.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			var reply struct {
				Kind string
				Code int
			}
			if err := json.NewDecoder(resp.Body).Decode(&reply); err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode >= 400 && (reply.Kind != "Status" || reply.Code != resp.StatusCode) {
				t.Errorf("%s: code %d with %+v", r.method, resp.StatusCode, reply)
			}
		}
	})
}
