// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversion_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiconversion "k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ashlar-go/ashlar/conversion"
)

// The kind of the examples: v1alpha1 has replicas, v1 has a scale policy and a tier.
type (
	AlphaDB struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata,omitempty"`
		Spec              struct {
			Engine   string `json:"engine,omitempty"`
			Replicas int32  `json:"replicas,omitempty"`
		} `json:"spec"`
	}
	DB struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata,omitempty"`
		Spec              struct {
			Engine string   `json:"engine,omitempty"`
			Scale  *MinMax  `json:"scale,omitempty"`
			Tier   string   `json:"tier,omitempty"`
			Users  []DBUser `json:"users,omitempty"`
		} `json:"spec"`
	}
	MinMax struct {
		Min int32 `json:"min"`
		Max int32 `json:"max"`
	}
	DBUser struct {
		Name string `json:"name"`
	}
)

func (d *AlphaDB) DeepCopyObject() runtime.Object { c := *d; return &c }
func (d *DB) DeepCopyObject() runtime.Object      { c := *d; return &c }
func (d *DB) Hub()                                {}

// hub and convertible are what package conversion of controller-runtime calls Hub and Convertible.
type hub interface {
	runtime.Object
	Hub()
}

type convertible interface {
	runtime.Object
	ConvertTo(hub) error
	ConvertFrom(hub) error
}

func (d *AlphaDB) ConvertTo(h hub) error   { return dbUp(context.Background(), d, h.(*DB)) }
func (d *AlphaDB) ConvertFrom(h hub) error { return dbDown(context.Background(), h.(*DB), d) }

func dbUp(_ context.Context, in *AlphaDB, out *DB) error {
	if in.Spec.Replicas < 0 {
		return errors.New("replicas must not be negative")
	}
	out.Spec.Engine = in.Spec.Engine
	if n := in.Spec.Replicas; n > 0 {
		out.Spec.Scale = &MinMax{Min: n, Max: n}
	}
	return nil
}

func dbDown(_ context.Context, in *DB, out *AlphaDB) error {
	out.Spec.Engine = in.Spec.Engine
	if in.Spec.Scale != nil {
		out.Spec.Replicas = in.Spec.Scale.Min
	}
	return nil
}

func databases() schema.GroupKind {
	return schema.GroupKind{Group: "db.example.com", Kind: "DB"}
}

func mustBuild(b *conversion.Builder) *conversion.Converter {
	c, err := b.Build()
	if err != nil {
		fmt.Println(err)
	}
	return c
}

func dbConverter(opts ...conversion.Option) *conversion.Converter {
	b := conversion.New(databases(), opts...)
	conversion.Pair(b, "v1alpha1", "v1", dbUp, dbDown)
	return mustBuild(b)
}

const ordersV1 = `{"apiVersion":"db.example.com/v1","kind":"DB","metadata":{"name":"orders"},"spec":{"engine":"pg","scale":{"min":3,"max":5},"tier":"gold"}}`

// An old client reads, edits and writes. What it cannot see comes back, what it has edited stays.
func Example() {
	ctx, c := context.Background(), dbConverter()
	old, _ := c.Convert(ctx, []byte(ordersV1), "v1alpha1")
	fmt.Printf("%s\n", old)
	edited := strings.Replace(string(old), `"pg"`, `"mysql"`, 1)
	back, err := c.Convert(ctx, []byte(edited), "v1")
	fmt.Printf("%s %v\n", back, err)
	// Output:
	// {"apiVersion":"db.example.com/v1alpha1","kind":"DB","metadata":{"name":"orders","annotations":{"ashlar-go.github.io/conversion":"{\"v1\":[{\"p\":\"/spec/scale/max\",\"o\":3,\"n\":5},{\"p\":\"/spec/tier\",\"n\":\"gold\"}]}"}},"spec":{"engine":"pg","replicas":3}}
	// {"apiVersion":"db.example.com/v1","kind":"DB","metadata":{"name":"orders"},"spec":{"engine":"mysql","scale":{"min":3,"max":5},"tier":"gold"}} <nil>
}

