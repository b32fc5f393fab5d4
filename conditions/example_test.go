// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package conditions_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ashlar-go/ashlar/conditions"
)

var health = conditions.MustNew("Ready",
	conditions.Type{Name: "ConfigReady"},
	conditions.Type{Name: "StorageReady", Needs: []string{"ConfigReady"}},
	conditions.Type{Name: "Serving", Needs: []string{"StorageReady"}},
	conditions.Type{Name: "VersionSkew", Negative: true},
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func show(conds []metav1.Condition) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, c := range conds {
		fmt.Fprintln(w, strings.TrimRight(c.Type+"\t"+string(c.Status)+"\t"+c.Reason, "\t"))
	}
	w.Flush()
}

func Example() {
	pass := health.Begin(nil, 1, nil)
	pass.True("ConfigReady", "Applied", "")
	pass.False("StorageReady", "DiskFull", "volume data-0 is full")
	pass.False("Serving", "NoEndpoint", "0 of 3 replicas answer")
	r, err := pass.Done(noon)
	if err != nil {
		fmt.Println(err)
	}
	show(r.Conditions)
	fmt.Println(r.Conditions[3].Message)
	// Output:
	// Ready         False    DiskFull
	// ConfigReady   True     Applied
	// StorageReady  False    DiskFull
	// Serving       Unknown  BlockedByStorageReady
	// Reconciling   True     DiskFull
	// waits for StorageReady: volume data-0 is full
	// 0 of 3 replicas answer
}

func ExampleNew() {
	_, err := conditions.New("Ready",
		conditions.Type{Name: "Network", Needs: []string{"Pods"}},
		conditions.Type{Name: "Pods", Needs: []string{"Network"}},
	)
	fmt.Println(err)
	// Output:
	// declare condition type "Network": needs itself: Network → Pods → Network
}

func ExampleMustNew() {
	s := conditions.MustNew("Ready", conditions.Type{Name: "Synced"}, conditions.Type{Name: "Degraded", Retired: true})
	fmt.Println(s.Root(), s.Owned(), s.Retired(), len(s.Types()))
	// Output:
	// Ready [Ready Synced Reconciling Stalled] [Degraded] 1
}

func ExampleSet_Begin() {
	live := []metav1.Condition{{
		Type: "Ready", Status: "True", Reason: "Healthy", ObservedGeneration: 1, LastTransitionTime: metav1.NewTime(noon),
	}}
	pass := conditions.MustNew("Ready").Begin(live, 1, nil)
	r, err := pass.Done(noon.Add(time.Hour))
	fmt.Println(r.Changed, &r.Conditions[0] == &live[0], err)
	// Output:
	// false true <nil>
}

func ExamplePass_Put() {
	fromElsewhere := metav1.Condition{Type: "ConfigReady", Status: "True", Reason: "Applied by hand"}

	pass := health.Begin(nil, 1, nil)
	pass.Put(fromElsewhere)
	pass.True("StorageRaedy", "Bound", "")
	r, err := pass.Done(noon)
	fmt.Println(r.Conditions[1].Reason)
	fmt.Println(err)
	fmt.Println(errors.Is(err, conditions.ErrUndeclared))
	// Output:
	// Applied_by_hand
	// put condition type "StorageRaedy": not declared
	// true
}

func ExamplePass_True() {
	pass := health.Begin(nil, 1, nil)
	pass.True("ConfigReady", "Applied", "")
	pass.True("StorageReady", "Bound", "")
	pass.True("Serving", "Answers", "")
	pass.True("VersionSkew", "TooOld", "v1 cannot follow v3") // a negative type: True is bad
	r, _ := pass.Done(noon)
	fmt.Println(r.Conditions[0].Status, r.Conditions[0].Message)
	// Output:
	// False VersionSkew: v1 cannot follow v3
}

func ExamplePass_False() {
	pass := conditions.MustNew("Ready", conditions.Type{Name: "Synced"}).Begin(nil, 1, nil)
	pass.False("Synced", "Conflict", "")
	r, _ := pass.Done(noon)
	show(r.Conditions)
	// Output:
	// Ready        False  Conflict
	// Synced       False  Conflict
	// Reconciling  True   Conflict
}

func ExamplePass_Unknown() {
	pass := conditions.MustNew("Ready", conditions.Type{Name: "Synced"}).Begin(nil, 1, nil)
	pass.Unknown("Synced", "NoContact", "")
	r, _ := pass.Done(noon)
	show(r.Conditions)
	// Output:
	// Ready        Unknown  NoContact
	// Synced       Unknown  NoContact
	// Reconciling  True     NoContact
}

func ExamplePass_Stall() {
	pass := conditions.MustNew("Ready", conditions.Type{Name: "SpecValid"}).Begin(nil, 1, nil)
	pass.False("SpecValid", "NoSuchClass", "storage class fast does not exist")
	pass.Stall("SpecValid") // until somebody edits the spec
	r, _ := pass.Done(noon)
	show(r.Conditions)
	// Output:
	// Ready      False  NoSuchClass
	// SpecValid  False  NoSuchClass
	// Stalled    True   NoSuchClass
}

