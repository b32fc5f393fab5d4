// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ashlar-go/ashlar/statussync"
)

// FuzzSync writes any verdict over any live status and looks at the world after it: what was desired is there and valid,
// what is foreign is as it was, observedGeneration did not go back, and a second Sync does nothing.
func FuzzSync(f *testing.F) {
	f.Add(`{"observedGeneration":2,"conditions":[{"type":"Old","status":"True","reason":"R","message":"","lastTransitionTime":"2026-09-01T00:00:00Z"},{"type":"Foreign","status":"True","reason":"R","message":"m","lastTransitionTime":null}]}`,
		int64(3), "True", "Serving", "text", "x", true)
	f.Add(`{"observedGeneration":99,"endpoint":"y","replicas":3,"labels":{"a":"b"}}`, int64(3), "False", "A:B", "\xff\xfe", "z", false)
	f.Add(`{"conditions":[{"type":"Net","observedGeneration":7}]}`, int64(1), "Unknown", "R", "é", "<&>", true)
	f.Fuzz(func(t *testing.T, status string, generation int64, state, reason, message, endpoint string, net bool) {
		obj := db(3)
		if utiljson.Unmarshal([]byte(status), &obj.Status) != nil {
			t.Skip("no status")
		}
		if !utf8.ValidString(endpoint) || endpoint == "" {
			t.Skip("the payload is the caller's, and the fake client loses zero values of Go structs")
		}
		if strings.ContainsFunc(message+endpoint+status, oddInYAML) || strings.Contains(status, `\u`) {
			t.Skip("the fake client encodes the body anew, without the escapes YAML needs")
		}
		seen := map[string]bool{}
		for _, c := range obj.Status.Conditions {
			if c.Type == "" || seen[c.Type] || !utf8.ValidString(c.Type) {
				t.Skip("the server lets no such list in")
			}
			seen[c.Type] = true
		}
		s, other := newServer(t, obj)
		w := newWriter(t, s)
		before := live(t, other)
		d := statussync.Desired[Payload]{Generation: generation, Status: Payload{Endpoint: endpoint},
			Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionStatus(state), Reason: reason, Message: message}}}
		if net {
			d.Conditions = append(d.Conditions, cond("Net", "True", "Up"))
		}
		r, err := w.Sync(t.Context(), before, d)
		after := live(t, other)
		if foreign, now := others(before), others(after); !cmp.Equal(foreign, now) {
			t.Errorf("foreign conditions changed: %s", cmp.Diff(foreign, now))
		}
		if observed := before.Status.ObservedGeneration; observed <= 3 && after.Status.ObservedGeneration < observed {
			t.Errorf("observedGeneration went back from %d to %d", observed, after.Status.ObservedGeneration)
		}
		if err != nil || r.Outcome == statussync.Stale {
			if len(s.take()) > 0 {
				t.Errorf("a refused verdict was sent: %v %+v", err, r)
			}
			return
		}
		if after.Status.ObservedGeneration != generation || after.Status.Endpoint != endpoint || after.Status.Labels != nil {
			t.Errorf("status = %+v", after.Status)
		}
		for _, c := range after.Status.Conditions {
			switch c.Type {
			case "Old", "App":
				t.Errorf("%s is still there", c.Type)
			case "Ready", "Net":
				if errs := validation.ValidateCondition(c, field.NewPath("c")); len(errs) > 0 {
					t.Errorf("%s is not valid: %v", c.Type, errs)
				}
			}
		}
		s.take()
		if r := sync_(t, w, after, d); r.Outcome != statussync.NoOp || len(s.take()) > 0 {
			t.Errorf("a second Sync: %+v", r)
		}
		if r := sync_(t, newWriter(t, s), after, d); r.Outcome != statussync.NoOp || len(s.take()) > 0 {
			t.Errorf("another process: %+v", r)
		}
	})
}

func others(d *Database) []metav1.Condition {
	var out []metav1.Condition
	for _, c := range d.Status.Conditions {
		switch c.Type {
		case "Ready", "Net", "App", "Old":
		default:
			out = append(out, c)
		}
	}
	return out
}

// FuzzUnstructured hands in anything that is JSON: no panic, and a plan or an error.
func FuzzUnstructured(f *testing.F) {
	f.Add(`{"status":{"conditions":[{"type":"Ready","status":true}],"endpoint":1}}`)
	f.Add(`{"status":[],"metadata":{"managedFields":"x","generation":"y"}}`)
	f.Add(`{"metadata":{"managedFields":[{"fieldsV1":{"f:status":{"f:conditions":{"k:{}":1}}}}]}}`)
	f.Fuzz(func(t *testing.T, raw string) {
		u := &unstructured.Unstructured{}
		if utiljson.Unmarshal([]byte(raw), &u.Object) != nil || u.Object == nil {
			t.Skip("no object")
		}
		u.Object["apiVersion"], u.Object["kind"] = group.String(), "Database"
		if _, ok := u.Object["metadata"].(map[string]any); !ok {
			u.Object["metadata"] = map[string]any{}
		}
		m := u.Object["metadata"].(map[string]any)
		m["uid"], m["resourceVersion"], m["name"] = "uid-1", "5", "db"
		s, _ := newServer(t)
		w, err := statussync.For[Payload](newGroup(t, s), "main", unstructuredKind(), mainOwns)
		if err != nil {
			t.Fatal(err)
		}
		before, err := json.Marshal(u.Object)
		if err != nil {
			t.Skip("no JSON again")
		}
		p, err := w.Plan(u, ready(max(u.GetGeneration(), 0), "x"))
		if err == nil && p.String() == "" {
			t.Error("an empty plan text")
		}
		after, err := json.Marshal(u.Object)
		if err != nil || string(before) != string(after) {
			t.Errorf("the object was changed, or %v", err)
		}
	})
}

// FuzzManagedFields decodes anything.
func FuzzManagedFields(f *testing.F) {
	f.Add(legacyFields)
	f.Add(`{"f:status":{"f:conditions":{"k:{\"type\":1}":null,"k:":{},"k:{\"type\":\"A\"}":[1]}}}`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, raw string) {
		d := db(1)
		d.ManagedFields = []metav1.ManagedFieldsEntry{entry("m", "Update", "status", raw)}
		for _, o := range statussync.Owners(d) {
			if o.Manager != "m" || o.Path == "" {
				t.Errorf("owner = %+v", o)
			}
		}
	})
}
