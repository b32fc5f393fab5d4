// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conversiontest_test

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ashlar-go/ashlar/conversion"
	"github.com/ashlar-go/ashlar/conversion/conversiontest"
)

func handler() http.Handler {
	b := conversion.New(schema.GroupKind{Group: "example.com", Kind: "Thing"})
	b.Same("v1beta1", "v1")
	c, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return nil
	}
	h, err := conversion.Handler([]*conversion.Converter{c})
	if err != nil {
		fmt.Println(err)
	}
	return h
}

func ExampleReview() {
	out, err := conversiontest.Review(context.Background(), handler(), "example.com/v1", []byte(`{"apiVersion":"example.com/v1beta1","kind":"Thing","metadata":{"name":"a"},"spec":{"x":0}}`))
	fmt.Printf("%s %v\n", out[0], err)
	// Output: {"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a"},"spec":{"x":0}} <nil>
}

func ExampleValidate() {
	request := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"1","desiredAPIVersion":"example.com/v1","objects":[{"apiVersion":"example.com/v1beta1","kind":"Thing","metadata":{"name":"a"}}]}}`
	_, err := conversiontest.Validate([]byte(request), []byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{"uid":"1","result":{"status":"Success"},"convertedObjects":[{"apiVersion":"example.com/v1","kind":"Thing"}]}}`))
	fmt.Println(err)
	// Output: invalid object at index 0: must have the same name: a !=
}

func ExampleServer() {
	ctx := context.Background()
	s := conversiontest.NewServer(handler(), "example.com", "v1beta1")
	fmt.Println(s.Create(ctx, "v1", []byte(`{"kind":"Thing","metadata":{"name":"a"}}`)))
	_, version, _ := s.Stored("a")
	got, err := s.Get(ctx, "v1", "a")
	fmt.Printf("stored as %s, after %d reviews %s %v\n", version, s.Reviews(), got, err)
	// Output:
	// <nil>
	// stored as v1beta1, after 2 reviews {"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a","resourceVersion":"1","uid":"uid-1"}} <nil>
}
