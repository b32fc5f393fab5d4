// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/conversion"
	"github.com/ashlar-go/ashlar/conversion/migrate"
	"github.com/ashlar-go/ashlar/reconciletest"
)

// example is a server with three widgets on it, the CRD of which was stored at v1alpha1 once.
func example() client.Client {
	server, _ := reconciletest.NewStrictServer([]reconciletest.Resource{
		{GroupVersionKind: crdKind, Plural: "customresourcedefinitions", Cluster: true},
		{GroupVersionKind: widgetKind, Plural: "widgets"},
	})
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(crdKind, meta.RESTScopeRoot)
	mapper.Add(widgetKind, meta.RESTScopeNamespace)
	c, _ := client.New(&rest.Config{Host: "https://strict"}, client.Options{
		HTTPClient: &http.Client{Transport: server}, Scheme: runtime.NewScheme(), Mapper: mapper,
	})
	ctx := context.Background()
	crd := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": crdName},
		"spec": map[string]any{
			"group": "example.com",
			"names": map[string]any{"kind": "Widget", "plural": "widgets"},
			"versions": []any{
				map[string]any{"name": "v1alpha1", "served": false, "storage": false},
				map[string]any{"name": "v1", "served": true, "storage": true},
			},
		},
	}}
	crd.SetGroupVersionKind(crdKind)
	_ = c.Create(ctx, crd)
	_ = c.Status().Patch(ctx, crd, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"storedVersions":["v1alpha1","v1"]}}`)))
	for _, name := range []string{"a", "b", "c"} {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": int64(1), "color": "red"}}}
		o.SetGroupVersionKind(widgetKind)
		o.SetNamespace("shop")
		o.SetName(name)
		_ = c.Create(ctx, o, client.FieldOwner("kubectl"))
	}
	return c
}

func exampleConverter() *conversion.Converter {
	b := conversion.New(schema.GroupKind{Group: "example.com", Kind: "Widget"})
	conversion.Pair(b, "v1alpha1", "v1",
		func(_ context.Context, in *oldWidget, out *newWidget) error {
			out.Spec.Size = in.Spec.Width
			return nil
		},
		func(_ context.Context, in *newWidget, out *oldWidget) error {
			out.Spec.Width = in.Spec.Size
			return nil
		})
	c, _ := b.Build()
	return c
}

func Example() {
	ctx, c := context.Background(), example()
	m, err := migrate.New(c, c, "widgets.example.com", migrate.WithConverter(exampleConverter()),
		migrate.WithObserver(func(p migrate.Progress) { fmt.Println(p) }))
	if err != nil {
		fmt.Println(err)
		return
	}
	report, _ := m.Rehearse(ctx)
	fmt.Println("nothing would be lost:", report.Empty())
	done, err := m.Run(ctx, "")
	fmt.Println("complete:", done.Complete, err)
	dropped, err := m.Prune(ctx, done)
	fmt.Println("dropped:", dropped, err)
	// Output:
	// widgets.example.com: 3 objects
	// nothing would be lost: true
	// widgets.example.com: 3 objects
	// complete: true <nil>
	// dropped: [v1alpha1] <nil>
}

func ExampleNew() {
	c := example()
	_, err := migrate.New(c, c, "widgets.example.com", migrate.WithPageSize(-1))
	fmt.Println(err)
	// Output:
	// new migrator of widgets.example.com: WithPageSize(-1): at least 1
}

func ExampleMigrator_Plan() {
	c := example()
	m, _ := migrate.New(c, c, "widgets.example.com")
	plan, _ := m.Plan(context.Background(), "v1alpha1")
	fmt.Println(plan)
	// Output:
	// widgets.example.com v1alpha1: 3 objects, stored v1alpha1, v1, storage version v1
	//   status.storedVersions holds v1alpha1: objects may be stored at it; Run, then Prune
}

func ExampleMigrator_Rehearse() {
	c := example()
	m, _ := migrate.New(c, c, "widgets.example.com", migrate.WithConverter(exampleConverter()))
	report, _ := m.Rehearse(context.Background())
	fmt.Println(report)
	// Output:
	// widgets.example.com: 3 objects at v1
	//   v1alpha1 and back: 0 failed, 0 lossy, 3 need the annotation (largest 38 bytes, shop/a)
}

func ExampleMigrator_Run() {
	c := example()
	m, _ := migrate.New(c, c, "widgets.example.com")
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // the operator is told to end
	done, err := m.Run(ctx, "")
	fmt.Println(done.Complete, err != nil)
	done, err = m.Run(context.Background(), done.Resume)
	fmt.Println(done.Complete, err, done.Written)
	// Output:
	// false true
	// true <nil> 3
}

func ExampleMigrator_Prune() {
	c := example()
	m, _ := migrate.New(c, c, "widgets.example.com")
	ctx := context.Background()
	_, err := m.Prune(ctx, migrate.Result{}) // no run: nobody knows what is stored
	fmt.Println(err)
	done, _ := m.Run(ctx, "")
	fmt.Println(m.Prune(ctx, done))
	// Output:
	// prune storedVersions of widgets.example.com: not every object was migrated
	// [v1alpha1] <nil>
}
