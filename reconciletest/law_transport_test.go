// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ashlar-go/ashlar/reconciletest"
)

// server answers requests from a function and remembers what reached it.
type server struct {
	mu     sync.Mutex
	bodies []string
	answer func(r *http.Request) (code int, media, body string)
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	body := ""
	if r.Body != nil {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = string(data)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bodies = append(s.bodies, body)
	code, media, reply := http.StatusOK, "application/json", "{}"
	if s.answer != nil {
		code, media, reply = s.answer(r)
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {media}},
		Body: io.NopCloser(strings.NewReader(reply)), Request: r,
	}, nil
}

// recorder is a test that only remembers its failures.
type recorder struct {
	mu       sync.Mutex
	failures []string
	atEnd    []func()
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Cleanup(f func()) { r.atEnd = append(r.atEnd, f) }

// send sends one request through the transport; line is the method and the path.
func send(t *testing.T, rt http.RoundTripper, line, media, body string) string {
	t.Helper()
	method, path, _ := strings.Cut(line, " ")
	r, err := http.NewRequestWithContext(t.Context(), method, "https://server"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if media != "" {
		r.Header.Set("Content-Type", media)
	}
	resp, err := rt.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	reply, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(reply)
}

func broken(rt *reconciletest.LawTransport) []reconciletest.Law {
	var laws []reconciletest.Law
	for _, v := range rt.Violations() {
		laws = append(laws, v.Law)
	}
	return laws
}

const (
	jsonType  = "application/json"
	mergeType = "application/merge-patch+json"
	smpType   = "application/strategic-merge-patch+json"
	patchType = "application/json-patch+json"
	applyType = "application/apply-patch+yaml"

	databases = "/apis/example.com/v1/namespaces/shop/databases"
	orders    = databases + "/orders"

	fencedDelete = `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background",` +
		`"preconditions":{"uid":"u1","resourceVersion":"7"}}`
)

// TestLaws has, for every law that one request can break, requests that break it and requests that obey it.
func TestLaws(t *testing.T) {
	t.Parallel()
	type laws = []reconciletest.Law
	tests := map[string]struct {
		reason            string
		line, media, body string
		want              laws
	}{
		// Law 1.
		"delete without a policy": {
			reason: "a Job's default leaves its Pods behind", line: "DELETE " + orders, media: jsonType,
			body: `{"preconditions":{"uid":"u1","resourceVersion":"7"}}`,
			want: laws{reconciletest.DeletePolicy},
		},
		"delete with everything": {
			reason: "policy, uid and resourceVersion", line: "DELETE " + orders, media: jsonType, body: fencedDelete,
		},
		"delete with the deprecated policy": {
			reason: "orphanDependents says it too", line: "DELETE " + orders, media: jsonType,
			body: `{"orphanDependents":false,"preconditions":{"uid":"u1","resourceVersion":"7"}}`,
		},
		"delete with the policy beside a body": {
			reason: "the server reads the query only when there is no body",
			line:   "DELETE " + orders + "?propagationPolicy=Background", media: jsonType,
			body: `{"preconditions":{"uid":"u1","resourceVersion":"7"}}`,
			want: laws{reconciletest.DeletePolicy},
		},
		// Law 2.
		"delete without a body": {
			reason: "neither policy nor preconditions", line: "DELETE " + orders,
			want: laws{reconciletest.DeletePolicy, reconciletest.DeletePreconditions},
		},
		"delete with a policy in the query": {
			reason: "the query cannot carry preconditions", line: "DELETE " + orders + "?propagationPolicy=Foreground",
			want: laws{reconciletest.DeletePreconditions},
		},
		"delete with the uid alone": {
			reason: "the object may have changed hands since", line: "DELETE " + orders, media: jsonType,
			body: `{"propagationPolicy":"Background","preconditions":{"uid":"u1"}}`,
			want: laws{reconciletest.DeletePreconditions},
		},
		"delete with the resourceVersion alone": {
			reason: "the law asks for both", line: "DELETE " + orders, media: jsonType,
			body: `{"propagationPolicy":"Background","preconditions":{"resourceVersion":"7"}}`,
			want: laws{reconciletest.DeletePreconditions},
		},
		// Law 3.
		"delete of a collection": {
			reason: "nobody looked at what it hits", line: "DELETE " + databases + "?labelSelector=a", media: jsonType,
			body: fencedDelete,
			want: laws{reconciletest.DeleteCollection},
		},
		"delete of a namespace": {
			reason: "its path is the prefix of what is in it, and still one object",
			line:   "DELETE /api/v1/namespaces/shop", media: jsonType, body: fencedDelete,
		},
		// Law 5.
		"update without identity": {
			reason: "a replaced newcomer", line: "PUT " + orders, media: jsonType, body: `{"metadata":{"name":"orders"}}`,
			want: laws{reconciletest.WriteIdentity},
		},
		"update with a resourceVersion": {
			reason: "fenced", line: "PUT " + orders, media: jsonType, body: `{"metadata":{"resourceVersion":"7"}}`,
		},
		"merge patch without identity": {
			reason: "it hits whoever has the name", line: "PATCH " + orders, media: mergeType,
			body: `{"metadata":{"labels":{"a":"b"}}}`,
			want: laws{reconciletest.WriteIdentity},
		},
		"merge patch with a uid": {
			reason: "the server refuses to change a uid", line: "PATCH " + orders, media: mergeType,
			body: `{"metadata":{"uid":"u1","labels":{"a":"b"}}}`,
		},
		"strategic merge patch without identity": {
			reason: "the other merge patch", line: "PATCH " + orders, media: smpType, body: `{"spec":{}}`,
			want: laws{reconciletest.WriteIdentity},
		},
		"json patch without a test": {
			reason: "a path exists in a newcomer too", line: "PATCH " + orders, media: patchType,
			body: `[{"op":"add","path":"/metadata/uid","value":"u1"},{"op":"test","path":"/metadata/name","value":"orders"}]`,
			want: laws{reconciletest.WriteIdentity},
		},
		"json patch that tests for no uid": {
			reason: "null names nobody", line: "PATCH " + orders, media: patchType,
			body: `[{"op":"test","path":"/metadata/uid","value":null}]`,
			want: laws{reconciletest.WriteIdentity},
		},
		"json patch that tests the uid": {
			reason: "fenced", line: "PATCH " + orders, media: patchType,
			body: `[{"op":"test","path":"/metadata/uid","value":"u1"},{"op":"add","path":"/metadata/finalizers/-","value":"a/b"}]`,
		},
		"json patch that tests the resourceVersion": {
			reason: "fenced", line: "PATCH " + orders, media: patchType,
			body: `[{"op":"test","path":"/metadata/resourceVersion","value":"7"}]`,
		},
		"apply without identity": {
			reason: "it creates a ghost when the object is gone", line: "PATCH " + orders, media: applyType,
			body: "apiVersion: example.com/v1\nkind: Database\nmetadata: {name: orders}\n",
			want: laws{reconciletest.WriteIdentity},
		},
		"apply as yaml with a uid": {
			reason: "yaml is read too", line: "PATCH " + orders, media: applyType, body: "metadata:\n  uid: u1\n",
		},
		"apply that only creates": {
			reason: "no object has resourceVersion 1", line: "PATCH " + orders, media: applyType,
			body: `{"metadata":{"resourceVersion":"1"}}`,
		},
		"create": {
			reason: "a POST can only create", line: "POST " + databases, media: jsonType, body: `{"metadata":{"name":"orders"}}`,
		},
		"scale": {
			reason: "only the object and its status are under law 5 and 6", line: "PUT " + orders + "/scale", media: jsonType,
			body: `{"spec":{"replicas":1}}`,
		},
		"behind a prefix": {
			reason: "a proxy in front of the server changes nothing", line: "PUT /clusters/a" + orders, media: jsonType, body: `{}`,
			want: laws{reconciletest.WriteIdentity},
		},
		"core group": {
			reason: "its path is shorter", line: "PUT /api/v1/namespaces/shop/configmaps/a", media: jsonType, body: `{}`,
			want: laws{reconciletest.WriteIdentity},
		},
		// Law 6.
		"status apply with the uid alone": {
			reason: "the server ignores the uid there", line: "PATCH " + orders + "/status", media: applyType,
			body: `{"metadata":{"uid":"u1"}}`,
			want: laws{reconciletest.StatusVersion},
		},
		"status apply with a resourceVersion": {
			reason: "fenced", line: "PATCH " + orders + "/status", media: applyType, body: `{"metadata":{"resourceVersion":"7"}}`,
		},
		"status of a namespace": {
			reason: "status is not an object in the namespace", line: "PATCH /api/v1/namespaces/shop/status", media: mergeType, body: `{}`,
			want: laws{reconciletest.StatusVersion},
		},
		// Law 7.
		"status put": {
			reason: "fenced, and still takes other writers' fields back", line: "PUT " + orders + "/status", media: jsonType,
			body: `{"metadata":{"resourceVersion":"7"}}`,
			want: laws{reconciletest.StatusPut},
		},
		// Law 9.
		"update in cbor": {
			reason: "not read, so not shown to obey", line: "PUT " + orders, media: "application/cbor", body: "\xa0",
			want: laws{reconciletest.Readable},
		},
		"apply in cbor": {
			reason: "likewise", line: "PATCH " + orders, media: "application/apply-patch+cbor", body: "\xa0",
			want: laws{reconciletest.Readable},
		},
		"delete in cbor": {
			reason: "likewise", line: "DELETE " + orders, media: "application/cbor", body: "\xa0",
			want: laws{reconciletest.Readable},
		},
		"json that is none": {
			reason: "the server will say so too", line: "PATCH " + orders, media: patchType, body: `{"a":`,
			want: laws{reconciletest.Readable},
		},
		// Exempt.
		"lease": {
			reason: "leader election", line: "PUT /apis/coordination.k8s.io/v1/namespaces/shop/leases/a", media: jsonType, body: `{}`,
		},
		"event":      {reason: "the recorder", line: "PATCH /api/v1/namespaces/shop/events/a", media: smpType, body: `{}`},
		"new event":  {reason: "the other recorder", line: "PATCH /apis/events.k8s.io/v1/namespaces/shop/events/a", media: smpType, body: `{}`},
		"review":     {reason: "asks, and stores nothing", line: "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", media: jsonType, body: `{}`},
		"dry run":    {reason: "stores nothing", line: "PUT " + orders + "?dryRun=All", media: jsonType, body: `{}`},
		"dry delete": {reason: "stores nothing", line: "DELETE " + orders, media: jsonType, body: `{"dryRun":["All"]}`},
		"read":       {reason: "reads nobody judges", line: "GET " + orders},
		"discovery":  {reason: "no resource", line: "GET /apis/example.com/v1"},
		"post to no resource": {
			reason: "not a resource request", line: "POST /healthz", media: jsonType, body: `{}`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, rec := &server{}, &recorder{}
			rt := reconciletest.NewLawTransport(rec, s)
			send(t, rt, tc.line, tc.media, tc.body)
			if diff := cmp.Diff(tc.want, broken(rt)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if len(rec.failures) != len(tc.want) {
				t.Errorf("reported %q, want %d failures", rec.failures, len(tc.want))
			}
			if diff := cmp.Diff([]string{tc.body}, s.bodies); diff != "" {
				t.Errorf("the request must arrive whole and once (-want +got):\n%s", diff)
			}
		})
	}
}

// dying is an object that waits for a finalizer.
func dying(uid string) string {
	return `{"metadata":{"name":"orders","namespace":"shop","uid":"` + uid + `","deletionTimestamp":"2026-01-02T03:04:05Z"}}`
}

func TestLawDeleteOnce(t *testing.T) {
	t.Parallel()
	answer := func(method, body string) func(*http.Request) (int, string, string) {
		return func(r *http.Request) (int, string, string) {
			if r.Method == method {
				return http.StatusOK, jsonType, body
			}
			return http.StatusOK, jsonType, `{"kind":"Status","status":"Success"}`
		}
	}
	alive := `{"metadata":{"name":"orders","namespace":"shop","uid":"u1"}}`
	tests := map[string]struct {
		reason string
		answer func(*http.Request) (int, string, string)
		lines  []string
		want   []reconciletest.Law
	}{
		"seen in the reply to a delete": {
			reason: "the first delete says that the object waits", answer: answer("DELETE", dying("u1")),
			lines: []string{"DELETE " + orders, "DELETE " + orders}, want: []reconciletest.Law{reconciletest.DeleteOnce},
		},
		"seen in a read": {
			reason: "somebody else deleted it", answer: answer("GET", dying("u1")),
			lines: []string{"GET " + orders, "DELETE " + orders}, want: []reconciletest.Law{reconciletest.DeleteOnce},
		},
		"seen in a list": {
			reason: "as a cache fills", answer: answer("GET", `{"kind":"DatabaseList","items":[`+dying("u1")+`]}`),
			lines: []string{"GET " + databases, "DELETE " + orders}, want: []reconciletest.Law{reconciletest.DeleteOnce},
		},
		"seen in another version": {
			reason: "one object, however it is addressed", answer: answer("GET", dying("u1")),
			lines: []string{"GET " + strings.Replace(orders, "/v1/", "/v2/", 1), "DELETE " + orders},
			want:  []reconciletest.Law{reconciletest.DeleteOnce},
		},
		"seen in a watch": {
			reason: "as a cache is kept", answer: answer("GET", `{"type":"ADDED","object":`+alive+"}\n"+`{"type":"MODIFIED","object":`+dying("u1")+"}\n"),
			lines: []string{"GET " + databases + "?watch=true", "DELETE " + orders}, want: []reconciletest.Law{reconciletest.DeleteOnce},
		},
		"gone in a watch": {
			reason: "the newcomer was not seen terminating", answer: answer("GET", `{"type":"MODIFIED","object":`+dying("u1")+"}\n"+`{"type":"DELETED","object":`+dying("u1")+"}\n"),
			lines: []string{"GET " + databases + "?watch=1", "DELETE " + orders},
		},
		"alive": {
			reason: "nothing wrong with a first delete", answer: answer("GET", alive),
			lines: []string{"GET " + orders, "DELETE " + orders},
		},
		"deleted at once": {
			reason: "the reply holds no object: a second delete is useless, not harmful", answer: answer("GET", alive),
			lines: []string{"DELETE " + orders, "DELETE " + orders},
		},
		"another incarnation": {
			reason: "the precondition names u1, and u2 is the one terminating", answer: answer("GET", dying("u2")),
			lines: []string{"GET " + orders, "DELETE " + orders},
		},
		"somebody else's name": {
			reason: "one object's end says nothing of another", answer: answer("GET", dying("u1")),
			lines: []string{"GET " + orders, "DELETE " + databases + "/invoices"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rt := reconciletest.NewLawTransport(nil, &server{answer: tc.answer})
			for _, line := range tc.lines {
				body := ""
				if strings.HasPrefix(line, "DELETE") {
					body = fencedDelete
				}
				send(t, rt, line, jsonType, body)
			}
			if diff := cmp.Diff(tc.want, broken(rt)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestLawDeleteOnceForgetsWhatIsGone(t *testing.T) {
	t.Parallel()
	replies := []struct {
		code int
		body string
	}{
		{http.StatusOK, dying("u1")},
		{http.StatusNotFound, `{"kind":"Status","status":"Failure"}`},
		{http.StatusOK, "{}"},
	}
	s := &server{answer: func(*http.Request) (int, string, string) {
		r := replies[0]
		replies = replies[1:]
		return r.code, jsonType, r.body
	}}
	rt := reconciletest.NewLawTransport(nil, s)
	send(t, rt, "GET "+orders, "", "")
	send(t, rt, "GET "+orders, "", "")
	send(t, rt, "DELETE "+orders, jsonType, fencedDelete)
	if got := broken(rt); got != nil {
		t.Errorf("the object was not found before the delete: got %v", got)
	}
}

func TestLawDeletePreconditionsYieldAfterTwoConflicts(t *testing.T) {
	t.Parallel()
	s := &server{answer: func(*http.Request) (int, string, string) {
		return http.StatusConflict, jsonType, `{"kind":"Status","status":"Failure","code":409}`
	}}
	rt := reconciletest.NewLawTransport(nil, s)
	const uidAlone = `{"propagationPolicy":"Background","preconditions":{"uid":"u1"}}`
	want := []reconciletest.Law{reconciletest.DeletePreconditions}

	send(t, rt, "DELETE "+orders, jsonType, fencedDelete)
	send(t, rt, "DELETE "+orders, jsonType, uidAlone)
	if diff := cmp.Diff(want, broken(rt)); diff != "" {
		t.Errorf("after one conflict (-want +got):\n%s", diff)
	}
	send(t, rt, "DELETE "+orders, jsonType, fencedDelete)
	send(t, rt, "DELETE "+orders, jsonType, uidAlone)
	if diff := cmp.Diff(want, broken(rt)); diff != "" {
		t.Errorf("after two conflicts the uid alone will do (-want +got):\n%s", diff)
	}
	send(t, rt, "DELETE "+orders, jsonType, strings.Replace(uidAlone, "u1", "u2", 1))
	if diff := cmp.Diff(append(want, want...), broken(rt)); diff != "" {
		t.Errorf("of another uid there was no conflict (-want +got):\n%s", diff)
	}
}

func TestLawForeignWrite(t *testing.T) {
	t.Parallel()
	rt := reconciletest.NewLawTransport(nil, &server{}, reconciletest.WithForeign(func(w reconciletest.Write) bool {
		return w.Namespace != "shop" || w.UID == "theirs"
	}))
	other := strings.Replace(orders, "shop", "kube-system", 1)
	send(t, rt, "PATCH "+orders, mergeType, `{"metadata":{"uid":"u1"}}`)
	send(t, rt, "GET "+other, "", "")
	if got := broken(rt); got != nil {
		t.Fatalf("an own object and a read: got %v", got)
	}
	send(t, rt, "PATCH "+orders, mergeType, `{"metadata":{"uid":"theirs"}}`)
	send(t, rt, "DELETE "+other, jsonType, fencedDelete)
	send(t, rt, "POST "+strings.Replace(databases, "shop", "kube-system", 1), jsonType, `{}`)
	want := []reconciletest.Law{reconciletest.ForeignWrite, reconciletest.ForeignWrite, reconciletest.ForeignWrite}
	if diff := cmp.Diff(want, broken(rt)); diff != "" {
		t.Errorf("a patch, a delete and a create of foreign objects (-want +got):\n%s", diff)
	}
}

func TestWithExempt(t *testing.T) {
	t.Parallel()
	rt := reconciletest.NewLawTransport(nil, &server{},
		reconciletest.WithExempt(schema.GroupResource{Group: "example.com", Resource: "databases"}))
	send(t, rt, "PUT "+orders, jsonType, `{}`)
	if got := broken(rt); got != nil {
		t.Errorf("exempt: got %v", got)
	}
	send(t, rt, "PUT /api/v1/namespaces/shop/configmaps/a", jsonType, `{}`)
	if got := broken(rt); len(got) != 1 {
		t.Errorf("another resource: got %v, want one violation", got)
	}
}

func TestReportIsOneSentence(t *testing.T) {
	t.Parallel()
	rec := &recorder{}
	rt := reconciletest.NewLawTransport(rec, &server{})
	send(t, rt, "PATCH "+orders+"/status", mergeType, `{}`)
	want := []string{"law 6 StatusVersion: merge patch databases.v1.example.com/status shop/orders: no resourceVersion " +
		"(the server ignores the uid on status, only resourceVersion protects a namesake and a newer verdict)"}
	if diff := cmp.Diff(want, rec.failures); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEveryLawHasANameAndAReason(t *testing.T) {
	t.Parallel()
	for l := reconciletest.DeletePolicy; l <= reconciletest.Readable; l++ {
		if strings.HasSuffix(l.String(), " ") || l.Why() == "" {
			t.Errorf("%v: no name or no reason", l)
		}
	}
}

func TestNothingIsReportedAfterTheTest(t *testing.T) {
	t.Parallel()
	rec := &recorder{}
	rt := reconciletest.NewLawTransport(rec, &server{})
	for _, f := range rec.atEnd {
		f()
	}
	send(t, rt, "PUT "+orders, jsonType, `{}`)
	if len(rec.failures) != 0 || len(rt.Violations()) != 1 {
		t.Errorf("reported %q and recorded %v, want nothing reported and one recorded", rec.failures, rt.Violations())
	}
}

func TestWrapSharesTheRecord(t *testing.T) {
	t.Parallel()
	rt := reconciletest.NewLawTransport(nil, &server{answer: func(*http.Request) (int, string, string) {
		return http.StatusOK, jsonType, dying("u1")
	}})
	other := rt.Wrap(&server{})
	send(t, rt, "GET "+orders, "", "")
	send(t, other, "DELETE "+orders, jsonType, fencedDelete)
	if diff := cmp.Diff([]reconciletest.Law{reconciletest.DeleteOnce}, broken(rt)); diff != "" {
		t.Errorf("what one client has seen binds the other (-want +got):\n%s", diff)
	}
}

func TestRepliesPassUnchanged(t *testing.T) {
	t.Parallel()
	stream := `{"type":"ADDED","object":` + dying("u1") + "}\n" + `{"type":"BOOKMARK"}` + "\nnot json\n{\"cut"
	tests := map[string]struct {
		reason, line, media, reply string
	}{
		"object":   {"read and replayed", "GET " + orders, jsonType, dying("u1")},
		"not json": {"the caller's to complain about", "GET " + orders, jsonType, "oh no"},
		"watch":    {"passed on as it comes", "GET " + databases + "?watch=true", jsonType, stream},
		"log":      {"not touched", "GET /api/v1/namespaces/shop/pods/a/log", "text/plain", "line\n"},
		"protobuf": {"not a message", "GET " + orders, "application/vnd.kubernetes.protobuf", "k8s\x00\xff\xff"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rt := reconciletest.NewLawTransport(t, &server{answer: func(*http.Request) (int, string, string) {
				return http.StatusOK, tc.media, tc.reply
			}})
			if got := send(t, rt, tc.line, "", ""); got != tc.reply {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.reply)
			}
		})
	}
}