func ExamplePass_Clear() {
	pass := conditions.MustNew("Ready", conditions.Type{Name: "Degraded", Negative: true}).Begin(nil, 1, nil)
	pass.True("Degraded", "Slow", "")
	pass.Clear("Degraded") // on second thoughts
	r, _ := pass.Done(noon)
	show(r.Conditions)
	// Output:
	// Ready  True  Healthy
}

func ExamplePass_Done() {
	pass := health.Begin(nil, 1, nil)
	pass.True("ConfigReady", "Applied", "")
	r, _ := pass.Done(noon)
	fmt.Println(r.Cause, r.Changed, r.RequeueAfter)

	pass = health.Begin(r.Conditions, 2, nil) // the spec was edited
	pass.True("ConfigReady", "Applied", "")
	r, _ = pass.Done(noon.Add(time.Hour))
	fmt.Println(r.Changed, r.Conditions[0].ObservedGeneration, r.Conditions[0].LastTransitionTime.Format(time.TimeOnly))
	// Output:
	// StorageReady true 0s
	// true 2 12:00:00
}

func ExampleNewMemories() {
	s := conditions.MustNew("Ready", conditions.Type{Name: "Reachable", Hold: conditions.Hold{Bad: 2 * time.Minute}})
	memories := conditions.NewMemories(0) // a field of the reconciler
	var live []metav1.Condition
	for i, status := range []metav1.ConditionStatus{"True", "False", "False"} {
		pass := s.Begin(live, 1, memories.Of("uid-of-the-object"))
		pass.Put(metav1.Condition{Type: "Reachable", Status: status, Reason: "Probe"})
		r, _ := pass.Done(noon.Add(time.Duration(i) * 90 * time.Second))
		fmt.Println(r.Conditions[0].Status, r.RequeueAfter)
		live = r.Conditions
	}
	// Output:
	// True 0s
	// True 2m0s
	// True 30s
}

func ExampleMemories_Of() {
	memories := conditions.NewMemories(1)
	first := memories.Of("a")
	fmt.Println(memories.Of("a") == first, memories.Len())
	memories.Of("b") // the least recently used one makes room
	fmt.Println(memories.Of("a") == first, memories.Len())
	// Output:
	// true 1
	// false 1
}

type database struct{}

func ExampleEvaluate() {
	handlers := map[string]conditions.Handler[*database]{
		"ConfigReady": func(context.Context, *database) (conditions.Verdict, error) {
			return conditions.Verdict{Status: "True", Reason: "Applied"}, nil
		},
		"StorageReady": func(_ context.Context, db *database) (conditions.Verdict, error) {
			return conditions.Verdict{}, errors.New("list volumes: timed out")
		},
		"Serving": func(context.Context, *database) (conditions.Verdict, error) {
			panic("not called: what it needs is not there")
		},
	}
	clock := conditions.WithClock(func() time.Time { return noon })
	r, err := conditions.Evaluate(context.Background(), health, &database{}, nil, 1, handlers, clock)
	show(r.Conditions)
	fmt.Println(err)
	// Output:
	// Ready         Unknown  HandlerFailed
	// ConfigReady   True     Applied
	// StorageReady  Unknown  HandlerFailed
	// Serving       Unknown  BlockedByStorageReady
	// Reconciling   True     HandlerFailed
	// evaluate condition type StorageReady: list volumes: timed out
}

func ExampleWithParallel() {
	s := conditions.MustNew("Ready", conditions.Type{Name: "A"}, conditions.Type{Name: "B"})
	slow := func(context.Context, int) (conditions.Verdict, error) {
		return conditions.Verdict{Status: "True", Reason: "Checked"}, nil
	}
	r, err := conditions.Evaluate(context.Background(), s, 0, nil, 1,
		map[string]conditions.Handler[int]{"A": slow, "B": slow},
		conditions.WithParallel(2),                             // both at once
		conditions.WithClock(func() time.Time { return noon }), // for tests
		conditions.WithMemory(&conditions.Memory{}))            // so that holds work
	fmt.Println(r.Conditions[0].Status, err)
	// Output:
	// True <nil>
}

