// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/reconciletest"
	"github.com/ashlar-go/ashlar/statussync"
)

var statusGroup = schema.GroupVersion{Group: "status.example.com", Version: "v1"}

// Gauge is a kind whose status these tests write.
type Gauge struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec struct {
		Size int64 `json:"size,omitempty"`
	} `json:"spec,omitempty"`
	Status GaugeStatus `json:"status,omitempty"`
}

type GaugeStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	Endpoint           string             `json:"endpoint,omitempty"`
	Level              *int64             `json:"level,omitempty"`
	Parts              []string           `json:"parts,omitempty"`
}

func (g *Gauge) DeepCopyObject() runtime.Object {
	raw, err := json.Marshal(g)
	if err != nil {
		panic(err)
	}
	n := &Gauge{}
	if err := json.Unmarshal(raw, n); err != nil {
		panic(err)
	}
	return n
}

type GaugeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Gauge `json:"items"`
}

func (l *GaugeList) DeepCopyObject() runtime.Object {
	n := &GaugeList{TypeMeta: l.TypeMeta, ListMeta: l.ListMeta}
	for i := range l.Items {
		n.Items = append(n.Items, *l.Items[i].DeepCopyObject().(*Gauge))
	}
	return n
}

// GaugePayload is what the writer of these tests owns beside conditions.
type GaugePayload struct {
	Endpoint string   `json:"endpoint"`
	Level    *int64   `json:"level,omitempty"`
	Parts    []string `json:"parts,omitempty"`
}

const gaugeSchema = `{
  "type": "object",
  "properties": {
    "spec": {"type": "object", "properties": {"size": {"type": "integer", "format": "int64"}}},
    "status": {
      "type": "object",
      "default": {"observedGeneration": -1},
      "properties": {
        "observedGeneration": {"type": "integer", "format": "int64"},
        "endpoint": {"type": "string"},
        "level": {"type": "integer", "format": "int64", "maximum": 100},
        "parts": {"type": "array", "items": {"type": "string"}},
        "conditions": {
          "type": "array",
          "x-kubernetes-list-type": "map",
          "x-kubernetes-list-map-keys": ["type"],
          "items": {
            "type": "object",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
              "type": {"type": "string", "maxLength": 316},
              "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
              "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
              "lastTransitionTime": {"type": "string", "format": "date-time"},
              "reason": {"type": "string", "minLength": 1, "maxLength": 1024, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
              "message": {"type": "string", "maxLength": 32768}
            }
          }
        }
      }
    }
  }
}`

// gaugeCRD builds the definition of a kind with that schema; change edits its version first.
func gaugeCRD(t *testing.T, kind, plural string, change func(root map[string]any)) *unstructured.Unstructured {
	t.Helper()
	var s map[string]any
	if err := json.Unmarshal([]byte(gaugeSchema), &s); err != nil {
		t.Fatal(err)
	}
	version := map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": s},
		"subresources": map[string]any{"status": map[string]any{}}}
	if change != nil {
		change(version)
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + statusGroup.Group},
		"spec": map[string]any{"group": statusGroup.Group, "scope": "Namespaced",
			"names":    map[string]any{"kind": kind, "plural": plural, "singular": strings.ToLower(kind), "listKind": kind + "List"},
			"versions": []any{version}},
	}}
	return u
}

// statusTally lists the requests of a client, patches by their type.
type statusTally struct {
	mu   sync.Mutex
	seen []string
	hook func(r *http.Request) // before it is sent
	// answer is given each request instead of the server, when it is set; send passes it on.
	answer func(r *http.Request, send func(*http.Request) (*http.Response, error)) (*http.Response, error)
}

func (c *statusTally) wrap(rt http.RoundTripper) http.RoundTripper {
	return statusTransport(func(r *http.Request) (*http.Response, error) {
		c.mu.Lock()
		verb := r.Method
		if r.Method == http.MethodPatch {
			verb = strings.TrimSuffix(strings.TrimPrefix(r.Header.Get("Content-Type"), "application/"), "+yaml")
		}
		c.seen = append(c.seen, verb)
		hook, answer := c.hook, c.answer
		c.mu.Unlock()
		if hook != nil {
			hook(r)
		}
		if answer != nil {
			return answer(r, rt.RoundTrip)
		}
		return rt.RoundTrip(r)
	})
}

func (c *statusTally) take() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := strings.Join(c.seen, " ")
	c.seen = nil
	return s
}

type statusTransport func(*http.Request) (*http.Response, error)

