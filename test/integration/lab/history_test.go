// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/ashlar-go/ashlar/test/integration/lab"
)

// history is a list of changes as a recorder would have seen them.
type history []lab.Change

func (h *history) add(t watch.EventType, object map[string]any) {
	u := &unstructured.Unstructured{Object: object}
	u.SetNamespace("ns")
	*h = append(*h, lab.Change{Type: t, Version: uint64(len(*h) + 1), Object: u})
}

// database records the Database at a generation with the status as given; a negative
// observed generation means no Ready condition yet.
func (h *history) database(generation, observed, replicas int64, ready string, more ...any) {
	conditions := append([]any{}, more...)
	if observed >= 0 {
		conditions = append(conditions, map[string]any{"type": "Ready", "status": ready, "reason": "R", "observedGeneration": observed})
	}
	h.add(watch.Modified, map[string]any{
		"apiVersion": "db.example.com/v1", "kind": "Database",
		"metadata": map[string]any{"name": "db", "uid": "db", "generation": generation},
		"spec":     map[string]any{"scalePolicy": map[string]any{"replicas": replicas}, "version": "17"},
		"status":   map[string]any{"observedGeneration": observed, "conditions": conditions},
	})
}

func (h *history) pod(ordinal int, version, ready string) {
	h.add(watch.Modified, map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{
			"name": fmt.Sprintf("db-%d", ordinal), "uid": fmt.Sprintf("pod-%d", ordinal),
			"ownerReferences": []any{map[string]any{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "sts"}},
		},
		"spec":   map[string]any{"containers": []any{map[string]any{"image": "registry.example.com/db:" + version}}},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": ready}}},
	})
}

// TestLies shows that the checker of the truth tests can fail, and when it must not.
func TestLies(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		reason string
		write  func(h *history)
		lies   []string // what each sentence must hold, in order
	}{
		"honest life": {
			reason: "every Ready comes after the pods of its generation",
			write: func(h *history) {
				h.database(1, -1, 2, "")
				h.database(1, 1, 2, "False")
				h.pod(0, "17", "True")
				h.pod(1, "17", "True")
				h.database(1, 1, 2, "True")
			},
		},
		"a blip is no lie": {
			reason: "the promise is about pods that were all ready once, for a loss needs time to be seen",
			write: func(h *history) {
				h.database(1, -1, 1, "")
				h.pod(0, "17", "True")
				h.database(1, 1, 1, "True")
				h.pod(0, "17", "False")
				h.database(1, 1, 1, "True")
				h.database(1, 1, 1, "False")
			},
		},
		"ready before the pods": {
			reason: "the status was written too early",
			write: func(h *history) {
				h.pod(0, "17", "False")
				h.database(1, 1, 1, "True")
				h.pod(0, "17", "True")
			},
			lies: []string{"kstatus calls Database ns/db ready at revision 2", "kubectl wait calls Database ns/db ready at revision 2"},
		},
		"one of two": {
			reason: "all pods, not some",
			write: func(h *history) {
				h.pod(0, "17", "True")
				h.database(1, 1, 2, "True")
			},
			lies: []string{"kstatus", "kubectl wait"},
		},
		"pods of the old version": {
			reason: "ready pods of the former generation prove nothing about this one",
			write: func(h *history) {
				h.pod(0, "16", "True")
				h.database(2, 2, 1, "True")
			},
			lies: []string{"kstatus", "kubectl wait"},
		},
		"the verdict of the former generation": {
			reason: "both tools compare generations, so an old verdict under its own label is honest",
			write: func(h *history) {
				h.pod(0, "17", "True")
				h.database(1, 1, 1, "True")
				h.database(2, 1, 2, "True")
			},
		},
		"relabelled": {
			reason: "the old verdict under the new generation's label is the classic lie",
			write: func(h *history) {
				h.pod(0, "17", "True")
				h.database(1, 1, 1, "True")
				h.database(2, 2, 2, "True")
			},
			lies: []string{"kstatus", "kubectl wait"},
		},
		"no condition at all": {
			reason: "kstatus calls an object without conditions current, kubectl waits",
			write: func(h *history) {
				h.add(watch.Added, map[string]any{
					"apiVersion": "db.example.com/v1", "kind": "Database",
					"metadata": map[string]any{"name": "db", "uid": "db", "generation": int64(1)},
					"spec":     map[string]any{"scalePolicy": map[string]any{"replicas": int64(1)}, "version": "17"},
				})
			},
			lies: []string{"kstatus"},
		},
		"a namesake's merits": {
			reason: "what a deleted Database earned does not count for its successor",
			write: func(h *history) {
				h.pod(0, "17", "True")
				h.database(1, 1, 1, "True")
				h.pod(0, "17", "False")
				h.database(1, 1, 1, "True")
				(*h)[len(*h)-1].Object.SetUID("another")
			},
			lies: []string{"kstatus", "kubectl wait"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var h history
			row.write(&h)
			lies, asked := lab.Lies(h)
			if asked == 0 {
				t.Fatal("nothing was asked")
			}
			if len(lies) != len(row.lies) {
				t.Fatalf("%d lies, want %d (%s):\n%s", len(lies), len(row.lies), row.reason, strings.Join(lies, "\n"))
			}
			for i, lie := range lies {
				if !strings.Contains(lie, row.lies[i]) {
					t.Errorf("%q does not say %q", lie, row.lies[i])
				}
			}
		})
	}
}

