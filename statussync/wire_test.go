// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	cbor "k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/ashlar-go/ashlar/statussync"
)

// The bytes of an apply are a promise: the version as precondition, nothing but what is owned, one order.
func TestWireForm(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(3, metav1.Condition{Type: "Foreign", Status: "True", Reason: "R", LastTransitionTime: metav1.NewTime(at)}))
	w := newWriter(t, s)
	n := int32(0)
	d := statussync.Desired[Payload]{
		Generation: 3,
		Conditions: []metav1.Condition{
			{Type: "Net", Status: "False", Reason: "Down", Message: "line 1\n\"<quoted>\" é", ObservedGeneration: 2},
			live(t, other).Status.Conditions[0], // foreign, as live: ignored
			{Type: "Ready", Status: "Unknown", Reason: "BlockedByNet"},
		},
		Status: Payload{Endpoint: "", Replicas: &n, Shards: []Shard{{"z", true}, {"a", false}}, Labels: map[string]string{"b": "2", "a": "1"}},
	}
	sync_(t, w, live(t, other), d)
	rs := s.take()
	const want = `{"apiVersion":"shop.example.com/v1","kind":"Database",` +
		`"metadata":{"name":"db","namespace":"shop","resourceVersion":"999"},` +
		`"status":{"conditions":[` +
		`{"type":"Ready","status":"Unknown","observedGeneration":3,"lastTransitionTime":"2026-09-01T12:00:00Z","reason":"BlockedByNet","message":""},` +
		`{"type":"Net","status":"False","observedGeneration":2,"lastTransitionTime":"2026-09-01T12:00:00Z","reason":"Down","message":"line 1\n\"\u003cquoted\u003e\" é"}],` +
		`"observedGeneration":3,"endpoint":"","replicas":0,"shards":[{"name":"z","ready":true},{"name":"a"}],"labels":{"a":"1","b":"2"}}}`
	if len(rs) != 1 || rs[0].Manager != "database-operator/main" {
		t.Fatalf("requests = %+v", rs)
	}
	if diff := cmp.Diff(want, rs[0].Body); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

// A writer that is not the Primary leaves status.observedGeneration alone; a path below status is written below it.
func TestWireFormOfASecondWriter(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(3))
	w, err := statussync.For[struct{}](newGroup(t, s), "net", &Database{}, statussync.Owns{
		Conditions: []string{"Programmed"}, Path: []string{"status", "network", "conditions"},
	})
	if err != nil {
		t.Fatal(err)
	}
	d := statussync.Desired[struct{}]{Generation: 3, Conditions: []metav1.Condition{cond("Programmed", "True", "Done")}}
	r := sync_(t, w, live(t, other), d)
	_, status, _ := strings.Cut(s.take()[0].Body, `"status":{"network"`)
	if want := `:{"conditions":[{"type":"Programmed","status":"True","observedGeneration":3,"lastTransitionTime":"2026-09-01T12:00:00Z","reason":"Done","message":""}]}}}`; status != want {
		t.Errorf("status = %s, want %s", status, want)
	}
	if got := r.Object.(*Database).Status; got.Network == nil || len(got.Network.Conditions) != 1 || got.ObservedGeneration != 0 {
		t.Errorf("stored %+v", got)
	}
	if r := sync_(t, w, live(t, other), d); r.Outcome != statussync.NoOp {
		t.Errorf("again: %+v", r)
	}
	if r := sync_(t, w, live(t, other), statussync.Desired[struct{}]{Generation: 3}); r.Outcome != statussync.Written {
		t.Errorf("drop: %+v", r)
	}
	if got := live(t, other).Status; got.Network != nil && len(got.Network.Conditions) != 0 {
		t.Errorf("after the drop: %+v", got.Network)
	}
}

