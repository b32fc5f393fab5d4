// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync_test

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/ashlar-go/ashlar/statussync"
)

// exampleClient is a client on an in-memory server that holds one Database. In a controller it is mgr.GetClient().
func exampleClient() client.Client {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(group.WithKind("Database"), meta.RESTScopeNamespace)
	return fake.NewClientBuilder().WithScheme(newScheme()).WithRESTMapper(mapper).
		WithObjects(db(3)).WithStatusSubresource(&Database{}).Build()
}

// exampleObject reads the Database, as Reconcile does.
func exampleObject(c client.Client) *Database {
	d := &Database{}
	if err := c.Get(context.Background(), client.ObjectKey{Namespace: "shop", Name: "db"}, d); err != nil {
		fmt.Println(err)
	}
	return d
}

// exampleWriter owns Ready and Net, the payload, and observedGeneration.
func exampleWriter(c client.Client, opts ...statussync.Option) *statussync.Writer[Payload] {
	g, err := statussync.New(c, c, "database-operator", opts...)
	if err != nil {
		fmt.Println(err)
	}
	w, err := statussync.For[Payload](g, "health", &Database{}, statussync.Owns{Conditions: []string{"Ready", "Net"}, Primary: true})
	if err != nil {
		fmt.Println(err)
	}
	return w
}

func serving() statussync.Desired[Payload] {
	return statussync.Desired[Payload]{
		Generation: 3,
		Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Serving"}},
		Status:     Payload{Endpoint: "db.shop"},
	}
}

func ExampleWriter_Sync() {
	ctx, c := context.Background(), exampleClient()
	w := exampleWriter(c)

	// In Reconcile: db as read, conditions from wherever.
	out, err := w.Sync(ctx, exampleObject(c), statussync.Desired[Payload]{
		Generation: 3,
		Conditions: []metav1.Condition{
			{Type: "Ready", Status: metav1.ConditionUnknown, Reason: "BlockedByNet"},
			{Type: "Net", Status: metav1.ConditionFalse, Reason: "NoRoute", Message: "no route to 10.0.0.1"},
		},
		Status: Payload{Endpoint: "db.shop"},
	})
	fmt.Println(out.Outcome, err)
	status := out.Object.(*Database).Status
	fmt.Println(status.ObservedGeneration, status.Endpoint, status.Conditions[0].Type, status.Conditions[0].Reason)
	// Output:
	// Written <nil>
	// 3 db.shop Ready BlockedByNet
}

// A converged object costs nothing, and a verdict of an old generation changes nothing.
func ExampleWriter_Sync_outcomes() {
	ctx, c := context.Background(), exampleClient()
	w := exampleWriter(c)
	for range 2 {
		out, _ := w.Sync(ctx, exampleObject(c), serving())
		fmt.Println(out.Outcome)
	}
	late := serving()
	late.Generation = 2
	out, _ := w.Sync(ctx, exampleObject(c), late)
	fmt.Println(out.Outcome, "-", out.Why)
	// Output:
	// Written
	// NoOp
	// Stale - this writer has written generation 3; the verdict is for 2
}

func ExampleWriter_Plan() {
	c := exampleClient()
	plan, err := exampleWriter(c).Plan(exampleObject(c), serving())
	fmt.Println(plan, err)
	// Output:
	// Database shop/db, generation 3: Written: status.observedGeneration differs
	//   observedGeneration: 0 -> 3
	//   Ready: True/Serving (new)
	//   endpoint: changed <nil>
}

func ExampleNew() {
	c := exampleClient()
	// In a controller: statussync.New(mgr.GetClient(), mgr.GetAPIReader(), "database-operator")
	_, err := statussync.New(c, c, "")
	fmt.Println(err)
	// Output:
	// make status writer group: manager "": is empty
}

// Two writers of a kind share its status, not its fields.
func ExampleFor() {
	c := exampleClient()
	g, _ := statussync.New(c, c, "database-operator")
	health, err := statussync.For[Payload](g, "health", &Database{}, statussync.Owns{Conditions: []string{"Ready"}, Primary: true})
	fmt.Println(health.Manager(), err)
	backup, err := statussync.For[struct{}](g, "backup", &Database{}, statussync.Owns{Conditions: []string{"BackedUp"}})
	fmt.Println(backup.Manager(), err)
	_, err = statussync.For[struct{}](g, "second", &Database{}, statussync.Owns{Conditions: []string{"BackedUp"}})
	fmt.Println(err)
	// Output:
	// database-operator/health <nil>
	// database-operator/backup <nil>
	// make status writer "second": writer "backup" of Database.shop.example.com owns it too: condition BackedUp
}