func ExampleNew() {
	_, err := conversion.New(databases()).Build()
	fmt.Println(err)
	// Output: build conversion of DB.db.example.com: no versions: Pair, Same, FromScheme or FromConvertible is needed
}

func ExamplePair() {
	b := conversion.New(databases())
	conversion.Pair(b, "v1alpha1", "v1", dbUp, dbDown, conversion.Loses("spec.tier", "spec.scale.max"))
	fmt.Print(mustBuild(b).Explain("v1", "v1alpha1"))
	// Output:
	// DB.db.example.com from v1 to v1alpha1: 1 of 1 steps convert
	//   v1 → v1alpha1: loses spec.tier, spec.scale.max
	//   only v1 has: spec.scale, spec.tier, spec.users
	//   only v1alpha1 has: spec.replicas
	//   what v1alpha1 cannot hold is kept in ashlar-go.github.io/conversion
}

// Objects without a Go type.
func ExamplePair_unstructured() {
	b := conversion.New(databases())
	conversion.Pair(b, "v1alpha1", "v1", func(_ context.Context, in, out *unstructured.Unstructured) error {
		engine, _, err := unstructured.NestedString(in.Object, "spec", "engine")
		return errors.Join(err, unstructured.SetNestedField(out.Object, engine, "spec", "motor"))
	}, func(_ context.Context, in, out *unstructured.Unstructured) error {
		engine, _, err := unstructured.NestedString(in.Object, "spec", "motor")
		return errors.Join(err, unstructured.SetNestedField(out.Object, engine, "spec", "engine"))
	})
	out, err := mustBuild(b).Convert(context.Background(), []byte(`{"apiVersion":"db.example.com/v1alpha1","kind":"DB","metadata":{"name":"a"},"spec":{"engine":"pg"}}`), "v1")
	fmt.Printf("%s %v\n", out, err)
	// Output: {"apiVersion":"db.example.com/v1","kind":"DB","metadata":{"name":"a"},"spec":{"motor":"pg"}} <nil>
}

func ExampleLoses() {
	b := conversion.New(databases())
	conversion.Pair(b, "v1alpha1", "v1", dbUp, dbDown, conversion.Loses("spec.tier"))
	fmt.Println(strings.Contains(mustBuild(b).Explain("v1", "v1alpha1"), "loses spec.tier"))
	// Output: true
}

func ExampleDefaults() {
	b := conversion.New(databases())
	conversion.Pair(b, "v1alpha1", "v1", dbUp, dbDown, conversion.Defaults(func(obj any) {
		if db, ok := obj.(*DB); ok && db.Spec.Tier == "" {
			db.Spec.Tier = "bronze"
		}
	}))
	c := mustBuild(b)
	for _, metadata := range []string{`{"name":"a","uid":"6c1e"}`, `{"name":"a"}`} { // the second is partial
		out, _ := c.Convert(context.Background(), []byte(`{"apiVersion":"db.example.com/v1alpha1","kind":"DB","metadata":`+metadata+`,"spec":{}}`), "v1")
		fmt.Println(strings.Contains(string(out), "bronze"))
	}
	// Output:
	// true
	// false
}

func ExampleBuilder_Same() {
	b := conversion.New(databases())
	b.Same("v1beta1", "v1")
	out, err := mustBuild(b).Convert(context.Background(), []byte(ordersV1), "v1beta1")
	fmt.Println(strings.Contains(string(out), `"apiVersion":"db.example.com/v1beta1"`), err)
	// Output: true <nil>
}

func ExampleBuilder_Build() {
	b := conversion.New(databases())
	conversion.Pair(b, "v1alpha1", "v1", dbUp, dbDown)
	b.Same("v2alpha1", "v2")
	_, err := b.Build()
	fmt.Println(err)
	// Output: build conversion of DB.db.example.com: no way from v1alpha1 to v2alpha1, v1alpha1 to v2, v2alpha1 to v1alpha1, v2alpha1 to v1, v1 to v2alpha1, v1 to v2, v2 to v1alpha1, v2 to v1
}

func dbScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypeWithName(databases().WithVersion("v1alpha1"), &AlphaDB{})
	s.AddKnownTypeWithName(databases().WithVersion("v1"), &DB{})
	return s
}

func ExampleBuilder_FromScheme() {
	s := dbScheme()
	// What conversion-gen registers.
	_ = s.AddConversionFunc((*AlphaDB)(nil), (*DB)(nil), func(a, b any, _ apiconversion.Scope) error {
		return dbUp(context.Background(), a.(*AlphaDB), b.(*DB))
	})
	_ = s.AddConversionFunc((*DB)(nil), (*AlphaDB)(nil), func(a, b any, _ apiconversion.Scope) error {
		return dbDown(context.Background(), a.(*DB), b.(*AlphaDB))
	})
	b := conversion.New(databases())
	b.FromScheme(s)
	fmt.Println(mustBuild(b).Versions())
	// Output: [v1alpha1 v1]
}

func ExampleFromConvertible() {
	b := conversion.New(databases(), conversion.WithScheme(dbScheme()))
	conversion.FromConvertible[hub, convertible](b, &DB{}, &AlphaDB{})
	fmt.Println(mustBuild(b).Versions())
	// Output: [v1alpha1 v1]
}

// spoke is what controller-runtime's NewSpokeConverter returns.
type spoke struct{}

func (spoke) GetSpoke() runtime.Object { return &AlphaDB{} }
func (spoke) ConvertHubToSpoke(ctx context.Context, h *DB, s runtime.Object) error {
	return dbDown(ctx, h, s.(*AlphaDB))
}
func (spoke) ConvertSpokeToHub(ctx context.Context, s runtime.Object, h *DB) error {
	return dbUp(ctx, s.(*AlphaDB), h)
}

func ExampleFromSpokes() {
	b := conversion.New(databases(), conversion.WithScheme(dbScheme()))
	conversion.FromSpokes(b, &DB{}, spoke{})
	c := mustBuild(b)
	fmt.Println(c.Versions(), c.Hub())
	// Output: [v1alpha1 v1] v1
}

func ExampleWithScheme() {
	b := conversion.New(databases())
	conversion.FromConvertible[hub, convertible](b, &DB{}, &AlphaDB{})
	_, err := b.Build()
	fmt.Println(strings.Contains(err.Error(), "set its TypeMeta, or use WithScheme"))
	// Output: true
}

func ExampleWithListKeys() {
	c := dbConverter(conversion.WithListKeys("v1", "spec.users", "name"))
	fmt.Println(c.GroupKind())
	_, err := conversion.New(databases(), conversion.WithListKeys("v1", "spec.users")).Build()
	fmt.Println(strings.Contains(err.Error(), "version, path and keys are needed"))
	// Output:
	// DB.db.example.com
	// true
}

func ExampleWithKeys() {
	ctx := context.Background()
	signing := dbConverter(conversion.WithKeys([]byte("0123456789abcdef")))
	old, _ := signing.Convert(ctx, []byte(ordersV1), "v1alpha1")
	forged := strings.Replace(string(old), "gold", "free", 1)
	r, _ := signing.Trial(ctx, []byte(forged), "v1")
	fmt.Println(strings.Contains(string(r.Object), "tier"), r.Rejected)
	// The new key is known to all before it signs.
	rotated := dbConverter(conversion.WithKeys([]byte("fedcba9876543210"), []byte("0123456789abcdef")))
	back, _ := rotated.Convert(ctx, old, "v1")
	fmt.Println(strings.Contains(string(back), `"tier":"gold"`))
	// Output:
	// false the annotation ashlar-go.github.io/conversion was not written by this converter: its signature is of no key of the list
	// true
}

func ExampleConverter_Convert() {
	_, err := dbConverter().Convert(context.Background(), []byte(`{"apiVersion":"db.example.com/v1alpha1","kind":"DB","metadata":{"namespace":"default","name":"a"},"spec":{"replicas":"three"}}`), "v1")
	fmt.Println(err)
	// Output: convert DB default/a from v1alpha1 to v1 at spec.replicas: expected an integer, found a string
}

