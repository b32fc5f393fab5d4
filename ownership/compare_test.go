// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/ownership"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apijson "k8s.io/apimachinery/pkg/util/json"
)

func tree(t *testing.T, s string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := apijson.Unmarshal([]byte(s), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestComparison(t *testing.T) {
	t.Parallel()
	widget := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	policy := schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}
	tests := map[string]struct {
		reason         string
		kind           schema.GroupVersionKind
		declared, live string
		fields         string // managedFields of ours, "" = stripped
		want           string // "" = Keep
	}{
		"equal":                {"nothing to do", widget, `{"a":1}`, `{"a":1}`, "", ""},
		"undeclared":           {"others' fields never count", widget, `{"a":1}`, `{"a":1,"b":2}`, "", ""},
		"scalar":               {"the path is named", widget, `{"a":{"b":1}}`, `{"a":{"b":2}}`, "", ".spec.a.b differs"},
		"missing":              {"the path is named", widget, `{"a":1}`, `{}`, "", ".spec.a differs"},
		"float and int":        {"decoders differ", widget, `{"a":1}`, `{"a":1.0}`, "", ""},
		"bool":                 {"drift", widget, `{"a":true}`, `{"a":false}`, "", ".spec.a differs"},
		"number and text":      {"other types differ", widget, `{"a":1}`, `{"a":"1"}`, "", ".spec.a differs"},
		"null":                 {"an explicit null declares nothing there", widget, `{"a":null}`, `{}`, "", ""},
		"null over value":      {"declared gone, still there", widget, `{"a":null}`, `{"a":1}`, "", ".spec.a differs"},
		"empty struct dropped": {"servers drop them", widget, `{"a":{}}`, `{}`, "", ""},
		"empty list dropped":   {"servers drop them", widget, `{"a":[]}`, `{}`, "", ""},
		"map over list":        {"other types differ", widget, `{"a":{"b":1}}`, `{"a":[]}`, "", ".spec.a differs"},
		"list over map":        {"other types differ", widget, `{"a":[1]}`, `{"a":{}}`, "", ".spec.a differs"},

		"keyed list, injected item": {"a sidecar is no difference", widget, `{"containers":[{"name":"a"}]}`, `{"containers":[{"name":"mesh"},{"name":"a","image":"i"}]}`, "", ""},
		"keyed list, item changed":  {"found by its key", widget, `{"containers":[{"name":"a","image":"1"}]}`, `{"containers":[{"name":"mesh"},{"name":"a","image":"2"}]}`, "", ".spec.containers[0].image differs"},
		"keyed list, item gone":     {"ours is missing", widget, `{"containers":[{"name":"a"}]}`, `{"containers":[{"name":"mesh"}]}`, "", ".spec.containers[0] differs"},
		"keyed list, default key":   {"protocol is defaulted", widget, `{"ports":[{"containerPort":1}]}`, `{"ports":[{"containerPort":1,"protocol":"TCP"}]}`, "", ""},
		"list of another kind":      {"ports of a custom kind that have other keys", widget, `{"ports":[{"number":1},{"number":2}]}`, `{"ports":[{"number":1},{"number":2}]}`, "", ""},
		"keyed list, same port":     {"two protocols on one port", widget, `{"ports":[{"port":1,"protocol":"UDP"}]}`, `{"ports":[{"port":1,"protocol":"TCP"},{"port":1,"protocol":"UDP"}]}`, "", ""},
		"tolerations":               {"admission adds some to every pod", widget, `{"tolerations":[{"key":"a"}]}`, `{"tolerations":[{"key":"x"},{"key":"a","operator":"Exists"}]}`, "", ""},
		"other list, extra":         {"compared whole", widget, `{"rules":[{"a":1}]}`, `{"rules":[{"a":1},{"a":2}]}`, "", ".spec.rules differs"},
		"other list, order":         {"compared in order", widget, `{"args":["a","b"]}`, `{"args":["b","a"]}`, "", ".spec.args[0] differs"},
		"other list, defaults":      {"fields inside items may be added", widget, `{"rules":[{"a":1}]}`, `{"rules":[{"a":1,"b":2}]}`, "", ""},
		"ports of a NetworkPolicy":  {"not keyed: an extra port is a hole", policy, `{"ports":[{"port":1}]}`, `{"ports":[{"port":1},{"port":2}]}`, "", ".spec.ports differs"},

		"quantity":                {"another spelling", widget, `{"limits":{"memory":"1Gi"}}`, `{"limits":{"memory":"1024Mi"}}`, "", ""},
		"quantity, number":        {"another spelling", widget, `{"requests":{"cpu":1}}`, `{"requests":{"cpu":"1"}}`, "", ""},
		"quantity, changed":       {"another amount", widget, `{"limits":{"memory":"1Gi"}}`, `{"limits":{"memory":"1G"}}`, "", ".spec.limits.memory differs"},
		"no quantity":             {"text elsewhere is text", widget, `{"env":"1"}`, `{"env":"1000m"}`, "", ".spec.env differs"},
		"quantity of storage":     {"below requests, at any depth", widget, `{"resources":{"requests":{"storage":"0.5Gi"}}}`, `{"resources":{"requests":{"storage":"512Mi"}}}`, "", ""},
		"fields, dropped":         {"ours and not declared", widget, `{"a":1}`, `{"a":1,"b":2}`, `{"f:spec":{"f:a":{},"f:b":{}}}`, ".spec.b is ours and no longer declared"},
		"fields, dropped item":    {"ours and not declared", widget, `{"l":[{"name":"a"}]}`, `{"l":[{"name":"a"},{"name":"b"}]}`, `{"f:spec":{"f:l":{"k:{\"name\":\"a\"}":{},"k:{\"name\":\"b\"}":{".":{}}}}}`, `.spec.l[{"name":"b"}] is ours and no longer declared`},
		"fields, unknown list":    {"managedFields say it is keyed", widget, `{"l":[{"name":"a"}]}`, `{"l":[{"name":"x"},{"name":"a"}]}`, `{"f:spec":{"f:l":{"k:{\"name\":\"a\"}":{}}}}`, ""},
		"fields, set":             {"managedFields say it is a set", widget, `{"l":["a"]}`, `{"l":["x","a"]}`, `{"f:spec":{"f:l":{"v:\"a\"":{}}}}`, ""},
		"fields, dropped of set":  {"ours and not declared", widget, `{"l":["a"]}`, `{"l":["x","a"]}`, `{"f:spec":{"f:l":{"v:\"a\"":{},"v:\"x\"":{}}}}`, `.spec.l["x"] is ours and no longer declared`},
		"fields, zero":            {"nothing to remove", widget, `{"a":1}`, `{"a":1}`, `{"f:spec":{"f:a":{},"f:b":{}}}`, ""},
		"fields, broken":          {"as if stripped", widget, `{"a":1}`, `{"a":1}`, `[]`, ""},
		"fields, nothing applied": {"no entry: as if stripped", widget, `{"a":1}`, `{"a":1}`, `{}`, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := ownership.New("children", databaseKind, []ownership.Kind{{GroupVersionKind: test.kind}})
			if err != nil {
				t.Fatal(err)
			}
			desired := object(test.kind, "team-a", "x")
			desired.Object["spec"] = tree(t, test.declared)
			live := stored(t, s, database(), desired)
			live.Object["spec"] = tree(t, test.live)
			if test.fields != "" {
				live.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: s.Manager(), Operation: metav1.ManagedFieldsOperationApply,
					APIVersion: test.kind.GroupVersion().String(), FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(test.fields)}})
			}
			d := only(t, plan(t, s, database(), objects(desired), objects(live), ownership.Policy{}))
			got := ""
			if d.Verb != ownership.Keep {
				got = d.Why
			}
			if got != test.want {
				t.Errorf("%s: got %q, want %q", test.reason, got, test.want)
			}
		})
	}
}

