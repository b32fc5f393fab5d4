// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync_test

import (
	"math/rand"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// tape turns bytes into values as they stand in unstructured objects. It reads zeros when it is used up.
type tape []byte

func (t *tape) below(n int) int {
	if len(*t) == 0 {
		return 0
	}
	b := (*t)[0]
	*t = (*t)[1:]
	return int(b) % n
}

func (t *tape) name() string {
	names := []string{"conditions", "type", "status", "reason", "message", "observedGeneration", "lastTransitionTime", "endpoint",
		"replicas", "shards", "labels", "name", "ready", "network"}
	return names[t.below(len(names))]
}

func (t *tape) value(depth int) any {
	plain := []any{nil, true, int64(3), int64(-1), 1.5, 3.0, "", "Ready", "Net", "Old", "True", "Maybe", "Up", "2026-09-01T12:00:00Z",
		"yesterday", "\xff", "x"}
	switch n := t.below(len(plain) + 3*depth); {
	case n < len(plain):
		return plain[n]
	case n%3 == 0:
		list := []any{}
		for range t.below(4) {
			list = append(list, t.value(depth-1))
		}
		return list
	case n%3 == 1:
		return t.object(depth)
	}
	return t.condition()
}

func (t *tape) condition() map[string]any {
	return map[string]any{"type": t.value(0), "status": t.value(0), "reason": t.value(0), "message": t.value(0),
		"observedGeneration": t.value(0), "lastTransitionTime": t.value(0)}
}

func (t *tape) object(depth int) map[string]any {
	m := map[string]any{}
	for range t.below(6) {
		m[t.name()] = t.value(depth - 1)
	}
	return m
}

// FuzzUnstructured hands in whatever an unstructured object can hold: no panic, a plan or an error, and the object as it
// was.
func FuzzUnstructured(f *testing.F) {
	for seed := range 24 {
		data := make([]byte, 20*seed)
		rand.New(rand.NewSource(int64(seed))).Read(data)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := tape(data)
		u := unstructuredKind()
		status := in.object(4)
		var list []any
		for range in.below(5) {
			list = append(list, in.condition())
		}
		if list != nil {
			status["conditions"] = append(list, in.value(2))
		}
		u.Object["status"] = status
		if in.below(8) == 7 {
			u.Object["status"] = in.value(2)
		}
		u.Object["metadata"] = map[string]any{"uid": "uid-1", "resourceVersion": "5", "name": "db", "generation": int64(in.below(4)),
			"managedFields": in.value(3)}
		s, _ := newServer(t)
		w, err := statussync.For[Payload](newGroup(t, s), "main", unstructuredKind(), mainOwns)
		if err != nil {
			t.Fatal(err)
		}
		before := u.DeepCopy()
		p, err := w.Plan(u, ready(u.GetGeneration(), "x"))
		if err == nil && p.String() == "" {
			t.Error("an empty plan text")
		}
		statussync.Owners(u)
		if diff := cmp.Diff(before, u); diff != "" {
			t.Errorf("the object was changed: %s", diff)
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