func ExampleConverter_Trial() {
	r, _ := dbConverter().Trial(context.Background(), []byte(ordersV1), "v1alpha1")
	for _, k := range r.Kept {
		fmt.Printf("%s: %s here, %s there\n", k.Path, k.New, k.Old)
	}
	fmt.Println(r.Bytes, "bytes")
	// Output:
	// /spec/scale/max: 5 here, 3 there
	// /spec/tier: "gold" here,  there
	// 74 bytes
}

func ExampleConverter_Into() {
	in := &AlphaDB{}
	in.Name, in.Spec.Replicas = "orders", 3
	out := &DB{}
	fmt.Println(dbConverter().Into(context.Background(), in, out))
	fmt.Println(out.APIVersion, out.Name, *out.Spec.Scale)
	// Output:
	// <nil>
	// db.example.com/v1 orders {3 3}
}

func ExampleConverter_Check() {
	err := dbConverter().Check([]byte(`{"kind":"CustomResourceDefinition","spec":{"group":"db.example.com","names":{"kind":"DB"},"versions":[{"name":"v1alpha1"},{"name":"v2","served":true}]}}`))
	fmt.Println(err)
	// Output:
	// check conversion of DB.db.example.com: spec.conversion is not by webhook: the API server changes apiVersion and nothing else
	// version v2 is in spec.versions (served: true) and in no pair; every other version needs a way to and from it
}

func ExampleConverter_Explain() {
	b := conversion.New(databases())
	conversion.Pair(b, "v1alpha1", "v1", dbUp, dbDown)
	b.Same("v1", "v2")
	fmt.Print(mustBuild(b).Explain("v1", "v2"))
	// Output: DB.db.example.com from v1 to v2: the schema is the same; apiVersion changes and nothing is decoded
}

func ExampleCompare() {
	changes, err := conversion.Compare([]byte(`{"spec":{"a":1,"b":2}}`), []byte(`{"spec":{"b":2.0,"a":1}}`))
	for _, c := range changes {
		fmt.Printf("%s: %s to %s\n", c.Path, c.Old, c.New)
	}
	fmt.Println(err)
	// Output:
	// /spec/b: 2 to 2.0
	// <nil>
}

func ExamplePrefer() {
	three, five := 3, 5
	fmt.Println(*conversion.Prefer(&five, &three, &three, &three)) // the old field was edited
	fmt.Println(*conversion.Prefer(&three, &five, &three, &three)) // the successor was
	fmt.Println(*conversion.Prefer(&five, &three, nil, nil))       // both are new: the successor wins
	// Output:
	// 5
	// 5
	// 3
}

func ExampleShadow() {
	ready := int32(3)
	var shadow *int32
	conversion.Shadow(&shadow, &ready)
	ready = 4
	fmt.Println(*shadow)
	// Output: 3
}

func ExampleOne() {
	one, err := conversion.One([]string{"a"})
	fmt.Println(*one, err)
	none, err := conversion.One[string](nil)
	fmt.Println(none, err)
	_, err = conversion.One([]string{"a", "b"})
	fmt.Println(err)
	// Output:
	// a <nil>
	// <nil> <nil>
	// a list of 2 items has no place where one is held
}

const badV1alpha1 = `{"apiVersion":"db.example.com/v1alpha1","kind":"DB","metadata":{"namespace":"default","name":"bad"},"spec":{"engine":"pg","replicas":-1}}`

