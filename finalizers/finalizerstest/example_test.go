// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizerstest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/ashlar-go/ashlar/finalizers"
	"github.com/ashlar-go/ashlar/finalizers/finalizerstest"
)

// printer stands for *testing.T, which an example does not have.
type printer struct {
	testing.TB
	found int
}

func (p *printer) Helper()                  {}
func (p *printer) Context() context.Context { return context.Background() }

func (p *printer) Errorf(format string, args ...any) {
	if p.found++; p.found == 1 {
		fmt.Printf(format+"\n", args...)
	}
}

// A step that takes the answer to its DELETE for granted leaks as soon as one fails.
func ExampleRun() {
	t := &printer{}
	finalizerstest.Run(t, finalizerstest.Case[owner]{
		World: func(testing.TB) client.Client { return fake.NewFakeClient() },
		Owner: object("owner"),
		New: func(c client.Client) (*finalizers.Finalizer[owner], error) {
			return finalizers.New("example.com/cleanup", []step{{Name: "remote", Do: func(ctx context.Context, _ dying) finalizers.Outcome {
				_ = c.Delete(ctx, object("remote"))
				return finalizers.Done()
			}}})
		},
		Apply: func(ctx context.Context, c client.Client, _ owner) (time.Duration, error) {
			return 0, client.IgnoreAlreadyExists(c.Create(ctx, object("remote")))
		},
		Check: func(ctx context.Context, c client.Client) error {
			if err := c.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "remote"}, object("remote")); err == nil {
				return fmt.Errorf("remote is still there")
			}
			return nil
		},
	})
	// Output:
	// the request fails at request 2, delete *v1.ConfigMap ns/remote: left behind: remote is still there
}

// The rules of the API server that the in-memory client does not keep by itself.
func ExampleStrict() {
	ctx, c := context.Background(), finalizerstest.Strict(fake.NewFakeClient())
	obj := object("owner")
	obj.Finalizers = []string{"example.com/other"}
	_ = c.Create(ctx, obj)
	_ = c.Delete(ctx, obj)
	_ = c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
	obj.Finalizers = append(obj.Finalizers, "example.com/new")
	fmt.Println(c.Update(ctx, obj) != nil)
	// Output: true
}