// A payload field whose zero value could not be written is found when the writer is made.
func ExampleFor_payload() {
	c := exampleClient()
	g, _ := statussync.New(c, c, "database-operator")
	type payload struct {
		Replicas int32 `json:"replicas,omitempty"`
	}
	_, err := statussync.For[payload](g, "health", &Database{}, statussync.Owns{})
	fmt.Println(err)
	// Output:
	// make status writer "health": payload field "replicas" of statussync_test.payload is of kind int32 with omitempty and no pointer: its zero value would be removed, not written; make it a pointer or drop omitempty
}

func ExampleWriter_Manager() {
	fmt.Println(exampleWriter(exampleClient()).Manager())
	// Output:
	// database-operator/health
}

// The controller before this one wrote its status with Update, as "manager".
func ExampleWriter_TakeOver() {
	c := exampleClient()
	out, err := exampleWriter(c).TakeOver(context.Background(), exampleObject(c), "manager")
	fmt.Println(out.Outcome, "-", out.Why, err)
	// Output:
	// NoOp - none of these managers holds what this writer owns <nil>
}

// At start-up, before the first Reconcile.
func ExampleGroup_Check() {
	// The in-memory server reviews no access; this one denies the live read.
	c := interceptor.NewClient(exampleClient().(client.WithWatch), interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, review client.Object, _ ...client.CreateOption) error {
			spec, _, _ := unstructured.NestedMap(review.(*unstructured.Unstructured).Object, "spec", "resourceAttributes")
			return unstructured.SetNestedField(review.(*unstructured.Unstructured).Object, spec["verb"] == "patch", "status", "allowed")
		},
	})
	g, _ := statussync.New(c, c, "database-operator", statussync.WithOpenAPI(
		// rc.Get().AbsPath("/openapi/v3/apis/" + gv.String()).Do(ctx).Raw()
		func(context.Context, schema.GroupVersion) ([]byte, error) { return []byte(goodSchema), nil },
	))
	if _, err := statussync.For[struct{}](g, "health", &Database{}, statussync.Owns{Conditions: []string{"Ready"}}); err != nil {
		fmt.Println(err)
	}
	fmt.Println(g.Check(context.Background()))
	// Output:
	// databases.shop.example.com: the verb get is not allowed in all namespaces; it is needed to read the object live after a conflict
}

func ExampleOwners() {
	d := db(3)
	d.ManagedFields = []metav1.ManagedFieldsEntry{
		entry("database-operator/health", "Apply", "status", `{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:reason":{},"f:status":{}}}}}`),
		entry("manager", "Update", "status", `{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:type":{}}}}}`),
	}
	for _, o := range statussync.Owners(d) {
		fmt.Println(o.Path, o.Condition, o.Manager, o.Operation, o.Since.Format(time.RFC3339), o.Fields)
	}
	// Output:
	// status.conditions Ready database-operator/health Apply 2026-09-01T12:00:00Z [reason status]
	// status.conditions Ready manager Update 2026-09-01T12:00:00Z []
}

func ExampleWithObserver() {
	c := exampleClient()
	w := exampleWriter(c, statussync.WithObserver(func(e statussync.Event) {
		fmt.Println(e.Writer, e.Name, e.Outcome, e.Requests)
	}))
	for range 2 {
		if _, err := w.Sync(context.Background(), exampleObject(c), serving()); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// database-operator/health db Written 1
	// database-operator/health db NoOp 0
}

// A message that changes with every pass is not written with every pass.
func ExampleWithMessageInterval() {
	c := exampleClient()
	now := at
	w := exampleWriter(c, statussync.WithMessageInterval(time.Minute), statussync.WithClock(func() time.Time { return now }))
	for n := range 4 {
		d := serving()
		d.Conditions[0].Message = fmt.Sprintf("answered in %d ms", n)
		out, _ := w.Sync(context.Background(), exampleObject(c), d)
		fmt.Println(out.Outcome, out.RequeueAfter)
		now = now.Add(20 * time.Second)
	}
	// Output:
	// Written 0s
	// Written 0s
	// Deferred 40s
	// Deferred 20s
}
