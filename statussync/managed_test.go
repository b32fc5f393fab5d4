// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashlar-go/ashlar/statussync"
)

func entry(manager string, op metav1.ManagedFieldsOperationType, subresource, fields string) metav1.ManagedFieldsEntry {
	e := metav1.ManagedFieldsEntry{
		Manager: manager, Operation: op, Subresource: subresource, APIVersion: "shop.example.com/v1", FieldsType: "FieldsV1",
		Time: &metav1.Time{Time: at}, FieldsV1: &metav1.FieldsV1{},
	}
	e.FieldsV1.SetRawString(fields)
	return e
}

const legacyFields = `{"f:metadata":{"f:labels":{}},"f:status":{".":{},"f:conditions":{".":{},` +
	`"k:{\"type\":\"Ready\"}":{".":{},"f:reason":{},"f:status":{},"f:type":{}},` +
	`"k:{\"type\":\"Old\"}":{".":{},"f:status":{},"f:type":{}},` +
	`"k:{\"type\":\"Foreign\"}":{".":{},"f:status":{},"f:type":{}}},` +
	`"f:endpoint":{},"f:checkedAt":{},"f:observedGeneration":{}}}`

func TestOwners(t *testing.T) {
	t.Parallel()
	d := db(1)
	d.ManagedFields = []metav1.ManagedFieldsEntry{
		entry("legacy", "Update", "status", legacyFields),
		entry("m/main", "Apply", "status", `{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:type":{}}}}}`),
		entry("gateway", "Apply", "status", `{"f:status":{"f:parents":{"k:{\"name\":\"p\"}":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:status":{}}}}}}}`),
		entry("broken", "Apply", "status", `{"f:status":`),
		entry("odd", "Apply", "status", `{"f:status":{"f:conditions":{"k:{\"name\":\"x\"}":{},"k:[":{},"v:1":{},"i:0":{}}}}`),
		{Manager: "empty"},
	}
	const path = "status.conditions"
	want := []statussync.Owner{
		{path, "Foreign", "legacy", "Update", at, []string{"status"}},
		{path, "Old", "legacy", "Update", at, []string{"status"}},
		{path, "Ready", "legacy", "Update", at, []string{"reason", "status"}},
		{path, "Ready", "m/main", "Apply", at, nil},
		{`status.parents[{"name":"p"}].conditions`, "Ready", "gateway", "Apply", at, []string{"status"}},
	}
	if diff := cmp.Diff(want, statussync.Owners(d)); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	if got := statussync.Owners(db(1)); got != nil {
		t.Errorf("without managedFields: %v", got)
	}
	if got := statussync.Owners(nil); got != nil {
		t.Errorf("nil: %v", got)
	}
}