// ask posts a review of one object and prints the answer.
func ask(h http.Handler, desired, object string) {
	body := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"1","desiredAPIVersion":"` + desired + `","objects":[` + object + `]}}`
	r := httptest.NewRequest(http.MethodPost, "/convert", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
}

func ExampleHandler() {
	h, err := conversion.Handler([]*conversion.Converter{dbConverter()})
	fmt.Println(err)
	ask(h, "db.example.com/v1", badV1alpha1)
	// Output:
	// <nil>
	// 200 {"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{"uid":"1","result":{"status":"Failure","message":"convert object 0, DB default/bad from v1alpha1 to v1: replicas must not be negative (the stored object is intact: repair the converter or the object, do not delete it)"},"convertedObjects":[]}}
}

func ExampleWithQuarantine() {
	h, _ := conversion.Handler([]*conversion.Converter{dbConverter()}, conversion.WithQuarantine())
	ask(h, "db.example.com/v1", badV1alpha1)
	// Output: 200 {"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{"uid":"1","result":{"status":"Success"},"convertedObjects":[{"apiVersion":"db.example.com/v1","kind":"DB","metadata":{"namespace":"default","name":"bad","annotations":{"ashlar-go.github.io/conversion":"{\"#from\":\"v1alpha1\",\"#body\":{\"spec\":{\"engine\":\"pg\",\"replicas\":-1}},\"#left\":[\"/spec/replicas\"],\"#error\":\"convert DB default/bad from v1alpha1 to v1: replicas must not be negative\"}"}},"spec":{"engine":"pg"}}]}}
}

func ExampleWithObserver() {
	h, _ := conversion.Handler([]*conversion.Converter{dbConverter()}, conversion.WithQuarantine(), conversion.WithObserver(func(e conversion.Event) {
		fmt.Println(e.Kind, e.Ref, e.From, e.To, e.Repeated)
	}))
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/convert", strings.NewReader(reviewOf("db.example.com/v1", badV1alpha1)))
		r.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	// Output:
	// Quarantined DB default/bad v1alpha1 v1 false
	// Reviewed  v1alpha1 v1 false
	// Quarantined DB default/bad v1alpha1 v1 true
	// Reviewed  v1alpha1 v1 false
}

func ExampleWithCache() {
	h, _ := conversion.Handler([]*conversion.Converter{dbConverter()}, conversion.WithCache(64<<20), conversion.WithObserver(func(e conversion.Event) {
		fmt.Println("hits", e.Hits, "of", e.Count)
	}))
	for range 2 {
		h.ServeHTTP(httptest.NewRecorder(), func() *http.Request {
			r := httptest.NewRequest(http.MethodPost, "/convert", strings.NewReader(reviewOf("db.example.com/v1alpha1", ordersV1)))
			r.Header.Set("Content-Type", "application/json")
			return r
		}())
	}
	// Output:
	// hits 0 of 1
	// hits 1 of 1
}

func ExampleWithMaxBytes() {
	h, _ := conversion.Handler([]*conversion.Converter{dbConverter()}, conversion.WithMaxBytes(100))
	ask(h, "db.example.com/v1alpha1", ordersV1)
	// Output: 413 read the body: it is longer than 100 bytes
}

func ExampleWithClock() {
	at := time.Unix(0, 0)
	h, _ := conversion.Handler([]*conversion.Converter{dbConverter()}, conversion.WithClock(func() time.Time {
		at = at.Add(time.Millisecond)
		return at
	}), conversion.WithObserver(func(e conversion.Event) { fmt.Println(e.Duration) }))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/convert", nil))
	// Output: 1ms
}

func ExampleServe() {
	h, _ := conversion.Handler([]*conversion.Converter{dbConverter()})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	stop() // at once: nothing is going on, so there is nothing to wait for
	fmt.Println(conversion.Serve(ctx, l, h, nil))
	// Output: <nil>
}

func ExampleOwners() {
	owners, err := conversion.Owners([]byte(`{"metadata":{"managedFields":[{"manager":"flux","operation":"Apply","apiVersion":"db.example.com/v1alpha1",
		"fieldsV1":{"f:metadata":{"f:annotations":{"f:ashlar-go.github.io/conversion":{}}}}}]}}`))
	fmt.Println(owners, err)
	// Output: [{flux Apply db.example.com/v1alpha1}] <nil>
}

func ExampleExport() {
	old, _ := dbConverter().Convert(context.Background(), []byte(ordersV1), "v1alpha1")
	manifest, left, err := conversion.Export(old)
	fmt.Printf("%s\n", manifest)
	fmt.Println(len(left["v1"]), "values of v1 are not in it", err)
	// Output:
	// {"apiVersion":"db.example.com/v1alpha1","kind":"DB","metadata":{"name":"orders"},"spec":{"engine":"pg","replicas":3}}
	// 2 values of v1 are not in it <nil>
}