func (h *history) object(t watch.EventType, kind, name string, going bool, conditions ...any) {
	h.add(t, map[string]any{
		"kind": kind, "metadata": map[string]any{"name": name, "uid": kind + name},
		"status": map[string]any{"conditions": conditions},
	})
	if going {
		now := metav1.NewTime(time.Unix(1, 0))
		(*h)[len(*h)-1].Object.SetDeletionTimestamp(&now)
	}
}

// TestDisorder shows that the checker of the deletion tests can fail.
func TestDisorder(t *testing.T) {
	t.Parallel()
	complete := map[string]any{"type": "Complete", "status": "True"}
	steps := map[string]func(h *history){
		"backup":       func(h *history) { h.object(watch.Modified, "Job", "b", false, complete) },
		"set going":    func(h *history) { h.object(watch.Modified, "StatefulSet", "db", true) },
		"set gone":     func(h *history) { h.object(watch.Deleted, "StatefulSet", "db", true) },
		"pod gone":     func(h *history) { h.pod(0, "17", "True"); (*h)[len(*h)-1].Type = watch.Deleted },
		"volume going": func(h *history) { h.object(watch.Modified, "PersistentVolumeClaim", "v", true) },
		"volume gone":  func(h *history) { h.object(watch.Deleted, "PersistentVolumeClaim", "v", true) },
		"job gone":     func(h *history) { h.object(watch.Deleted, "Job", "b", true, complete) },
		"gone":         func(h *history) { h.object(watch.Deleted, "Database", "db", true) },
	}
	for name, row := range map[string]struct {
		reason  string
		without bool
		steps   string
		fault   string
	}{
		"in order":               {reason: "every step waits", steps: "backup,set going,pod gone,set gone,volume going,volume gone,job gone,gone"},
		"a set goes at once":     {reason: "an object may go without a deletion timestamp", steps: "backup,pod gone,set gone,volume gone,job gone,gone"},
		"set before the backup":  {steps: "set going,backup,pod gone,set gone,volume going,volume gone,job gone,gone", fault: "before the backup is complete"},
		"no backup at all":       {steps: "set going,pod gone,set gone,volume going,volume gone,job gone,gone", fault: "before the backup is complete"},
		"no backup wanted":       {reason: "a terminating namespace takes no Job", without: true, steps: "set going,pod gone,set gone,volume going,volume gone,gone"},
		"a namespace's order":    {reason: "the namespace controller starts all deletions itself", without: true, steps: "volume going,set going,pod gone,volume gone,set gone,gone"},
		"volume under a pod":     {without: true, steps: "volume going,volume gone,set going,pod gone,set gone,gone", fault: "goes before [Pod db-0]"},
		"volume before the set":  {steps: "backup,set going,pod gone,volume going,set gone,volume gone,job gone,gone", fault: "goes before [StatefulSet db]"},
		"volume before the pods": {steps: "backup,set going,set gone,volume going,pod gone,volume gone,job gone,gone", fault: "goes before [Pod db-0]"},
		"leftover volume":        {steps: "backup,set going,pod gone,set gone,volume going,job gone,gone", fault: "is gone before [PersistentVolumeClaim v]"},
		"leftover job":           {steps: "backup,set going,pod gone,set gone,volume going,volume gone,gone", fault: "is gone before [Job b]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &history{}
			h.object(watch.Added, "Database", "db", false)
			h.object(watch.Added, "StatefulSet", "db", false)
			h.pod(0, "17", "True")
			h.object(watch.Added, "PersistentVolumeClaim", "v", false)
			if !row.without {
				h.object(watch.Added, "Job", "b", false)
			}
			for _, step := range strings.Split(row.steps, ",") {
				steps[step](h)
			}
			faults := lab.Disorder(*h, !row.without)
			switch {
			case row.fault == "" && len(faults) > 0:
				t.Errorf("faults where there is none (%s): %q", row.reason, faults)
			case row.fault != "" && (len(faults) != 1 || !strings.Contains(faults[0], row.fault)):
				t.Errorf("faults %q, want one that says %q", faults, row.fault)
			}
		})
	}
}

func TestIncarnations(t *testing.T) {
	t.Parallel()
	h := &history{}
	h.object(watch.Added, "Job", "b", false)
	h.object(watch.Modified, "Job", "b", false)
	h.object(watch.Added, "Pod", "b", false)
	h.object(watch.Added, "Job", "b", false)
	(*h)[3].Object.SetUID(types.UID("second"))
	if got := lab.Incarnations(*h, "Job"); len(got) != 1 || got["b"] != 2 {
		t.Errorf("incarnations %v, want two of b", got)
	}
}
