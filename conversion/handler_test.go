// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ashlar-go/ashlar/conversion"
	"github.com/ashlar-go/ashlar/conversion/conversiontest"
)

const webhookOK = `{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"service":{"name":"s","namespace":"n","path":"/convert"},"caBundle":"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1BPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo="}}}`

func crd(versions, conversion string) string {
	return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","spec":{"group":"example.com","names":{"kind":"Widget"},"conversion":` + conversion + `,"versions":[` + versions + `]}}`
}

func reviewOf(desired string, objects ...string) string {
	return `{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"u1","desiredAPIVersion":"` + desired +
		`","objects":[` + strings.Join(objects, ",") + `]},"response":{"uid":"","convertedObjects":null,"result":{"metadata":{}}}}`
}

func post(t testing.TB, h http.Handler, contentType, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/convert?timeout=30s", strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// What is no review is a 4xx; what is one has a well-formed answer.
func TestBadInput(t *testing.T) {
	t.Parallel()
	h := handler(t, build(t))
	good := oldWidget(`{"replicas":1}`)
	for name, tt := range map[string]struct {
		reason, contentType, body string
		code                      int
		says                      string
	}{
		"empty":            {"nothing was sent", "application/json", "", 400, "unexpected end"},
		"not JSON":         {"text", "application/json", "hello", 400, "invalid character"},
		"cut":              {"a connection broke", "application/json", reviewOf("example.com/v1", good)[:200], 400, "unexpected end"},
		"garbage after":    {"two documents", "application/json", reviewOf("example.com/v1", good) + "x", 400, "invalid character"},
		"content type":     {"a form", "application/x-www-form-urlencoded", reviewOf("example.com/v1", good), 415, "content type"},
		"no content type":  {"none", "", reviewOf("example.com/v1", good), 415, "content type"},
		"charset":          {"a parameter is fine", "application/json; charset=utf-8", reviewOf("example.com/v1", good), 200, "Success"},
		"other kind":       {"an AdmissionReview", "application/json", strings.Replace(reviewOf("example.com/v1", good), "ConversionReview", "AdmissionReview", 1), 400, "no ConversionReview"},
		"no uid":           {"the answer needs one", "application/json", strings.Replace(reviewOf("example.com/v1", good), `"uid":"u1"`, `"uid":""`, 1), 400, "no uid"},
		"no target":        {"nowhere to go", "application/json", reviewOf("", good), 400, "desiredAPIVersion"},
		"no objects":       {"nothing to do", "application/json", reviewOf("example.com/v1"), 200, `"convertedObjects":[]`},
		"object no object": {"a string among the objects", "application/json", reviewOf("example.com/v1", `"x"`), 200, "Failure"},
		"object no JSON":   {"braces that close, no JSON", "application/json", reviewOf("example.com/v1", `{"a":tru}`), 200, "Failure"},
		"other group":      {"the group cannot change", "application/json", reviewOf("other.com/v1", good), 200, "is not of group"},
		"no kind":          {"an object that says nothing", "application/json", reviewOf("example.com/v1", `{}`), 200, "apiVersion or kind is missing"},
		"metadata a list":  {"no metadata at all", "application/json", reviewOf("example.com/v1", `{"apiVersion":"example.com/v1alpha1","kind":"Widget","metadata":[]}`), 200, "metadata"},
		"name twice":       {"every reader sees another object", "application/json", reviewOf("example.com/v1", `{"apiVersion":"example.com/v1alpha1","kind":"Widget","spec":{"a":1,"a":2}}`), 200, "twice"},
		"same version":     {"back as it came", "application/json", reviewOf("example.com/v1alpha1", good), 200, good},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := post(t, h, tt.contentType, tt.body)
			if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.says) {
				t.Errorf("%s: %d %s; want %d and %q", tt.reason, w.Code, w.Body, tt.code, tt.says)
			}
			if w.Code == http.StatusOK && !json.Valid(w.Body.Bytes()) {
				t.Errorf("answer %s", w.Body)
			}
			if strings.Contains(w.Body.String(), "Failure") && !strings.Contains(w.Body.String(), `"convertedObjects":[]`) {
				t.Errorf("a failure with objects: %s", w.Body)
			}
		})
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/convert", nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != http.MethodPost {
		t.Errorf("GET: %d %v", w.Code, w.Header())
	}
}