func (f statusTransport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// statusLab is one namespace with a writer's counted client and an uncounted one for everybody else.
type statusLab struct {
	t     *testing.T
	ns    string
	mine  client.Client
	count *statusTally
	other client.Client
}

var (
	statusCRD    sync.Once
	statusCRDErr error
)

func newStatusLab(t *testing.T) *statusLab {
	t.Helper()
	ctx := t.Context()
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(statusGroup, &Gauge{}, &GaugeList{})
	metav1.AddToGroupVersion(scheme, statusGroup)
	other, err := client.New(cluster.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	statusCRD.Do(func() {
		statusCRDErr = client.IgnoreAlreadyExists(other.Create(ctx, gaugeCRD(t, "Gauge", "gauges", nil)))
		if statusCRDErr == nil {
			statusCRDErr = statusServed(ctx, other, "Gauge")
		}
	})
	if statusCRDErr != nil {
		t.Fatal(statusCRDErr)
	}
	l := &statusLab{t: t, other: other, count: &statusTally{}}
	l.ns = namespace(ctx, t)
	cfg := rest.CopyConfig(cluster.Config())
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return l.count.wrap(reconciletest.NewLawTransport(t, rt))
	})
	if l.mine, err = client.New(cfg, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	// Discovery is not what is counted.
	if _, err := l.mine.RESTMapper().RESTMapping(statusGroup.WithKind("Gauge").GroupKind(), "v1"); err != nil {
		t.Fatal(err)
	}
	l.count.take()
	return l
}

func statusServed(ctx context.Context, c client.Client, kind string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		u := &unstructured.UnstructuredList{}
		u.SetGroupVersionKind(statusGroup.WithKind(kind + "List"))
		err := c.List(ctx, u)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (l *statusLab) group(opts ...statussync.Option) *statussync.Group {
	l.t.Helper()
	g, err := statussync.New(l.mine, l.mine, "gauge-operator", opts...)
	if err != nil {
		l.t.Fatal(err)
	}
	return g
}

func (l *statusLab) writer(owns statussync.Owns, opts ...statussync.Option) *statussync.Writer[GaugePayload] {
	l.t.Helper()
	w, err := statussync.For[GaugePayload](l.group(opts...), "main", &Gauge{}, owns)
	if err != nil {
		l.t.Fatal(err)
	}
	return w
}

func (l *statusLab) create(name string) *Gauge {
	l.t.Helper()
	g := &Gauge{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: name}}
	g.Spec.Size = 1
	if err := l.other.Create(l.t.Context(), g); err != nil {
		l.t.Fatal(err)
	}
	return g
}

func (l *statusLab) get(name string) *Gauge {
	l.t.Helper()
	g := &Gauge{}
	if err := l.other.Get(l.t.Context(), client.ObjectKey{Namespace: l.ns, Name: name}, g); err != nil {
		l.t.Fatal(err)
	}
	return g
}

// stripped is what a cache with TransformStripManagedFields holds.
func (l *statusLab) stripped(name string) *Gauge {
	g := l.get(name)
	g.ManagedFields = nil
	return g
}

// update writes conditions as another manager does, with PUT.
func (l *statusLab) update(manager, name string, change func(*Gauge)) *Gauge {
	l.t.Helper()
	g := l.get(name)
	change(g)
	if err := l.other.Status().Update(l.t.Context(), g, client.FieldOwner(manager)); err != nil {
		l.t.Fatal(err)
	}
	return g
}

func gaugeCondition(typ string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: typ, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(time.Now())}
}

func statusTypes(g *Gauge) string {
	var out []string
	for _, c := range g.Status.Conditions {
		out = append(out, c.Type)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

var gaugeOwns = statussync.Owns{Conditions: []string{"Ready", "Net", "App"}, Retired: []string{"Old"}, Primary: true}

func gaugeDesired(generation int64, conds ...metav1.Condition) statussync.Desired[GaugePayload] {
	return statussync.Desired[GaugePayload]{Generation: generation, Conditions: conds, Status: GaugePayload{Endpoint: "gauge"}}
}

func statusSync[P any](t *testing.T, w *statussync.Writer[P], obj client.Object, d statussync.Desired[P], want statussync.Outcome) statussync.Result {
	t.Helper()
	r, err := w.Sync(t.Context(), obj, d)
	if err != nil {
		t.Fatalf("Sync: %v", err)
	}
	if r.Outcome != want {
		t.Fatalf("Sync = %s (%s), want %s", r.Outcome, r.Why, want)
	}
	return r
}

func statusExpect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %q, want %q", what, got, want)
	}
}