// The memory of an executor spares the comparison, and never hides a change.
func TestRemembering(t *testing.T) {
	t.Parallel()
	s, owner := newSet(t), database()
	desired := configMap("x")
	hash := only(t, plan(t, s, owner, objects(desired), nil, ownership.Policy{})).Evidence.Hash
	tests := map[string]struct {
		reason string
		live   []edit
		known  ownership.Evidence
		want   ownership.Verb
		why    string
	}{
		"same version":   {"nobody has written since", nil, ownership.Evidence{ResourceVersion: "100", Hash: hash}, ownership.Keep, "unchanged since our last write"},
		"cache behind":   {"our own write is newer than what we see", []edit{version("99"), set("old", "data", "a")}, ownership.Evidence{ResourceVersion: "100", Hash: hash}, ownership.Keep, "the cache is behind our last write"},
		"later, equal":   {"a status, say", []edit{version("101")}, ownership.Evidence{ResourceVersion: "100", Hash: hash}, ownership.Keep, "as declared"},
		"later, drift":   {"a declared field", []edit{version("101"), set("2", "data", "a")}, ownership.Evidence{ResourceVersion: "100", Hash: hash}, ownership.Update, ".data.a differs"},
		"other document": {"the declaration changed since", nil, ownership.Evidence{ResourceVersion: "100", Hash: "x"}, ownership.Keep, "as declared"},
		"opaque version": {"some servers do not count", []edit{version("b")}, ownership.Evidence{ResourceVersion: "a", Hash: hash}, ownership.Keep, "as declared"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			live := stored(t, s, owner, desired, test.live...)
			d := only(t, plan(t, s, owner, objects(desired), objects(live), ownership.Policy{},
				ownership.Remembering(func(id types.UID) (ownership.Evidence, bool) { return test.known, id == live.GetUID() })))
			if d.Verb != test.want || d.Why != test.why {
				t.Errorf("%s: got %s", test.reason, d)
			}
		})
	}
}
