// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest

import (
	_ "embed" // the rules are a file, so that they can be read
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

const jsonMedia = "application/json"

//go:embed testdata/rules.txt
var rulesText string

// Rule is one rule of the API server as requests and the replies they get: a scenario of testdata/rules.txt. A
// [StrictServer] and a kube-apiserver 1.37 pass them all; hold a server, a proxy or a fake of your own against them.
type Rule struct {
	// Name and Reason of the rule, for a sub-test and its failures.
	Name, Reason string

	steps []ruleStep
}

type ruleStep struct {
	line                   int
	verb, path, body, code string
	checks                 []string
}

// Rules returns all rules, parsed anew. The server has to serve ConfigMaps, Jobs, Namespaces and the custom resource
// widgets.example.com/v1, whose schema preserves unknown fields, with a status subresource in which conditions are a map
// by type.
func Rules() ([]Rule, error) {
	var out []Rule
	for i, line := range strings.Split(rulesText, "\n") {
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "== "):
			name, reason, _ := strings.Cut(line[3:], ": ")
			out = append(out, Rule{Name: name, Reason: reason})
		case strings.HasPrefix(line, "  "):
			s := &out[len(out)-1].steps
			last := &(*s)[len(*s)-1]
			last.checks = append(last.checks, strings.TrimSpace(line))
		default:
			request, code, ok := strings.Cut(line, " -> ")
			if !ok {
				return nil, fmt.Errorf("read rules: line %d: no code", i+1)
			}
			verb, rest, _ := strings.Cut(request, " ")
			path, body, _ := strings.Cut(rest, " ")
			s := &out[len(out)-1].steps
			*s = append(*s, ruleStep{line: i + 1, verb: verb, path: path, body: body, code: code})
		}
	}
	return out, nil
}

var (
	ruleCollections = map[string]string{
		"W": "/apis/example.com/v1/namespaces/NS/widgets",
		"C": "/api/v1/namespaces/NS/configmaps",
		"J": "/apis/batch/v1/namespaces/NS/jobs",
	}
	ruleMedia = map[string]types.PatchType{
		"JSONPATCH": types.JSONPatchType, "MERGE": types.MergePatchType, "SMP": types.StrategicMergePatchType,
		"APPLY": types.ApplyPatchType,
	}
)

// Run sends the requests of the rule to the server at base and fails t for every reply that is another. The namespace
// must exist and hold nothing yet; rules about namespaces make one with -t appended to its name.
func (s Rule) Run(t testing.TB, rt http.RoundTripper, base, namespace string) {
	t.Helper()
	vars := map[string]string{}
	for _, st := range s.steps {
		head, rest, _ := strings.Cut(st.path, "/")
		head, query, hasQuery := strings.Cut(head, "?")
		path := st.path
		if c, ok := ruleCollections[head]; ok {
			path = c
			if rest != "" {
				path += "/" + rest
			}
			if hasQuery {
				path += "?" + query
			}
		}
		path = expandVars(strings.ReplaceAll(path, "NS", namespace), vars)
		method, mediaType := st.verb, jsonMedia
		if m, ok := ruleMedia[st.verb]; ok {
			method, mediaType = http.MethodPatch, string(m)
		}
		r, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(expandVars(strings.ReplaceAll(st.body, "NS", namespace), vars)))
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
		if err := json.Unmarshal(data, &reply); err != nil && resp.Header.Get("Content-Type") == jsonMedia {
			t.Fatalf("line %d: %v: %s", st.line, err, data)
		}
		if got := strconv.Itoa(resp.StatusCode); got != st.code {
			t.Fatalf("%s\nline %d: %s %s: got %s, want %s\n%s", s.Reason, st.line, st.verb, st.path, got, st.code, data)
		}
		for _, c := range st.checks {
			checkReply(t, s, st, reply, c, vars)
		}
		rememberReply(reply, vars)
	}
}

// expand puts remembered values in; $before. is what was remembered before this reply, which is all there is then.
func expandVars(text string, vars map[string]string) string {
	for name, v := range vars {
		text = strings.ReplaceAll(strings.ReplaceAll(text, "$before."+name, v), "$"+name, v)
	}
	return text
}

func rememberReply(reply any, vars map[string]string) {
	name, _ := ruleField(reply, "metadata.name").(string)
	if name != "" {
		for field, short := range map[string]string{"uid": "uid.", "resourceVersion": "rv."} {
			if v, ok := ruleField(reply, "metadata."+field).(string); ok {
				vars[short+name] = v
			}
		}
	}
	if v, ok := ruleField(reply, "metadata.continue").(string); ok {
		vars["continue"] = v
	}
}

func ruleField(v any, path string) any {
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

func checkReply(t testing.TB, s Rule, st ruleStep, reply any, c string, vars map[string]string) {
	t.Helper()
	path, rest, _ := strings.Cut(c, " ")
	got := ruleField(reply, path)
	switch {
	case rest == "present":
		if got == nil {
			t.Errorf("%s\nline %d: %s is absent", s.Reason, st.line, path)
		}
	case rest == "absent":
		if got != nil {
			t.Errorf("%s\nline %d: %s is %v, want nothing", s.Reason, st.line, path, got)
		}
	case strings.HasPrefix(rest, "= "):
		var want any
		if err := json.Unmarshal([]byte(expandVars(rest[2:], vars)), &want); err != nil {
			t.Fatalf("line %d: check %q: %v", st.line, c, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s\nline %d: %s is %v, want %v", s.Reason, st.line, path, got, want)
		}
	default:
		t.Fatalf("line %d: unknown check %q", st.line, c)
	}
}
