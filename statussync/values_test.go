// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync_test

import (
	"encoding/json"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/ashlar-go/ashlar/statussync"
)

// Wide has a status field of every sort of value.
type Wide struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Status *WideStatus `json:"status,omitempty"`
}

func (*Wide) OpenAPIModelName() string { return "test.Wide" }

// Phase is a named string.
type Phase string

// WideStatus is a status; WidePayload has the same fields with other Go types where authors do that.
type WideStatus struct {
	Bool     bool                         `json:"bool"`
	Int      int64                        `json:"int,omitempty"`
	Uint     uint32                       `json:"uint,omitempty"`
	Float    float64                      `json:"float,omitempty"`
	String   string                       `json:"string,omitempty"`
	Phase    Phase                        `json:"phase,omitempty"`
	Bytes    []byte                       `json:"bytes,omitempty"`
	Time     *metav1.Time                 `json:"time,omitempty"`
	Micro    *metav1.MicroTime            `json:"micro,omitempty"`
	Quantity *resource.Quantity           `json:"quantity,omitempty"`
	Port     *intstr.IntOrString          `json:"port,omitempty"`
	Raw      *runtime.RawExtension        `json:"raw,omitempty"`
	List     []Item                       `json:"list,omitempty"`
	Pointers []*Item                      `json:"pointers,omitempty"`
	Map      map[string]Item              `json:"map,omitempty"`
	Limits   map[string]resource.Quantity `json:"limits,omitempty"`
	Labels   map[string]string            `json:"labels,omitempty"`
	Tree     *Tree                        `json:"tree,omitempty"`
	Any      *Open                        `json:"any,omitempty"`
	Quoted   int64                        `json:"quoted,string"`
	Common   `json:",inline"`
}

// Common is inlined.
type Common struct {
	Zone string `json:"zone"`
}

// Item is an item of lists and maps.
type Item struct {
	Name  string       `json:"name"`
	Count int32        `json:"count,omitempty"`
	Since *metav1.Time `json:"since,omitempty"`
}

// Tree holds itself.
type Tree struct {
	Value    int64  `json:"value"`
	Children []Tree `json:"children,omitempty"`
}

// Open holds anything.
type Open struct {
	Value any `json:"value"`
}

// WidePayload is what is written.
type WidePayload struct {
	Bool     bool                         `json:"bool"`
	Int      *int64                       `json:"int,omitempty"`
	Uint     *uint32                      `json:"uint,omitempty"`
	Float    *float64                     `json:"float,omitempty"`
	String   *string                      `json:"string,omitempty"`
	Phase    *string                      `json:"phase,omitempty"`
	Bytes    []byte                       `json:"bytes,omitempty"`
	Time     *metav1.Time                 `json:"time,omitempty"`
	Micro    *metav1.MicroTime            `json:"micro,omitempty"`
	Quantity *resource.Quantity           `json:"quantity,omitempty"`
	Port     *intstr.IntOrString          `json:"port,omitempty"`
	Raw      *runtime.RawExtension        `json:"raw,omitempty"`
	List     []Item                       `json:"list,omitempty"`
	Pointers []Item                       `json:"pointers,omitempty"`
	Map      map[string]Item              `json:"map,omitempty"`
	Limits   map[string]resource.Quantity `json:"limits,omitempty"`
	Labels   map[string]string            `json:"labels,omitempty"`
	Tree     *Tree                        `json:"tree,omitempty"`
	Any      *Open                        `json:"any,omitempty"`
	Quoted   int64                        `json:"quoted,string"`
	Common   `json:",inline"`
}

func (w *Wide) DeepCopyObject() runtime.Object {
	raw, err := json.Marshal(w)
	if err != nil {
		panic(err)
	}
	n := &Wide{}
	if err := utiljson.Unmarshal(raw, n); err != nil {
		panic(err)
	}
	return n
}