// repeat is a body that is long and never held in memory.
type repeat struct{ left int }

func (r *repeat) Read(b []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n := min(len(b), r.left)
	for i := range n {
		b[i] = ' '
	}
	r.left -= n
	return n, nil
}

func TestBodyOf50MiB(t *testing.T) {
	t.Parallel()
	h := handler(t, build(t))
	for _, declared := range []int64{50 << 20, -1} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/convert", &repeat{50 << 20})
		r.Header.Set("Content-Type", "application/json")
		r.ContentLength = declared
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusRequestEntityTooLarge {
			t.Errorf("length %d: %d %s", declared, w.Code, w.Body)
		}
	}
}

// Both versions of the review are answered in kind.
func TestReviewVersions(t *testing.T) {
	t.Parallel()
	h := handler(t, build(t))
	body := strings.Replace(reviewOf("example.com/v1", oldWidget(`{"replicas":1}`)), "apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1", 1)
	w := post(t, h, "application/json", body)
	if !strings.Contains(w.Body.String(), `"apiVersion":"apiextensions.k8s.io/v1beta1"`) {
		t.Errorf("%s", w.Body)
	}
	if _, err := conversiontest.Validate([]byte(body), w.Body.Bytes()); err != nil {
		t.Error(err)
	}
}

// Partial objects are what server-side apply asks about.
func TestPartialObjects(t *testing.T) {
	t.Parallel()
	h := handler(t, build(t))
	for name, in := range map[string]string{
		"only status":          `{"apiVersion":"example.com/v1","kind":"Widget","status":{"phase":"x","readyReplicas":1}}`,
		"name and labels":      `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","labels":{"a":"b"}}}`,
		"no uid":               `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"tier":"x"}}`,
		"null metadata":        `{"apiVersion":"example.com/v1","kind":"Widget","metadata":null,"spec":{"tier":"x"}}`,
		"spec null":            `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":null}`,
		"status with metadata": `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"status":{}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := conversiontest.Review(t.Context(), h, "example.com/v1alpha1", []byte(in))
			if err != nil {
				t.Fatal(err)
			}
			hadName := strings.Contains(in, `"name"`)
			if stashOf(t, string(out[0])) != "" && !hadName {
				t.Errorf("an annotation without metadata: %s", out[0])
			}
			if hadName {
				back, err := conversiontest.Review(t.Context(), h, "example.com/v1", out[0])
				if err != nil {
					t.Fatal(err)
				}
				same(t, in, string(back[0]))
			}
		})
	}
}

// Many objects at once come back in order, and the first that fails is the one that is named.
func TestLargeReview(t *testing.T) {
	t.Parallel()
	h := handler(t, build(t), conversion.WithMaxBytes(64<<20))
	var objects [][]byte
	for i := range 500 {
		objects = append(objects, []byte(strings.Replace(oldWidget(fmt.Sprintf(`{"replicas":%d,"note":"%s"}`, i+1, strings.Repeat("n", 400))), `"name":"a"`, fmt.Sprintf(`"name":"w%d"`, i), 1)))
	}
	out, err := conversiontest.Review(t.Context(), h, "example.com/v1", objects...)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range out {
		if got := fmt.Sprint(at(t, string(o), "spec", "scalePolicy", "min")); got != fmt.Sprint(i+1) {
			t.Fatalf("object %d has %s", i, got)
		}
	}
	for _, i := range []int{17, 300, 499} {
		objects[i] = []byte(strings.Replace(string(objects[i]), `"replicas"`, `"endpoint":"a:b","replicas"`, 1))
	}
	for range 20 {
		if _, err = conversiontest.Review(t.Context(), h, "example.com/v1", objects...); err == nil || !strings.Contains(err.Error(), "object 17, Widget default/w17") {
			t.Fatalf("error %v", err)
		}
	}
}

// The cache answers what it was asked before, holds no more than it may, and never keeps a failure.
// An answer is written where its object was, if it fits, and must not touch its neighbours whether it fits or not.
func TestAnswersOfDifferentLengths(t *testing.T) {
	t.Parallel()
	c := build(t)
	h := handler(t, c)
	long := strings.Repeat("x", 300)
	var in []string
	for i := range 40 {
		spec := [...]string{`{"replicas":3}`, `{"replicas":3,"tier":"gold","window":"sunday"}`, `{"replicas":3,"note":"` + long + `"}`, `{}`}[i%4]
		object := newWidget(spec)
		if i%3 == 0 { // an answer has none
			object = strings.Replace(object, `"metadata":{`, `"metadata":{"managedFields":[{"manager":"`+long+`"}],`, 1)
		}
		in = append(in, object)
	}
	w := post(t, h, "application/json", reviewOf("example.com/v1alpha1", in...))
	var review struct {
		Response struct {
			ConvertedObjects []json.RawMessage `json:"convertedObjects"`
		} `json:"response"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &review); err != nil || len(review.Response.ConvertedObjects) != len(in) {
		t.Fatalf("%v: %s", err, w.Body)
	}
	longer, shorter := 0, 0
	for i, got := range review.Response.ConvertedObjects {
		want := convert(t, c, in[i], "v1alpha1")
		if got, want := at(t, string(got), "spec"), at(t, want, "spec"); !cmp.Equal(got, want) {
			t.Errorf("object %d: %s", i, cmp.Diff(want, got))
		}
		if got, want := stashOf(t, string(got)), stashOf(t, want); got != want {
			t.Errorf("object %d keeps %s, want %s", i, got, want)
		}
		if len(got) > len(in[i]) {
			longer++
		} else {
			shorter++
		}
	}
	if longer == 0 || shorter == 0 {
		t.Errorf("%d answers are longer than their objects, %d are not: there should be both", longer, shorter)
	}
}

func TestCache(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var events []conversion.Event
	calls := 0
	b := conversion.New(widgets)
	conversion.Pair(b, "v1alpha1", "v1", func(ctx context.Context, in *OldWidget, out *NewWidget) error {
		mu.Lock()
		calls++
		mu.Unlock()
		return up(ctx, in, out)
	}, down)
	c, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	const most = 20 << 10
	h := handler(t, c, conversion.WithCache(most), conversion.WithObserver(func(e conversion.Event) {
		mu.Lock()
		events = append(events, e)
		mu.Unlock()
	}))
	ask := func(i int) string {
		t.Helper()
		out, err := conversiontest.Review(t.Context(), h, "example.com/v1", []byte(oldWidget(fmt.Sprintf(`{"replicas":%d}`, i))))
		if err != nil {
			t.Fatal(err)
		}
		return string(out[0])
	}
	first := ask(1)
	if again := ask(1); again != first || calls != 1 {
		t.Errorf("%d calls, %s, then %s", calls, first, again)
	}
	if e := events[len(events)-1]; e.Kind != conversion.Reviewed || e.Hits != 1 || e.Count != 1 || e.CacheSize == 0 || e.From != "v1alpha1" || e.To != "v1" {
		t.Errorf("%+v", e)
	}
	for i := range 300 {
		ask(i + 1)
		if e := events[len(events)-1]; e.CacheSize > most {
			t.Fatalf("the cache holds %d bytes", e.CacheSize)
		}
	}
	before := calls
	if ask(1); calls != before+1 {
		t.Error("what was used least is still there")
	}
	for range 2 {
		_, err := conversiontest.Review(t.Context(), h, "example.com/v1", []byte(oldWidget(`{"endpoint":"a:b"}`)))
		if err == nil {
			t.Error("a failure is a failure every time")
		}
	}
	failed := 0
	for _, e := range events {
		if e.Kind == conversion.Failed {
			if failed++; e.Repeated != (failed > 1) {
				t.Errorf("failure %d: repeated %t", failed, e.Repeated)
			}
		}
	}
	if e := events[len(events)-1]; failed != 2 || e.Failure != conversion.MalformedFailure {
		t.Errorf("%d failures, the last event is %+v", failed, e)
	}
}

// The time an API server waits is the time a function gets.
func TestDeadline(t *testing.T) {
	t.Parallel()
	c := pair(t, func(ctx context.Context, _ *OldWidget, _ *NewWidget) error {
		<-ctx.Done()
		return ctx.Err()
	}, down)
	h := handler(t, c)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/convert?timeout=10ms", strings.NewReader(reviewOf("example.com/v1", oldWidget(`{}`))))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if !strings.Contains(w.Body.String(), context.DeadlineExceeded.Error()) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestHandlerRefuses(t *testing.T) {
	t.Parallel()
	c := build(t)
	for name, tt := range map[string]struct {
		reason string
		cs     []*conversion.Converter
		opts   []conversion.HandlerOption
	}{
		"none":  {"nothing to convert", nil, nil},
		"nil":   {"an error was ignored", []*conversion.Converter{nil}, nil},
		"twice": {"which of the two?", []*conversion.Converter{c, c}, nil},
		"max":   {"no body fits", []*conversion.Converter{c}, []conversion.HandlerOption{conversion.WithMaxBytes(0)}},
		"cache": {"nothing fits", []*conversion.Converter{c}, []conversion.HandlerOption{conversion.WithCache(-1)}},
		"clock": {"no time", []*conversion.Converter{c}, []conversion.HandlerOption{conversion.WithClock(nil)}},
	} {
		if _, err := conversion.Handler(tt.cs, tt.opts...); err == nil {
			t.Errorf("%s: %s", name, tt.reason)
		}
	}
}

// A review that has begun is answered when the process is told to stop; what comes later finds nobody.
func TestServeFinishesWhatItHasBegun(t *testing.T) {
	t.Parallel()
	begun, finish := make(chan struct{}), make(chan struct{})
	var once sync.Once
	c := pair(t, func(ctx context.Context, in *OldWidget, out *NewWidget) error {
		once.Do(func() { close(begun); <-finish })
		return up(ctx, in, out)
	}, down)
	h := handler(t, c)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- conversion.Serve(ctx, l, h, nil) }()
	url := "http://" + l.Addr().String() + "/convert"
	answer := make(chan string, 1)
	go func() {
		r, err := http.Post(url, "application/json", strings.NewReader(reviewOf("example.com/v1", oldWidget(`{"replicas":1}`))))
		if err != nil {
			answer <- err.Error()
			return
		}
		defer r.Body.Close()
		b, _ := io.ReadAll(r.Body)
		answer <- string(b)
	}()
	<-begun
	cancel()
	for { // the listener closes first
		conn, err := net.DialTimeout("tcp", l.Addr().String(), time.Second)
		if err != nil {
			break
		}
		conn.Close()
	}
	close(finish)
	if a := <-answer; !strings.Contains(a, "Success") {
		t.Errorf("the review that had begun: %s", a)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve = %v", err)
	}
	if _, err := http.Post(url, "application/json", bytes.NewReader(nil)); err == nil {
		t.Error("somebody still answers")
	}
	broken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	broken.Close()
	if err := conversion.Serve(t.Context(), broken, h, nil); err == nil || errors.Is(err, http.ErrServerClosed) {
		t.Errorf("Serve on a closed listener = %v", err)
	}
}
