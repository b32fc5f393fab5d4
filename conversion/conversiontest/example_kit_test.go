// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversiontest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ashlar-go/ashlar/conversion"
	"github.com/ashlar-go/ashlar/conversion/conversiontest"
)

// printer prints what a test would report.
type printer struct{ testing.TB }

func (printer) Helper()                           {}
func (printer) Context() context.Context          { return context.Background() }
func (printer) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (printer) Fatalf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (printer) Fatal(args ...any)                 { fmt.Println(args...) }

// lamp has one field, which the two versions call differently.
const lampCRD = `{"spec":{"group":"example.com","names":{"kind":"Lamp"},"versions":[
	{"name":"v1beta1","schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"watts":{"type":"integer"}}}}}}},
	{"name":"v1","schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"power":{"type":"integer"}}}}}}}]}}`

type (
	oldLamp struct {
		Spec struct {
			Watts int64 `json:"watts,omitempty"`
		} `json:"spec,omitempty"`
	}
	newLamp struct {
		Spec struct {
			Power int64 `json:"power,omitempty"`
		} `json:"spec,omitempty"`
	}
)

func lamps() *conversion.Converter {
	b := conversion.New(schema.GroupKind{Group: "example.com", Kind: "Lamp"})
	conversion.Pair(b, "v1beta1", "v1",
		func(_ context.Context, in *oldLamp, out *newLamp) error { out.Spec.Power = in.Spec.Watts; return nil },
		func(_ context.Context, in *newLamp, out *oldLamp) error { out.Spec.Watts = in.Spec.Power; return nil })
	c, err := b.Build()
	if err != nil {
		panic(err)
	}
	return c
}

func ExampleLaws() {
	var t printer // a test's *testing.T
	conversiontest.Laws(t, lamps(), []byte(lampCRD), conversiontest.WithN(20))
	fmt.Println("every law holds")
	// Output: every law holds
}

func ExampleWalks() {
	var t printer
	steps := conversiontest.Walks(t, lamps(), []byte(lampCRD), conversiontest.WithN(2), conversiontest.WithSteps(3))
	fmt.Println(len(steps) > 0)
	// Output: true
}

// A walk on any API server; here on the one in memory.
func ExampleWalk() {
	h, _ := conversion.Handler([]*conversion.Converter{lamps()})
	server := conversiontest.NewServer(h, "example.com", "v1")
	_, err := conversiontest.Walk(context.Background(), server, lamps(), []byte(lampCRD), "v1", "lamp-1", 1, conversiontest.WithSteps(3))
	fmt.Println(err)
	// Output: <nil>
}

func lampServer() *conversiontest.Server {
	h, _ := conversion.Handler([]*conversion.Converter{lamps()})
	s := conversiontest.NewServer(h, "example.com", "v1")
	if err := s.Create(context.Background(), "v1beta1", []byte(`{"kind":"Lamp","metadata":{"name":"a"},"spec":{"watts":40}}`)); err != nil {
		panic(err)
	}
	return s
}

func ExampleServer_Create() {
	raw, version, ok := lampServer().Stored("a")
	fmt.Printf("%s %s %v\n", raw, version, ok)
	// Output: {"apiVersion":"example.com/v1","kind":"Lamp","metadata":{"name":"a","resourceVersion":"1","uid":"uid-1"},"spec":{"power":40}} v1 true
}

func ExampleServer_Get() {
	got, err := lampServer().Get(context.Background(), "v1beta1", "a")
	fmt.Printf("%s %v\n", got, err)
	// Output: {"apiVersion":"example.com/v1beta1","kind":"Lamp","metadata":{"name":"a","resourceVersion":"1","uid":"uid-1"},"spec":{"watts":40}} <nil>
}

func ExampleServer_Update() {
	ctx, s := context.Background(), lampServer()
	err := s.Update(ctx, "v1beta1", []byte(`{"kind":"Lamp","metadata":{"name":"a"},"spec":{"watts":60}}`))
	got, _ := s.Get(ctx, "v1", "a")
	fmt.Printf("%s %v\n", got, err)
	// Output: {"apiVersion":"example.com/v1","kind":"Lamp","metadata":{"name":"a","resourceVersion":"2","uid":"uid-1"},"spec":{"power":60}} <nil>
}

func ExampleServer_List() {
	list, err := lampServer().List(context.Background(), "v1")
	fmt.Println(len(list), err)
	// Output: 1 <nil>
}

func ExampleServer_Delete() {
	ctx, s := context.Background(), lampServer()
	fmt.Println(s.Delete(ctx, "v1", "a"))
	_, err := s.Get(ctx, "v1", "a")
	fmt.Println(errors.Is(err, conversiontest.ErrNotFound))
	// Output:
	// <nil>
	// true
}

// A JSON merge patch at the old version.
func ExampleServer_Patch() {
	ctx, s := context.Background(), lampServer()
	err := s.Patch(ctx, "v1beta1", "a", []byte(`{"spec":{"watts":60}}`))
	got, _ := s.Get(ctx, "v1", "a")
	fmt.Printf("%s %v\n", got, err)
	// Output: {"apiVersion":"example.com/v1","kind":"Lamp","metadata":{"name":"a","resourceVersion":"2","uid":"uid-1"},"spec":{"power":60}} <nil>
}

func ExampleServer_Watch() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := lampServer()
	next, err := s.Watch(ctx, "v1", "a")
	fmt.Println(err, s.Delete(ctx, "v1beta1", "a"))
	e, err := next()
	fmt.Println(e.Type, err)
	// Output:
	// <nil> <nil>
	// DELETED <nil>
}

func ExampleSteps_Add() {
	all := conversiontest.Steps{"patch at v1": 2}
	all.Add(conversiontest.Steps{"patch at v1": 1, "delete at v1beta1": 1})
	fmt.Println(all)
	// Output: map[delete at v1beta1:1 patch at v1:3]
}

// Who watches the steps sees what was written and what every version shows.
func ExampleWithTrace() {
	var t printer
	lines := 0
	conversiontest.Walks(t, lamps(), []byte(lampCRD), conversiontest.WithN(1), conversiontest.WithSteps(2),
		conversiontest.WithTrace(func(string) { lines++ }))
	fmt.Println(lines) // a creation and two steps at two versions
	// Output: 9
}