func full() WidePayload {
	i, u, f, s, p := int64(-7), uint32(8), 1.5, "text", "Ready"
	t, m := metav1.NewTime(at), metav1.NewMicroTime(at.Add(1234*time.Microsecond))
	q, port := resource.MustParse("1500m"), intstr.FromString("http")
	return WidePayload{
		Bool: true, Int: &i, Uint: &u, Float: &f, String: &s, Phase: &p, Bytes: []byte("bytes"), Time: &t, Micro: &m,
		Quantity: &q, Port: &port, Raw: &runtime.RawExtension{Raw: []byte(`{"b":[1,2],"a":{"x":null}}`)},
		List: []Item{{"a", 0, nil}, {"b", 2, &t}}, Pointers: []Item{{"p", 1, nil}},
		Map:    map[string]Item{"k": {"v", 1, &t}, "l": {"w", 0, nil}},
		Limits: map[string]resource.Quantity{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi")},
		Labels: map[string]string{"a": "1"}, Tree: &Tree{1, []Tree{{2, nil}, {3, []Tree{{4, nil}}}}},
		Any: &Open{map[string]any{"n": int64(1), "s": []any{"x", true}}}, Quoted: 9, Common: Common{Zone: "z"},
	}
}

// A value that was written is recognised, and each change of it is seen, in typed and in unstructured caches.
func TestPayloadValues(t *testing.T) {
	t.Parallel()
	changes := map[string]func(*WidePayload){
		"bool":              func(p *WidePayload) { p.Bool = false },
		"int":               func(p *WidePayload) { n := int64(-8); p.Int = &n },
		"uint":              func(p *WidePayload) { n := uint32(9); p.Uint = &n },
		"float":             func(p *WidePayload) { n := 1.25; p.Float = &n },
		"string":            func(p *WidePayload) { s := "other"; p.String = &s },
		"string dropped":    func(p *WidePayload) { p.String = nil },
		"named string":      func(p *WidePayload) { s := "Failed"; p.Phase = &s },
		"bytes":             func(p *WidePayload) { p.Bytes = []byte("bytez") },
		"time":              func(p *WidePayload) { n := metav1.NewTime(at.Add(time.Second)); p.Time = &n },
		"time dropped":      func(p *WidePayload) { p.Time = nil },
		"micro":             func(p *WidePayload) { n := metav1.NewMicroTime(at.Add(1235 * time.Microsecond)); p.Micro = &n },
		"quantity":          func(p *WidePayload) { q := resource.MustParse("1501m"); p.Quantity = &q },
		"port":              func(p *WidePayload) { n := intstr.FromInt32(80); p.Port = &n },
		"raw":               func(p *WidePayload) { p.Raw = &runtime.RawExtension{Raw: []byte(`{"b":[2,1],"a":{"x":null}}`)} },
		"list item":         func(p *WidePayload) { p.List[1].Count = 3 },
		"list order":        func(p *WidePayload) { p.List[0], p.List[1] = p.List[1], p.List[0] },
		"list shorter":      func(p *WidePayload) { p.List = p.List[:1] },
		"list dropped":      func(p *WidePayload) { p.List = nil },
		"item's time":       func(p *WidePayload) { p.List[1].Since = nil },
		"list of pointers":  func(p *WidePayload) { p.Pointers[0].Name = "q" },
		"map value":         func(p *WidePayload) { p.Map["k"] = Item{"v", 2, nil} },
		"map key":           func(p *WidePayload) { p.Map["m"] = Item{"v", 2, nil} },
		"map of quantities": func(p *WidePayload) { p.Limits["cpu"] = resource.MustParse("3") },
		"labels":            func(p *WidePayload) { p.Labels["a"] = "2" },
		"labels dropped":    func(p *WidePayload) { p.Labels = nil },
		"deep in a tree":    func(p *WidePayload) { p.Tree.Children[1].Children[0].Value = 5 },
		"anything":          func(p *WidePayload) { p.Any.Value.(map[string]any)["s"] = []any{"x", false} },
		"quoted":            func(p *WidePayload) { p.Quoted = 10 },
		"inlined":           func(p *WidePayload) { p.Zone = "y" },
	}
	same := map[string]func(*WidePayload){
		"time in another zone":       func(p *WidePayload) { n := metav1.NewTime(at.In(time.FixedZone("x", 3600))); p.Time = &n },
		"time below a second":        func(p *WidePayload) { n := metav1.NewTime(at.Add(300 * time.Millisecond)); p.Time = &n },
		"quantity in another form":   func(p *WidePayload) { q := resource.MustParse("1.5"); p.Quantity = &q },
		"raw in another order":       func(p *WidePayload) { p.Raw = &runtime.RawExtension{Raw: []byte(`{ "a": {"x": null}, "b": [1, 2] }`)} },
		"nothing":                    func(*WidePayload) {},
		"map of quantities reformed": func(p *WidePayload) { p.Limits["memory"] = resource.MustParse("1024Mi") },
	}
	check := func(t *testing.T, name string, change func(*WidePayload), loose, differs bool) {
		t.Helper()
		p := full()
		raw, err := json.Marshal(struct {
			Status WidePayload `json:"status"`
		}{p})
		if err != nil {
			t.Fatal(err)
		}
		var obj client.Object = &Wide{}
		if loose {
			u := &unstructured.Unstructured{Object: map[string]any{}}
			if err := utiljson.Unmarshal(raw, &u.Object); err != nil {
				t.Fatal(err)
			}
			u.SetGroupVersionKind(group.WithKind("Wide"))
			obj = u
		} else if err := utiljson.Unmarshal(raw, obj); err != nil {
			t.Fatal(err)
		}
		obj.SetName("w")
		obj.SetUID("u")
		obj.SetResourceVersion("5")
		kind := client.Object(&Wide{})
		if loose {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(group.WithKind("Wide"))
			kind = u
		}
		scheme := runtime.NewScheme()
		scheme.AddKnownTypes(group, &Wide{})
		c := fake.NewClientBuilder().WithScheme(scheme).Build()
		g, err := statussync.New(c, c, "m")
		if err != nil {
			t.Fatal(err)
		}
		w, err := statussync.For[WidePayload](g, "w", kind, statussync.Owns{})
		if err != nil {
			t.Fatal(err)
		}
		change(&p)
		plan, err := w.Plan(obj, statussync.Desired[WidePayload]{Status: p})
		if err != nil {
			t.Fatal(err)
		}
		if plan.Empty() == differs {
			t.Errorf("%s (unstructured: %v): plan is %s", name, loose, plan)
		}
		if differs && len(plan.Changes) != 1 {
			t.Errorf("%s (unstructured: %v): %d changes: %v", name, loose, len(plan.Changes), plan.Changes)
		}
	}
	for _, loose := range []bool{false, true} {
		for name, change := range changes {
			check(t, name, change, loose, true)
		}
		for name, change := range same {
			check(t, name, change, loose, false)
		}
	}
}

// A pointer status that is nil, and odd unstructured content, count as absent.
func TestPayloadOnAnEmptyStatus(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(group, &Wide{})
	c := fake.NewClientBuilder().WithScheme(scheme).Build()
	g, err := statussync.New(c, c, "m")
	if err != nil {
		t.Fatal(err)
	}
	w, err := statussync.For[WidePayload](g, "w", &Wide{}, statussync.Owns{})
	if err != nil {
		t.Fatal(err)
	}
	obj := &Wide{ObjectMeta: metav1.ObjectMeta{Name: "w", UID: "u", ResourceVersion: "5"}}
	plan, err := w.Plan(obj, statussync.Desired[WidePayload]{Status: full()})
	if err != nil || plan.Outcome != statussync.Written || len(plan.Changes) != 21 {
		t.Errorf("plan = %s, %v", plan, err)
	}
}

// A third party's object holds anything. Nothing panics and what cannot be read is written anew.
func TestFluxPkg1187OddUnstructuredContent(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t)
	w, err := statussync.For[Payload](newGroup(t, s), "main", unstructuredKind(), mainOwns)
	if err != nil {
		t.Fatal(err)
	}
	for name, status := range map[string]any{
		"no status":              nil,
		"status is a string":     "x",
		"status is a list":       []any{"x"},
		"conditions are a map":   map[string]any{"conditions": map[string]any{"a": "b"}},
		"conditions are text":    map[string]any{"conditions": "x", "observedGeneration": "3"},
		"items are no maps":      map[string]any{"conditions": []any{"x", nil, int64(1), []any{}}},
		"fields of other kinds":  map[string]any{"conditions": []any{map[string]any{"type": int64(1)}, map[string]any{"type": "Ready", "status": true, "reason": nil, "lastTransitionTime": "yesterday", "observedGeneration": "x"}}},
		"observed is a float":    map[string]any{"observedGeneration": 1.0},
		"payload of other kinds": map[string]any{"endpoint": int64(1), "replicas": "1", "shards": "x", "labels": []any{}},
	} {
		u := unstructuredKind()
		u.SetName("db")
		u.SetUID("uid-1")
		u.SetResourceVersion("5")
		u.SetGeneration(3)
		if status != nil {
			u.Object["status"] = status
		}
		plan, err := w.Plan(u, ready(3, "x"))
		if err != nil || plan.Outcome != statussync.Written {
			t.Errorf("%s: %s, %v", name, plan, err)
		}
	}
}
