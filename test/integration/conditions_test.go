// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ashlar "github.com/ashlar-go/ashlar/conditions"
	"github.com/ashlar-go/ashlar/test/integration/lab"
)

// lawful is the set whose laws the API server enforces in this test.
func lawful() *ashlar.Set {
	return ashlar.MustNew("Ready",
		ashlar.Type{Name: "Net"},
		ashlar.Type{Name: "db.example.com/App", Needs: []string{"Net", "Skew"}},
		ashlar.Type{Name: "Skew", Negative: true},
		ashlar.Type{Name: "Locked", Negative: true, Required: true})
}

// TestConditionsCEL installs a CRD that carries the laws of a set, and lets the set itself and a liar write status.
// The server takes every outcome of the set, in sequence, and refuses each lie with the sentence of the law.
func TestConditionsCEL(t *testing.T) {
	t.Parallel()
	set := lawful()
	ns := namespace(t.Context(), t)
	installLawful(t, set)
	thing := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "laws.example.com/v1", "kind": "Lawful"}}
	thing.SetNamespace(ns)
	thing.SetName("thing")
	err := lab.Eventually(t.Context(), "the kind is served", func(ctx context.Context) error {
		err := cluster.Client.Create(ctx, thing)
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	now := time.Unix(1_000_000_000, 0)
	pass := func(live []metav1.Condition, generation int64, net, app, skew, locked metav1.ConditionStatus, stall string) []metav1.Condition {
		p := set.Begin(live, generation, nil)
		for typ, status := range map[string]metav1.ConditionStatus{"Net": net, "db.example.com/App": app, "Skew": skew, "Locked": locked} {
			if status != "" {
				p.Put(metav1.Condition{Type: typ, Status: status, Reason: "Said"})
			}
		}
		if stall != "" {
			p.Stall(stall)
		}
		now = now.Add(time.Second)
		r, err := p.Done(now)
		if err != nil {
			t.Fatal(err)
		}
		return r.Conditions
	}

	var live []metav1.Condition
	written := 0
	statuses := []metav1.ConditionStatus{"True", "False", ""}
	for _, net := range statuses {
		for _, app := range statuses {
			for _, skew := range statuses {
				for _, locked := range statuses {
					stall := []string{"", "Net", "Skew"}[written%3]
					next := pass(live, int64(1+written/9), net, app, skew, locked, stall)
					if err := writeConditions(t.Context(), thing, next); err != nil {
						t.Fatalf("refused what the set wrote after %v: %v: %v", live, next, err)
					}
					live, written = ashlar.Read(thing), written+1
				}
			}
		}
	}
	t.Logf("%d outcomes accepted", written)

	// A lie is told from a state the set has just written, so that nothing but the lie is wrong with it.
	good := func() []metav1.Condition { return pass(ashlar.Read(thing), 100, "True", "True", "", "False", "") }
	ill := func() []metav1.Condition { return pass(ashlar.Read(thing), 100, "False", "True", "", "False", "") }
	change := func(typ string, f func(*metav1.Condition)) func([]metav1.Condition) []metav1.Condition {
		return func(conds []metav1.Condition) []metav1.Condition {
			f(&conds[slices.IndexFunc(conds, func(c metav1.Condition) bool { return c.Type == typ })])
			return conds
		}
	}
	status := func(s metav1.ConditionStatus) func(*metav1.Condition) {
		return func(c *metav1.Condition) { c.Status, c.LastTransitionTime = s, metav1.NewTime(now.Add(time.Hour)) }
	}
	without := func(typ string) func([]metav1.Condition) []metav1.Condition {
		return func(conds []metav1.Condition) []metav1.Condition {
			return slices.DeleteFunc(conds, func(c metav1.Condition) bool { return c.Type == typ })
		}
	}
	with := func(typ string) func([]metav1.Condition) []metav1.Condition {
		return func(conds []metav1.Condition) []metav1.Condition {
			c := conds[0]
			c.Type, c.Status = typ, metav1.ConditionTrue
			return append(conds, c)
		}
	}
	lies := map[string]struct {
		base func() []metav1.Condition
		lie  func([]metav1.Condition) []metav1.Condition
		want string
	}{
		"second False":    {ill, change("db.example.com/App", status("False")), "db.example.com/App must be Unknown until Net is True"},
		"root too good":   {ill, change("Ready", status("True")), "Ready can be True only when every type it sums up is good"},
		"root too bad":    {good, change("Ready", status("False")), "Ready must be True when every type it sums up is good"},
		"fault invented":  {good, change("Ready", status("False")), "Ready can be False only when a type it sums up is bad"},
		"fault hidden":    {ill, change("Ready", status("Unknown")), "Ready must be False when a type it sums up is bad"},
		"root is gone":    {good, without("Ready"), "the types of a set come together"},
		"type is gone":    {good, without("Locked"), "the types of a set come together"},
		"derived False":   {ill, change("Reconciling", status("False")), "Reconciling and Stalled are removed rather than set"},
		"both derived":    {ill, with("Stalled"), "exclude each other"},
		"derived is gone": {ill, without("Reconciling"), "either Reconciling or Stalled must be True"},
		"derived stays":   {good, with("Reconciling"), "neither Reconciling nor Stalled can stay"},
		"stalled, not False": {func() []metav1.Condition { return pass(ashlar.Read(thing), 100, "", "True", "", "False", "") },
			func(conds []metav1.Condition) []metav1.Condition {
				return with("Stalled")(without("Reconciling")(conds))
			},
			"Stalled needs Ready to be False"},
		"time moves": {good, change("Net", func(c *metav1.Condition) { c.LastTransitionTime = metav1.NewTime(now.Add(time.Hour)) }),
			"lastTransitionTime moves only with the status"},
		"generation goes back": {good, change("Net", func(c *metav1.Condition) { c.ObservedGeneration-- }), "observedGeneration never goes back"},
	}
	for name, tc := range lies {
		base := tc.base()
		if err := writeConditions(t.Context(), thing, base); err != nil {
			t.Fatalf("%s: the truth was refused: %v", name, err)
		}
		err := writeConditions(t.Context(), thing, tc.lie(slices.Clone(base)))
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want a 422 that says %q", name, err, tc.want)
		}
	}

	// Foreign types are nobody's business.
	foreign := append(good(), metav1.Condition{Type: "other.io/Odd", Status: "False", Reason: "Odd", LastTransitionTime: metav1.NewTime(now)})
	if err := writeConditions(t.Context(), thing, foreign); err != nil {
		t.Errorf("a foreign condition was refused: %v", err)
	}
}

