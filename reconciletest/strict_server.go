// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
)

// Resource is one kind that a [StrictServer] serves.
type Resource struct {
	schema.GroupVersionKind
	// Plural is the resource's name in paths.
	Plural string
	// Cluster says that the kind is cluster-scoped.
	Cluster bool
	// NoStatus says that status is a field like any other. By default it is a subresource.
	NoStatus bool
	// Schema is the OpenAPI v3 schema of the object, as in a CustomResourceDefinition, in JSON. It decides how apply
	// merges lists and whether fields exist; it does not validate values. By default conditions are a map by type,
	// maps merge by key and all other lists are one value.
	Schema []byte
}

func (r Resource) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Plural}
}

// StrictServer is an API server in memory with the rules of a real one that fake clients leave out: preconditions,
// finalizers of terminating objects, owner references, propagation policies, what names an incarnation in which kind of
// write, and field management. It is an http.RoundTripper, so that any client runs on it, under a [LawTransport] too:
//
//	config := &rest.Config{
//		Host: "https://strict", Transport: laws.Wrap(server),
//		ContentConfig: rest.ContentConfig{ContentType: "application/json"}, // protobuf is not read
//	}
//
// The rules are those of kube-apiserver 1.37; testdata/rules.txt states them as requests and replies, which both pass.
//
// Garbage is collected when the test says so, see [StrictServer.Collect], so that what happens before and after can be
// told apart. It is safe for concurrent use; requests are served one after the other.
//
// Not there: validation of values, defaults, admission, several versions of a kind, strategic merge patch (415, as for
// custom resources), subresources other than status, deletion of a namespace's content, names that must be valid, and
// who may do what. Kinds of Kubernetes itself are served by the rules for custom resources.
type StrictServer struct {
	now func() time.Time

	mu      sync.Mutex
	kinds   map[schema.GroupResource]*kindStore
	order   []*kindStore
	version int64
	made    int64 // uids given out
	changed chan struct{}
}

// kindStore holds the objects of one kind and the history of its events.
type kindStore struct {
	Resource
	objects map[objectKey]*unstructured.Unstructured
	events  []storeEvent
	fields  map[string]*managedfields.FieldManager // by subresource
}

type objectKey struct{ namespace, name string }

// storeEvent is one change; was is nil for the first of an object, is nil for the last.
type storeEvent struct {
	version int64
	was, is *unstructured.Unstructured
}

// StrictOption changes how a [StrictServer] works.
type StrictOption interface{ applyStrict(*StrictServer) }

type strictFunc func(*StrictServer)

func (f strictFunc) applyStrict(s *StrictServer) { f(s) }

// WithClock sets the clock of creation and deletion times. Default: time.Now.
func WithClock(now func() time.Time) StrictOption {
	return strictFunc(func(s *StrictServer) { s.now = now })
}

// NewStrictServer returns an empty server of the given kinds. It is an error when a kind lacks a version, a name or a
// plural, is given twice, or has a schema that cannot be read.
func NewStrictServer(resources []Resource, opts ...StrictOption) (*StrictServer, error) {
	s := &StrictServer{now: time.Now, kinds: map[schema.GroupResource]*kindStore{}, changed: make(chan struct{}), version: 100}
	for _, o := range opts {
		o.applyStrict(s)
	}
	var errs []error
	for _, r := range resources {
		fail := func(rule string) { errs = append(errs, fmt.Errorf("serve %s: %s", r.GroupVersionKind, rule)) }
		if r.Version == "" || r.Kind == "" || r.Plural == "" {
			fail("version, kind and plural must be set")
			continue
		}
		if s.kinds[r.groupResource()] != nil {
			fail("the resource is given twice")
			continue
		}
		k := &kindStore{Resource: r, objects: map[objectKey]*unstructured.Unstructured{}, fields: map[string]*managedfields.FieldManager{}}
		if err := k.manageFields(); err != nil {
			fail(err.Error())
			continue
		}
		s.kinds[r.groupResource()] = k
		s.order = append(s.order, k)
	}
	return s, errors.Join(errs...)
}

// answer is a complete reply, or a stream of events.
type answer struct {
	code   int
	body   any
	stream func(w io.Writer, done <-chan struct{})
}

// RoundTrip serves one request.
func (s *StrictServer) RoundTrip(r *http.Request) (*http.Response, error) {
	body, _, err := peek(r)
	if err != nil {
		return nil, err
	}
	a := s.serve(r, body)
	resp := &http.Response{
		StatusCode: a.code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}},
	}
	if a.stream != nil {
		pr, pw := io.Pipe()
		ctx, cancel := context.WithCancel(r.Context())
		resp.ContentLength = -1
		resp.Body = &watchStream{PipeReader: pr, cancel: cancel}
		go func() { // ends with the request, or when the client closes the body
			defer cancel()
			a.stream(pw, ctx.Done())
			_ = pw.CloseWithError(ctx.Err())
		}()
		return resp, nil
	}
	data, err := json.Marshal(a.body)
	if err != nil {
		return nil, fmt.Errorf("serve %s %s: %w", r.Method, r.URL.Path, err)
	}
	resp.ContentLength = int64(len(data))
	resp.Body = io.NopCloser(bytes.NewReader(data))
	return resp, nil
}

// watchStream ends its writer when it is closed.
type watchStream struct {
	*io.PipeReader
	cancel context.CancelFunc
}

// Close ends the stream.
func (w *watchStream) Close() error {
	w.cancel()
	return w.PipeReader.Close()
}

// serve is the router.
func (s *StrictServer) serve(r *http.Request, body []byte) answer {
	if a, ok := s.discover(r); ok {
		return a
	}
	w, ok := address(r.URL.Path)
	k := s.kinds[w.Resource.GroupResource()]
	if !ok || k == nil || k.Version != w.Resource.Version || w.Subresource != "" && (w.Subresource != "status" || k.NoStatus) {
		return failed(&apierrors.StatusError{ErrStatus: *notServed(r.URL.Path)})
	}
	w.Verb = verb(r, w)
	if w.Verb == "" {
		return s.read(r, k, w)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := request{server: s, kind: k, write: w, query: r.URL.Query(), media: mediaType(r.Header), agent: r.UserAgent(), body: body}
	obj, code, err := q.run(r)
	if err != nil {
		return failed(err)
	}
	return answer{code: code, body: obj}
}

// failed is the reply to a request that is refused.
func failed(err error) answer {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	st := known.Status()
	st.Kind, st.APIVersion = "Status", "v1"
	return answer{code: int(st.Code), body: &st}
}

// store puts an object in place of what was there, or removes it, and tells the watchers.
func (s *StrictServer) store(k *kindStore, key objectKey, is *unstructured.Unstructured) {
	s.version++
	was := k.objects[key]
	if is == nil {
		last := was.DeepCopy()
		last.SetResourceVersion(fmt.Sprint(s.version))
		k.events = append(k.events, storeEvent{version: s.version, was: last})
		delete(k.objects, key)
	} else {
		is.SetResourceVersion(fmt.Sprint(s.version))
		k.objects[key] = is
		k.events = append(k.events, storeEvent{version: s.version, was: was, is: is})
	}
	close(s.changed)
	s.changed = make(chan struct{})
}