// Only what the writer owns moves: a migration of whole entries would make the next apply remove the rest.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	d := db(1)
	d.ManagedFields = []metav1.ManagedFieldsEntry{
		entry("kubectl", "Update", "", `{"f:spec":{"f:replicas":{}}}`),
		entry("legacy", "Update", "status", legacyFields),
		entry("legacy", "Update", "", `{"f:spec":{"f:x":{}},"f:status":{"f:replicas":{}}}`),
		entry("stranger", "Update", "status", `{"f:status":{"f:endpoint":{}}}`),
	}
	s, other := newServer(t, d)
	w := newWriter(t, s)
	obj := live(t, other)
	if len(obj.ManagedFields) != 4 {
		t.Fatalf("the fake client lost managedFields: %v", obj.ManagedFields)
	}
	var patch string
	s.before = nil
	r, err := w.TakeOver(t.Context(), obj, "legacy")
	if err != nil || r.Outcome != statussync.Written || r.Object == nil {
		t.Fatalf("TakeOver = %+v, %v", r, err)
	}
	rs := s.take()
	if verbs(rs) != "get patch-main" {
		t.Fatalf("requests = %s", verbs(rs))
	}
	patch = rs[1].Body
	var ops []struct {
		Op, Path string
		Value    json.RawMessage
	}
	if err := json.Unmarshal([]byte(patch), &ops); err != nil {
		t.Fatal(err)
	}
	if len(ops) != 3 || ops[0].Path != "/metadata/uid" || ops[1].Path != "/metadata/managedFields" || ops[2].Path != "/metadata/resourceVersion" ||
		string(ops[0].Value) != `"uid-1"` || string(ops[2].Value) != `"`+obj.ResourceVersion+`"` {
		t.Errorf("patch = %s", patch)
	}
	var entries []metav1.ManagedFieldsEntry
	if err := json.Unmarshal(ops[1].Value, &entries); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, e := range entries {
		got[e.Manager+" "+string(e.Operation)+" "+e.Subresource] = e.FieldsV1.GetRawString()
	}
	want := map[string]string{
		"kubectl Update ": `{"f:spec":{"f:replicas":{}}}`,
		"database-operator/main Apply status": `{"f:status":{"f:conditions":{` +
			`"k:{\"type\":\"Old\"}":{".":{},"f:status":{},"f:type":{}},` +
			`"k:{\"type\":\"Ready\"}":{".":{},"f:reason":{},"f:status":{},"f:type":{}}},` +
			`"f:endpoint":{},"f:observedGeneration":{},"f:replicas":{}}}`,
		"legacy Update status":   `{"f:metadata":{"f:labels":{}},"f:status":{".":{},"f:checkedAt":{},"f:conditions":{".":{},"k:{\"type\":\"Foreign\"}":{".":{},"f:status":{},"f:type":{}}}}}`,
		"legacy Update ":         `{"f:spec":{"f:x":{}}}`,
		"stranger Update status": `{"f:status":{"f:endpoint":{}}}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("managedFields (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(d.ManagedFields, obj.ManagedFields); diff != "" {
		t.Errorf("the object passed in was changed:\n%s", diff)
	}
}

func TestTakeOverOutcomes(t *testing.T) {
	t.Parallel()
	d := db(1)
	d.ManagedFields = []metav1.ManagedFieldsEntry{entry("legacy", "Update", "status", legacyFields)}
	s, other := newServer(t, d)
	w := newWriter(t, s)
	obj := live(t, other)
	if r, err := w.TakeOver(t.Context(), obj, "nobody"); err != nil || r.Outcome != statussync.NoOp || verbs(s.take()) != "get" {
		t.Errorf("nothing to move: %+v, %v", r, err)
	}
	for name, from := range map[string][]string{"nobody named": nil, "an empty name": {""}} {
		if _, err := w.TakeOver(t.Context(), obj, from...); err == nil || len(s.take()) != 0 {
			t.Errorf("%s: error = %v", name, err)
		}
	}
	other2 := *obj
	other2.UID = "uid-0"
	if r, err := w.TakeOver(t.Context(), &other2, "legacy"); err != nil || r.Outcome != statussync.Gone {
		t.Errorf("another incarnation: %+v, %v", r, err)
	}
	missing := *obj
	missing.Name = "missing"
	if r, err := w.TakeOver(t.Context(), &missing, "legacy"); err != nil || r.Outcome != statussync.Gone {
		t.Errorf("missing: %+v, %v", r, err)
	}
	s.take()
	synctest.Test(t, func(t *testing.T) {
		s.before = func(_ int, r request) error {
			if strings.HasPrefix(r.Verb, "patch") {
				return conflict()
			}
			return nil
		}
		start := time.Now()
		r, err := w.TakeOver(t.Context(), obj, "legacy")
		if err != nil || r.Outcome != statussync.Deferred || !strings.Contains(r.Why, "legacy") || r.RequeueAfter < time.Second {
			t.Errorf("contended: %+v, %v", r, err)
		}
		if got := verbs(s.take()); got != "get patch-main get patch-main get patch-main" || time.Since(start) > time.Second {
			t.Errorf("requests = %s in %s", got, time.Since(start))
		}
	})
}

// The key of a dropped condition is held by another manager as well: removed by position, under tests.
func TestDropShared(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(1))
	w := newWriter(t, s)
	applyAs(t, other, "rival", `{"endpoint":"theirs","conditions":[
		{"type":"Theirs","status":"True","reason":"R","message":"","lastTransitionTime":"2026-09-01T12:00:00Z"},
		{"type":"Net","status":"True","reason":"R","message":"","lastTransitionTime":"2026-09-01T12:00:00Z"},
		{"type":"App","status":"True","reason":"R","message":"","lastTransitionTime":"2026-09-01T12:00:00Z"}]}`)
	d := ready(1, "x")
	d.Conditions = append(d.Conditions, cond("App", "False", "Down"))
	sync_(t, w, live(t, other), d)
	s.take()
	version := live(t, other).ResourceVersion
	sync_(t, w, live(t, other), statussync.Desired[Payload]{Generation: 1, Conditions: []metav1.Condition{cond("Ready", "True", "Up")}})
	rs := s.take()
	want := `[{"op":"test","path":"/metadata/resourceVersion","value":"` + version + `"},` +
		`{"op":"test","path":"/status/conditions/3/type","value":"App"},{"op":"remove","path":"/status/conditions/3"},` +
		`{"op":"test","path":"/status/conditions/2/type","value":"Net"},{"op":"remove","path":"/status/conditions/2"}]`
	if verbs(rs) != "patch apply" || rs[0].Body != want || rs[0].Manager != "database-operator/main" {
		t.Errorf("requests = %+v\nwant %s", rs, want)
	}
	var types []string
	for _, c := range live(t, other).Status.Conditions {
		types = append(types, c.Type)
	}
	slices.Sort(types)
	if diff := cmp.Diff([]string{"Ready", "Theirs"}, types); diff != "" {
		t.Errorf("types (-want +got):\n%s", diff)
	}
	// Only the drop is left to do: one request, and it is the patch.
	applyAs(t, other, "rival", `{"conditions":[{"type":"Net","status":"True","reason":"R","message":"","lastTransitionTime":"2026-09-01T12:00:00Z"}]}`)
	s.take()
	r := sync_(t, w, live(t, other), statussync.Desired[Payload]{Generation: 1, Conditions: []metav1.Condition{cond("Ready", "True", "Up")}})
	if got := verbs(s.take()); got != "patch" || r.Object == nil {
		t.Errorf("requests = %s, %+v", got, r)
	}
}

// A test of the patch that fails is a bare 422: another version is live, which is decided on anew.
func TestDropContended(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(1))
	w := newWriter(t, s)
	applyAs(t, other, "rival", `{"conditions":[{"type":"Net","status":"True","reason":"R","message":"","lastTransitionTime":"2026-09-01T12:00:00Z"}]}`)
	obj := live(t, other)
	s.before = func(n int, r request) error {
		if r.Verb == "patch" && n == 1 {
			return bare422()
		}
		return nil
	}
	r := sync_(t, w, obj, statussync.Desired[Payload]{Generation: 1, Conditions: []metav1.Condition{cond("Ready", "True", "Up")}})
	if r.Outcome != statussync.Written || verbs(s.take()) != "patch get patch apply" {
		t.Errorf("%+v", r)
	}
	// One with causes is the server's opinion of the result, and an error.
	applyAs(t, other, "rival", `{"conditions":[{"type":"Net","status":"True","reason":"R","message":"","lastTransitionTime":"2026-09-01T12:00:00Z"}]}`)
	s.before = func(int, request) error { return stub422("status.conditions[0].status") }
	if _, err := w.Sync(t.Context(), live(t, other), statussync.Desired[Payload]{Generation: 1, Conditions: []metav1.Condition{cond("Ready", "True", "Up")}}); err == nil || !strings.Contains(err.Error(), "remove Net") {
		t.Errorf("error = %v", err)
	}
}

// The stub trap on a cache that strips managedFields: the refusal tells, once.
func TestStubTrapStripped(t *testing.T) {
	t.Parallel()
	s, other := newServer(t, db(1))
	w := newWriter(t, s)
	sync_(t, w, live(t, other), ready(1, "x"))
	obj := live(t, other)
	obj.ManagedFields = nil
	d := ready(1, "x")
	d.Conditions = d.Conditions[:1]
	s.take()
	s.before = func(n int, r request) error {
		if n == 1 {
			return stub422("status.conditions[1].status")
		}
		return nil
	}
	// After the patch nothing is left to say here, so there is no second apply.
	if r := sync_(t, w, obj, d); r.Outcome != statussync.Written || verbs(s.take()) != "apply patch" {
		t.Errorf("%+v", r)
	}
	if got := live(t, other).Status.Conditions; len(got) != 1 {
		t.Errorf("conditions = %+v", got)
	}
	// A refusal of something else is an error at once.
	s.before = nil
	sync_(t, w, live(t, other), ready(1, "x"))
	obj = live(t, other)
	obj.ManagedFields = nil
	s.take()
	s.before = func(int, request) error { return stub422("status.endpoint") }
	d.Status.Endpoint = "y"
	if _, err := w.Sync(t.Context(), obj, d); err == nil || verbs(s.take()) != "apply" {
		t.Errorf("error = %v", err)
	}
}