// writeConditions replaces the list whatever it holds, as a writer that knows no better does.
func writeConditions(ctx context.Context, thing *unstructured.Unstructured, conds []metav1.Condition) error {
	if err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(thing), thing); err != nil {
		return err
	}
	items := make([]any, 0, len(conds))
	for i := range conds {
		item, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&conds[i])
		if err != nil {
			return err
		}
		items = append(items, item)
	}
	next := thing.DeepCopy()
	if err := unstructured.SetNestedSlice(next.Object, items, "status", "conditions"); err != nil {
		return err
	}
	if err := cluster.Client.Status().Update(ctx, next); err != nil {
		return err
	}
	thing.Object = next.Object
	return nil
}

// installLawful creates the CRD with the rules where CEL says they belong, and removes it with the test.
func installLawful(t *testing.T, set *ashlar.Set) {
	t.Helper()
	var onList, onItems []ashlar.Rule
	for _, r := range set.CEL() {
		if r.Item {
			onItems = append(onItems, r)
		} else {
			onList = append(onList, r)
		}
	}
	asJSON := func(rules []ashlar.Rule) string {
		raw, err := json.Marshal(rules)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	crd := &unstructured.Unstructured{}
	if err := json.Unmarshal(fmt.Appendf(nil, lawfulCRD, asJSON(onList), asJSON(onItems)), &crd.Object); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Client.Create(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Client.Delete(context.WithoutCancel(t.Context()), crd) })
}

const lawfulCRD = `{
  "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
  "metadata": {"name": "lawfuls.laws.example.com"},
  "spec": {
    "group": "laws.example.com", "scope": "Namespaced",
    "names": {"plural": "lawfuls", "singular": "lawful", "kind": "Lawful", "listKind": "LawfulList"},
    "versions": [{
      "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
      "schema": {"openAPIV3Schema": {"type": "object", "properties": {"status": {"type": "object", "properties": {
        "conditions": {
          "type": "array", "maxItems": 64, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
          "x-kubernetes-validations": %s,
          "items": {
            "type": "object", "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "x-kubernetes-validations": %s,
            "properties": {
              "type": {"type": "string", "maxLength": 316},
              "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
              "reason": {"type": "string", "minLength": 1, "maxLength": 1024},
              "message": {"type": "string", "maxLength": 32768},
              "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
              "lastTransitionTime": {"type": "string", "format": "date-time"}
            }
          }
        }
      }}}}}
    }]
  }
}`
