// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/ashlar-go/ashlar/statussync"
)

// Database is the API type of these tests.
type Database struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   DatabaseSpec   `json:"spec,omitempty"`
	Status DatabaseStatus `json:"status,omitempty"`
}

type DatabaseSpec struct {
	Replicas int32 `json:"replicas,omitempty"`
}

type DatabaseStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`

	Endpoint  string            `json:"endpoint,omitempty"`
	Replicas  int32             `json:"replicas,omitempty"`
	Shards    []Shard           `json:"shards,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	CheckedAt *metav1.Time      `json:"checkedAt,omitempty"`
	Network   *Network          `json:"network,omitempty"`
}

type Shard struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready,omitempty"`
}

type Network struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Payload is what the main writer of these tests writes beside conditions.
type Payload struct {
	Endpoint string            `json:"endpoint"`
	Replicas *int32            `json:"replicas,omitempty"`
	Shards   []Shard           `json:"shards,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
}

func (*Database) OpenAPIModelName() string { return "test.Database" }

func (d *Database) DeepCopyObject() runtime.Object {
	raw, err := json.Marshal(d)
	if err != nil {
		panic(err)
	}
	n := &Database{}
	if err := json.Unmarshal(raw, n); err != nil {
		panic(err)
	}
	return n
}

type DatabaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Database `json:"items"`
}

func (d *DatabaseList) DeepCopyObject() runtime.Object {
	n := &DatabaseList{TypeMeta: d.TypeMeta, ListMeta: d.ListMeta}
	for i := range d.Items {
		n.Items = append(n.Items, *d.Items[i].DeepCopyObject().(*Database))
	}
	return n
}

var group = schema.GroupVersion{Group: "shop.example.com", Version: "v1"}

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(group, &Database{}, &DatabaseList{})
	metav1.AddToGroupVersion(s, group)
	return s
}

// listSchema makes the fake client merge conditions by type, as a CustomResourceDefinition does.
const listSchema typed.YAMLObject = `types:
- name: test.Database
  map:
    fields:
    - name: apiVersion
      type: {scalar: string}
    - name: kind
      type: {scalar: string}
    - name: metadata
      type: {namedType: deduced}
    - name: spec
      type: {namedType: deduced}
    - name: status
      type: {namedType: status}
- name: status
  map:
    fields:
    - name: observedGeneration
      type: {scalar: numeric}
    - name: conditions
      type: {namedType: conditions}
    - name: endpoint
      type: {scalar: string}
    - name: replicas
      type: {scalar: numeric}
    - name: checkedAt
      type: {scalar: string}
    - name: labels
      type: {map: {elementType: {scalar: string}}}
    - name: shards
      type:
        list:
          elementType: {namedType: atomic}
          elementRelationship: atomic
    - name: network
      type:
        map:
          fields:
          - name: conditions
            type: {namedType: conditions}
- name: conditions
  list:
    elementType: {namedType: condition}
    elementRelationship: associative
    keys: [type]
- name: condition
  map:
    fields:
    - name: type
      type: {scalar: string}
    - name: status
      type: {scalar: string}
    - name: reason
      type: {scalar: string}
    - name: message
      type: {scalar: string}
    - name: observedGeneration
      type: {scalar: numeric}
    - name: lastTransitionTime
      type: {scalar: string}
- name: atomic
  scalar: untyped
  list:
    elementType: {namedType: atomic}
    elementRelationship: atomic
  map:
    elementType: {namedType: atomic}
    elementRelationship: atomic
- name: deduced
  scalar: untyped
  list:
    elementType: {namedType: atomic}
    elementRelationship: atomic
  map:
    elementType: {namedType: deduced}
    elementRelationship: separable
`

// request is one call that reached the server.
type request struct {
	Verb    string // get, apply, patch, create
	Manager string
	Body    string
}

// server is a fake API server that records what it is asked and fails on demand.
type server struct {
	client.WithWatch

	mu       sync.Mutex
	requests []request
	before   func(n int, r request) error // called before the n-th request, counted from 1; an error is the answer
}

func (s *server) arrive(r request) error {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	n, f := len(s.requests), s.before
	s.mu.Unlock()
	if f != nil {
		return f(n, r)
	}
	return nil
}

// take returns the requests since the last call.
func (s *server) take() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.requests
	s.requests = nil
	return r
}

func verbs(rs []request) string {
	out := ""
	for i, r := range rs {
		if i > 0 {
			out += " "
		}
		out += r.Verb
	}
	return out
}

// newServer returns a server with the objects in it and an unrecorded client for everybody else.
func newServer(tb testing.TB, objs ...client.Object) (*server, client.WithWatch) {
	tb.Helper()
	parser, err := typed.NewParser(listSchema)
	if err != nil {
		tb.Fatal(err)
	}
	scheme := newScheme()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(group.WithKind("Database"), meta.RESTScopeNamespace)
	other := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(objs...).WithStatusSubresource(&Database{}).
		WithReturnManagedFields().WithTypeConverters(managedfields.NewSchemeTypeConverter(scheme, parser)).Build()
	s := &server{}
	s.WithWatch = interceptor.NewClient(other, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := s.arrive(request{Verb: "get"}); err != nil {
				return err
			}
			return c.Get(ctx, key, obj, opts...)
		},
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, ac runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			raw, err := json.Marshal(ac)
			if err != nil {
				return err
			}
			o := (&client.SubResourceApplyOptions{}).ApplyOpts(opts)
			if o.Force == nil || !*o.Force || sub != "status" {
				return fmt.Errorf("apply to %q without force", sub)
			}
			if err := s.arrive(request{"apply", o.FieldManager, string(raw)}); err != nil {
				return err
			}
			return c.SubResource(sub).Apply(ctx, ac, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			raw, err := patch.Data(obj)
			if err != nil {
				return err
			}
			o := (&client.PatchOptions{}).ApplyOptions(opts)
			if err := s.arrive(request{"patch-main", o.FieldManager, string(raw)}); err != nil {
				return err
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			raw, err := patch.Data(obj)
			if err != nil {
				return err
			}
			o := (&client.SubResourcePatchOptions{}).ApplyOptions(opts)
			if err := s.arrive(request{"patch", o.FieldManager, string(raw)}); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			raw, err := json.Marshal(obj)
			if err != nil {
				return err
			}
			return s.arrive(request{"create", "", string(raw)})
		},
	})
	return s, other
}

// at is the time of these tests.
var at = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

func db(generation int64, conds ...metav1.Condition) *Database {
	return &Database{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", UID: "uid-1", Generation: generation},
		Status:     DatabaseStatus{Conditions: conds},
	}
}

func cond(typ string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: typ, Status: status, Reason: reason}
}

// live returns the object as a cache would hold it.
func live(tb testing.TB, c client.Client) *Database {
	tb.Helper()
	d := &Database{}
	if err := c.Get(context.Background(), client.ObjectKey{Namespace: "shop", Name: "db"}, d); err != nil {
		tb.Fatal(err)
	}
	return d
}

func liveUnstructured(tb testing.TB, c client.Client) *unstructured.Unstructured {
	tb.Helper()
	raw, err := json.Marshal(live(tb, c))
	if err != nil {
		tb.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(raw, &u.Object); err != nil {
		tb.Fatal(err)
	}
	u.SetGroupVersionKind(group.WithKind("Database"))
	return u
}

// applyAs is another program's server-side apply of the status; the fake client keeps managedFields of these only.
func applyAs(tb testing.TB, c client.Client, manager, status string) {
	tb.Helper()
	u := unstructuredKind()
	u.SetNamespace("shop")
	u.SetName("db")
	var m map[string]any
	if err := utiljson.Unmarshal([]byte(status), &m); err != nil {
		tb.Fatal(err)
	}
	u.Object["status"] = m
	err := c.Status().Apply(context.Background(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(manager), client.ForceOwnership)
	if err != nil {
		tb.Fatal(err)
	}
}

// clock is a hand-driven clock.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: at} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

var mainOwns = statussync.Owns{Conditions: []string{"Ready", "Net", "App"}, Retired: []string{"Old"}, Primary: true}

// newWriter returns the main writer of these tests.
func newWriter(tb testing.TB, s *server, opts ...statussync.Option) *statussync.Writer[Payload] {
	tb.Helper()
	g := newGroup(tb, s, opts...)
	w, err := statussync.For[Payload](g, "main", &Database{}, mainOwns)
	if err != nil {
		tb.Fatal(err)
	}
	return w
}

func newGroup(tb testing.TB, s *server, opts ...statussync.Option) *statussync.Group {
	tb.Helper()
	g, err := statussync.New(s, s, "database-operator", append([]statussync.Option{statussync.WithClock(newClock().now)}, opts...)...)
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

func sync_[P any](tb testing.TB, w *statussync.Writer[P], obj client.Object, d statussync.Desired[P]) statussync.Result {
	tb.Helper()
	r, err := w.Sync(context.Background(), obj, d)
	if err != nil {
		tb.Fatalf("Sync: %v", err)
	}
	return r
}

func ready(generation int64, endpoint string) statussync.Desired[Payload] {
	return statussync.Desired[Payload]{
		Generation: generation,
		Conditions: []metav1.Condition{cond("Ready", "True", "Serving"), cond("Net", "True", "Up")},
		Status:     Payload{Endpoint: endpoint},
	}
}

func unstructuredKind() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(group.WithKind("Database"))
	return u
}
