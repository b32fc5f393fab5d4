// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/ashlar-go/ashlar/statussync"
)

// benchWriter owns n conditions; its server answers an apply with the body it was sent and a new version.
func benchWriter(b *testing.B, n int) (*statussync.Writer[Payload], *Database, statussync.Desired[Payload]) {
	b.Helper()
	owns := statussync.Owns{Primary: true}
	d := statussync.Desired[Payload]{Generation: 3, Status: Payload{Endpoint: "db.shop"}}
	obj := db(3)
	obj.ResourceVersion = "5"
	obj.Status.ObservedGeneration, obj.Status.Endpoint = 3, "db.shop"
	for i := range n {
		typ := fmt.Sprintf("Condition%d", i)
		owns.Conditions = append(owns.Conditions, typ)
		c := metav1.Condition{Type: typ, Status: "True", Reason: "Serving", Message: "all members answer", ObservedGeneration: 3, LastTransitionTime: metav1.NewTime(at)}
		d.Conditions = append(d.Conditions, c)
		obj.Status.Conditions = append(obj.Status.Conditions, c)
	}
	s, _ := newServer(b)
	version := 5
	c := interceptor.NewClient(s, interceptor.Funcs{
		SubResourceApply: func(_ context.Context, _ client.Client, _ string, ac runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption) error {
			if _, err := json.Marshal(ac); err != nil {
				return err
			}
			version++
			reply := fmt.Appendf(nil, `{"apiVersion":"shop.example.com/v1","kind":"Database","metadata":{"namespace":"shop","name":"db","uid":"uid-1","generation":3,"resourceVersion":"%d"},"status":{"observedGeneration":3}}`, version)
			return json.Unmarshal(reply, ac)
		},
	})
	g, err := statussync.New(c, c, "database-operator", statussync.WithClock(newClock().now))
	if err != nil {
		b.Fatal(err)
	}
	w, err := statussync.For[Payload](g, "main", &Database{}, owns)
	if err != nil {
		b.Fatal(err)
	}
	return w, obj, d
}

func BenchmarkSyncNoOp(b *testing.B) {
	for _, n := range []int{5, 20, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w, obj, d := benchWriter(b, n)
			b.ReportAllocs()
			for b.Loop() {
				if r, err := w.Sync(context.Background(), obj, d); err != nil || r.Outcome != statussync.NoOp {
					b.Fatal(r, err)
				}
			}
		})
	}
}

// One condition changes; the answer is short, so that the cost is what is needed to decide, build and send.
func BenchmarkSyncChange(b *testing.B) {
	for _, n := range []int{5, 20, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w, obj, d := benchWriter(b, n)
			obj.Status.Conditions[n-1].Reason = "Starting"
			obj.ResourceVersion = "9999999999" // never older than the last write
			obj.ManagedFields = []metav1.ManagedFieldsEntry{entry("rival", "Update", "status", "{}")}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				d.Conditions[0].Reason = [2]string{"Serving", "Tuning"}[i%2] // news, or it would be a contest
				if r, err := w.Sync(context.Background(), obj, d); err != nil || r.Outcome != statussync.Written {
					b.Fatal(r, err)
				}
			}
		})
	}
}