// A server reads an apply as YAML: it refuses characters that JSON allows, and folds U+0085 into a space.
func TestWireFormIsYAMLToo(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(1))
	w := newWriter(t, s)
	const odd = "del \x7f c1 \u0080\u0085\u009b bom \ufeff last \ufffe\uffff lines \u2028\u2029 fine \u00a0\u00bf\ufffd\U0001f600 \t\r\n\x00\x1b \"\\"
	d := ready(1, odd)
	d.Conditions[0].Message = odd
	sent := errors.New("sent")
	s.before = func(int, request) error { return sent } // the fake client would encode it anew
	if _, err := w.Sync(t.Context(), live(t, other), d); !errors.Is(err, sent) {
		t.Fatal(err)
	}
	body := s.take()[0].Body
	if strings.ContainsFunc(body, oddInYAML) {
		t.Errorf("body = %q", body)
	}
	raw, err := yaml.ToJSON([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	got := &Database{}
	if err := json.Unmarshal(raw, got); err != nil {
		t.Fatal(err)
	}
	if got.Status.Conditions[0].Message != odd || got.Status.Endpoint != odd {
		t.Errorf("read as YAML: %q and %q", got.Status.Conditions[0].Message, got.Status.Endpoint)
	}
}

func oddInYAML(r rune) bool {
	return r < ' ' || r >= 0x7f && r <= 0x9f || r == 0xfeff || r >= 0xfffe && r <= 0xffff || r == 0x2028 || r == 0x2029
}

// Whatever order the caller has, the body is the same: the server takes another order for a change.
func TestWireFormIsCanonical(t *testing.T) {
	t.Parallel()
	a, b := cond("Ready", "True", "Up"), cond("Net", "True", "Up")
	bodies := map[string]bool{}
	for _, conds := range [][]metav1.Condition{{a, b}, {b, a}} {
		s, other := newServer(t, db(1))
		sync_(t, newWriter(t, s), live(t, other), statussync.Desired[Payload]{Generation: 1, Conditions: conds})
		bodies[s.take()[0].Body] = true
	}
	if len(bodies) != 1 {
		t.Errorf("bodies: %v", bodies)
	}
}

// controller-runtime's read-your-writes mode finds the version by reflection, after the write; with the CBOR gates of
// client-go on, the body is encoded with another encoder.
func TestDocumentForOtherReaders(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(1))
	seen := 0
	c := interceptor.NewClient(s, interceptor.Funcs{
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, ac runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			seen++
			body, err := json.Marshal(ac)
			if err != nil {
				return err
			}
			raw, err := cbor.Marshal(ac)
			if err != nil {
				return err
			}
			var fromJSON, fromCBOR any
			if err := json.Unmarshal(body, &fromJSON); err != nil {
				return err
			}
			if err := cbor.Unmarshal(raw, &fromCBOR); err != nil {
				return err
			}
			asJSON, err := json.Marshal(fromCBOR)
			if err != nil {
				return err
			}
			if err := json.Unmarshal(asJSON, &fromCBOR); err != nil {
				return err
			}
			if diff := cmp.Diff(fromJSON, fromCBOR); diff != "" {
				t.Errorf("CBOR says something else (-json +cbor):\n%s", diff)
			}
			err = c.SubResource(sub).Apply(ctx, ac, opts...)
			v := reflect.ValueOf(ac).Elem().FieldByName("ResourceVersion")
			if got := v.Elem().String(); got != live(t, other).ResourceVersion {
				t.Errorf("ResourceVersion = %s after the write", got)
			}
			return err
		},
	})
	g, err := statussync.New(c, c, "database-operator")
	if err != nil {
		t.Fatal(err)
	}
	w, err := statussync.For[Payload](g, "main", &Database{}, mainOwns)
	if err != nil {
		t.Fatal(err)
	}
	if sync_(t, w, live(t, other), ready(1, "x")); seen != 1 {
		t.Errorf("%d applies", seen)
	}
}

// client.NewNamespacedClient fills the namespace in by calling WithNamespace.
func TestNamespacedClient(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(1))
	c := client.NewNamespacedClient(s, "shop")
	g, err := statussync.New(c, c, "database-operator")
	if err != nil {
		t.Fatal(err)
	}
	w, err := statussync.For[Payload](g, "main", &Database{}, mainOwns)
	if err != nil {
		t.Fatal(err)
	}
	if r := sync_(t, w, live(t, other), ready(1, "x")); r.Outcome != statussync.Written {
		t.Errorf("%+v", r)
	}
}