func ExampleSummarize() {
	pods := map[string][]metav1.Condition{ // from a list call; the order makes no difference
		"web-0": {{Type: "Ready", Status: "True", Reason: "Started"}},
		"web-1": {{Type: "Ready", Status: "False", Reason: "ContainersNotReady", Message: "image cannot be pulled"}},
		"web-2": {{Type: "Ready", Status: "False", Reason: "ContainersNotReady", Message: "image cannot be pulled"}},
		"web-3": nil,
	}
	c := conditions.Summarize(conditions.Type{Name: "PodsReady"}, "Ready", func(yield func(string, []metav1.Condition) bool) {
		for name, conds := range pods {
			if !yield(name, conds) {
				return
			}
		}
	})
	fmt.Println(c.Type, c.Status, c.Reason)
	fmt.Println(c.Message)
	// Output:
	// PodsReady False ContainersNotReady
	// 2 of 4 False, 1 Unknown: ContainersNotReady: image cannot be pulled (web-1, web-2); NotReported (web-3)
}

func ExampleTally() {
	pods := conditions.NewTally(conditions.Type{Name: "PodsReady"}, "Ready")
	pods.Put("web-0", []metav1.Condition{{Type: "Ready", Status: "False", Reason: "Starting"}})
	pods.Put("web-1", []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Started"}})
	fmt.Println(pods.Condition().Message)

	pods.Put("web-0", []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Started"}}) // from a watch event
	pods.Drop("web-1")
	fmt.Println(pods.Len(), pods.Condition().Message)
	// Output:
	// 1 of 2 False: Starting (web-0)
	// 1 1 of 1 True
}

func ExampleMirror() {
	cluster := []metav1.Condition{{Type: "Ready", Status: "False", Reason: "Upgrading", ObservedGeneration: 12}}
	pass := conditions.MustNew("Ready", conditions.Type{Name: "ClusterReady"}).Begin(nil, 3, nil)
	pass.Put(conditions.Mirror("ClusterReady", cluster, "Ready"))
	r, _ := pass.Done(noon)
	c := r.Conditions[1]
	fmt.Println(c.Type, c.Status, c.Reason, c.ObservedGeneration)
	// Output:
	// ClusterReady False Upgrading 3
}

func ExampleRead() {
	u := &unstructured.Unstructured{Object: map[string]any{
		"status": map[string]any{"conditions": []any{
			map[string]any{"type": "Ready", "status": "True", "reason": "Up", "observedGeneration": int64(2)},
			map[string]any{"type": "Odd", "status": 1.5},
			"not a condition",
		}},
	}}
	show(conditions.Read(u))
	// Output:
	// Ready  True  Up
	// Odd    Unknown
}

func ExampleSet_Explain() {
	pass := health.Begin(nil, 1, nil)
	pass.True("ConfigReady", "Applied", "")
	pass.False("StorageReady", "DiskFull", "volume data-0 is full")
	r, _ := pass.Done(noon)
	fmt.Print(health.Explain(r.Conditions))
	// Output:
	// Ready is False (DiskFull): StorageReady: volume data-0 is full
	// because StorageReady is False (DiskFull): volume data-0 is full
	// which blocks Serving
	//   Good     ConfigReady   True     Applied
	//   Bad      StorageReady  False    DiskFull
	//   Unknown  Serving       Unknown  BlockedByStorageReady  waits for StorageReady
	//   Good     VersionSkew   absent
}

func ExampleSet_Mermaid() {
	fmt.Print(health.Mermaid())
	// Output:
	// flowchart LR
	//   t0["ConfigReady"]
	//   t1["StorageReady"]
	//   t2["Serving"]
	//   t3{{"not VersionSkew"}}
	//   root(["Ready"])
	//   t0 --> t1
	//   t1 --> t2
	//   t2 --> root
	//   t3 --> root
}

func ExampleSet_CEL() {
	s := conditions.MustNew("Ready", conditions.Type{Name: "A"}, conditions.Type{Name: "B", Needs: []string{"A"}})
	for _, rule := range s.CEL()[:2] {
		fmt.Println(rule.Message)
	}
	fmt.Println(s.CEL()[0].Rule)
	fmt.Println(s.CEL()[len(s.CEL())-1]) // as a marker for the field that holds the conditions
	// Output:
	// B must be Unknown until A is True
	// the types of a set come together: Ready and all it sums up
	// self.all(c, c.type != 'B' || c.status == 'Unknown') || self.exists(c, c.type == 'A' && c.status == 'True')
	// +kubebuilder:validation:items:XValidation:rule="!(self.type in ['Ready', 'A', 'B', 'Reconciling', 'Stalled']) || !has(oldSelf.observedGeneration) || (has(self.observedGeneration) && self.observedGeneration >= oldSelf.observedGeneration)",message="observedGeneration never goes back"
}

func ExampleIs() {
	rolledOut := conditions.And(conditions.IsTrue("Ready"), conditions.Not(conditions.IsTrue("Paused")))
	conds := []metav1.Condition{{Type: "Ready", Status: "True", ObservedGeneration: 4}}
	fmt.Println(rolledOut(conds, 4), rolledOut(conds, 5)) // generation 5 has not been looked at yet
	fmt.Println(conditions.Or(conditions.IsFalse("Ready"), conditions.IsUnknown("Ready"))(conds, 5))
	// Output:
	// true false
	// true
}
