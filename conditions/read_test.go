// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ashlar-go/ashlar/conditions"
)

func TestRead(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		give   string
		path   []string
		want   []metav1.Condition
	}{
		"plain": {"all six fields", `{"status":{"conditions":[{"type":"A","status":"True","reason":"R","message":"m","observedGeneration":3,"lastTransitionTime":"2026-03-01T12:00:00Z"}]}}`, nil,
			[]metav1.Condition{{Type: "A", Status: "True", Reason: "R", Message: "m", ObservedGeneration: 3, LastTransitionTime: metav1.NewTime(epoch.Local())}}},
		"another path": {"Gateway keeps a list for each parent", `{"status":{"parents":{"p":[{"type":"A","status":"False"}]}}}`, []string{"status", "parents", "p"},
			[]metav1.Condition{{Type: "A", Status: "False"}}},
		"odd values": {"a bool, a float, a text for a number, a number for a text", `{"status":{"conditions":[{"type":"A","status":true,"observedGeneration":1.5,"reason":7,"message":null,"lastTransitionTime":"yesterday"},{"type":"B","status":"Yes","observedGeneration":"4"},{"type":"C","observedGeneration":-4}]}}`, nil,
			[]metav1.Condition{{Type: "A", Status: "Unknown"}, {Type: "B", Status: "Unknown"}, {Type: "C", Status: "Unknown"}}},
		"odd items":             {"items that are no conditions", `{"status":{"conditions":[null,1,"A",[],{},{"type":1},{"type":"","status":"True"},{"type":"A","status":"True"}]}}`, nil, []metav1.Condition{{Type: "A", Status: "True"}}},
		"no list":               {"a map is no list", `{"status":{"conditions":{"type":"A"}}}`, nil, nil},
		"no status":             {"a fresh object", `{}`, nil, nil},
		"status is a text":      {"somebody else's idea of a status", `{"status":"fine"}`, nil, nil},
		"a path through a list": {"not something to fail on", `{"status":[{"conditions":[]}]}`, nil, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := &unstructured.Unstructured{}
			if err := json.Unmarshal([]byte(tc.give), &u.Object); err != nil {
				t.Fatal(err)
			}
			before := u.DeepCopy()
			if diff := cmp.Diff(tc.want, conditions.Read(u, tc.path...)); diff != "" {
				t.Error(tc.reason, diff)
			}
			if diff := cmp.Diff(before, u); diff != "" {
				t.Error("the object was changed:", diff)
			}
		})
	}
	if got := conditions.Read(nil); got != nil {
		t.Error(got)
	}
	if got := conditions.Read(&unstructured.Unstructured{}); got != nil {
		t.Error(got)
	}
}

func TestReadAcceptsEveryDecodersNumbers(t *testing.T) {
	t.Parallel()
	for _, n := range []any{int64(5), 5, 5.0, json.Number("5")} {
		u := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{
			map[string]any{"type": "A", "status": "True", "observedGeneration": n},
		}}}}
		if got := conditions.Read(u); len(got) != 1 || got[0].ObservedGeneration != 5 {
			t.Errorf("%T: %v", n, got)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"status":{"conditions":[{"type":"A","status":"True","observedGeneration":9223372036854775807,"lastTransitionTime":"2026-03-01T12:00:00Z"}]}}`))
	f.Add([]byte(`{"status":{"conditions":[{"type":"A","observedGeneration":1e300}]}}`))
	s := conditions.MustNew("Ready", conditions.Type{Name: "A"})
	f.Fuzz(func(t *testing.T, data []byte) {
		u := &unstructured.Unstructured{}
		for _, numbers := range []bool{false, true} {
			d := json.NewDecoder(bytes.NewReader(data))
			if numbers {
				d.UseNumber()
			}
			if d.Decode(&u.Object) != nil {
				return
			}
			conds := conditions.Read(u)
			for _, c := range conds {
				if c.Type == "" || c.ObservedGeneration < 0 || c.Status != "True" && c.Status != "False" && c.Status != "Unknown" {
					t.Errorf("read %v", c)
				}
			}
			// Whatever was read can be worked with.
			p := s.Begin(conds, 1, nil)
			p.Put(conditions.Mirror("A", conds, "B"))
			r, err := p.Done(time.Unix(0, 0))
			if err != nil {
				t.Error(err)
			}
			_ = s.Explain(conds)
			ours, _ := split(s, r.Conditions)
			checkLawsOf(t, s, ours)
		}
	})
}
