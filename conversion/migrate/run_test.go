// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/conversion/migrate"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false, "v1")
	for name, make := range map[string]func() (*migrate.Migrator, error){
		"no client":      func() (*migrate.Migrator, error) { return migrate.New(nil, w.client, crdName) },
		"no live reader": func() (*migrate.Migrator, error) { return migrate.New(w.client, nil, crdName) },
		"no name":        func() (*migrate.Migrator, error) { return migrate.New(w.client, w.client, "") },
		"page size": func() (*migrate.Migrator, error) {
			return migrate.New(w.client, w.client, crdName, migrate.WithPageSize(0))
		},
		"parallel": func() (*migrate.Migrator, error) {
			return migrate.New(w.client, w.client, crdName, migrate.WithParallel(0))
		},
	} {
		if m, err := make(); err == nil || m != nil {
			t.Errorf("%s: %v, %v", name, m, err)
		}
	}
	m, err := migrate.New(w.client, w.client, "gadgets.example.com")
	w.must(err)
	if _, err := m.Run(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "gadgets.example.com") {
		t.Errorf("a CRD that is not there: %v", err)
	}
	if _, err := w.migrator().Rehearse(t.Context()); !errors.Is(err, migrate.ErrNoConverter) {
		t.Errorf("without a converter: %v", err)
	}
}

// TestRunIsResumed interrupts a run after every page in turn; the run that goes on writes the rest and nothing twice.
func TestRunIsResumed(t *testing.T) {
	t.Parallel()
	for stop := 1; stop <= 4; stop++ {
		w := newWorld(t, false, "v1alpha1", "v1")
		w.widgets(10)
		ctx, cancel := context.WithCancel(t.Context())
		var lines []string
		seen := 0
		m := w.migrator(migrate.WithPageSize(3), migrate.WithParallel(2), migrate.WithObserver(func(p migrate.Progress) {
			lines = append(lines, p.String())
			if seen++; seen == stop {
				cancel()
			}
		}))
		r, err := m.Run(ctx, "")
		cancel()
		first := w.taken()
		if stop < 4 && (!errors.Is(err, context.Canceled) || r.Complete || r.Resume == "") {
			t.Fatalf("stopped after page %d: %+v, %v", stop, r, err)
		}
		if stop < 4 {
			if r, err = m.Run(t.Context(), r.Resume); err != nil || !r.Complete {
				t.Fatalf("resumed after page %d: %+v, %v", stop, r, err)
			}
		}
		all := append(first, w.taken()...)
		slices.Sort(all)
		if len(slices.Compact(all)) != 10 || len(all) != 10 {
			t.Errorf("stopped after page %d: %d writes: %q", stop, len(all), all)
		}
		for i, n := range []int{3, 6, 9, 10} {
			// Once more for each page that was left behind already.
			if want := fmt.Sprintf("%s: %d objects", crdName, n); !slices.Contains(lines, want) {
				t.Errorf("progress after page %d does not say %q: %q", i+1, want, lines)
			}
		}
	}
}

// TestTokenExpires answers a page with 410: the run begins at the front again and writes nothing twice.
func TestTokenExpires(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false, "v1alpha1", "v1")
	w.widgets(7)
	var once atomic.Bool
	w.answer = func(r *http.Request, _ []byte) *metav1.Status {
		if r.URL.Query().Get("continue") != "" && once.CompareAndSwap(false, true) {
			return refuse(410, metav1.StatusReasonExpired)
		}
		return nil
	}
	r, err := w.migrator(migrate.WithPageSize(3)).Run(t.Context(), "")
	w.must(err)
	if writes := w.taken(); len(writes) != 7 || !r.Complete || r.Objects != 7 || !once.Load() {
		t.Errorf("%d writes, %+v", len(writes), r)
	}
}

// TestConflictIsDone: whoever changed the object meanwhile has stored it at the storage version.
func TestConflictIsDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false, "v1alpha1", "v1")
	w.widgets(1)
	w.widget("dead", map[string]any{"size": int64(1)}, at("old", "v1beta1"), at("new", "v1"))
	w.taken()
	var changed atomic.Int32
	w.answer = func(r *http.Request, _ []byte) *metav1.Status {
		if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/widgets/") && changed.Add(1) <= 2 {
			return refuse(409, metav1.StatusReasonConflict)
		}
		return nil
	}
	r, err := w.migrator(migrate.WithParallel(1)).Run(t.Context(), "")
	w.must(err)
	if !r.Complete || r.Failed != 0 {
		t.Errorf("got %+v", r)
	}
	if entries := w.get("dead").GetManagedFields(); len(entries) != 1 || entries[0].Manager != "new" {
		t.Errorf("a conflict kept the dead entries: %v", entries)
	}
}

// TestDelegate lets a server do the migration that serves the API: it ends well, or gives up and is helped.
func TestDelegate(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		reason    string
		end       string
		delegated bool
		written   int
	}{
		"succeeds": {"nothing is left to write", "Succeeded", true, 0},
		"gives up": {"the server stops at the first object it cannot write", "Failed", false, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, true, "v1alpha1", "v1")
			w.widgets(3)
			var said []string
			m := w.migrator(migrate.WithObserver(func(p migrate.Progress) {
				if said = append(said, p.String()); len(said) == 1 {
					w.finish(row.end)
				}
			}))
			r, err := m.Run(t.Context(), "")
			w.must(err)
			if r.Delegated != row.delegated || r.Written != row.written || !r.Complete {
				t.Errorf("%s: %+v", row.reason, r)
			}
			if !strings.Contains(said[0], "has not begun") || !strings.Contains(said[1], row.end+": 3 of 3") {
				t.Errorf("progress %q", said)
			}
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(svmKind.GroupVersion().WithKind(svmKind.Kind + "List"))
			if w.must(w.client.List(t.Context(), list)); len(list.Items) > 0 {
				t.Errorf("left behind: %v", list.Items)
			}
		})
	}
}

// finish ends every StorageVersionMigration there is.
func (w *world) finish(how string) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(svmKind.GroupVersion().WithKind(svmKind.Kind + "List"))
	w.must(w.client.List(w.t.Context(), list))
	for i := range list.Items {
		svm := &list.Items[i]
		resource, _, _ := unstructured.NestedStringMap(svm.Object, "spec", "resource")
		if diff := cmp.Diff(map[string]string{"group": "example.com", "resource": "widgets"}, resource); diff != "" {
			w.t.Errorf("spec.resource (-want +got):\n%s", diff)
		}
		body := fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"status":{"conditions":[{"type":%q,"status":"True","reason":"R","message":"3 of 3","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`,
			svm.GetResourceVersion(), how)
		w.must(w.client.Status().Patch(w.t.Context(), svm, client.RawPatch("application/merge-patch+json", []byte(body))))
	}
}

// TestPrune also when others write the CRD at the same time.
func TestPrune(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false, "v1alpha1", "v1beta1", "v1")
	m := w.migrator()
	r, err := m.Run(t.Context(), "")
	w.must(err)
	var conflicts atomic.Int32
	w.answer = func(r *http.Request, _ []byte) *metav1.Status {
		if r.Method == http.MethodPatch && conflicts.Add(1) <= 2 {
			return refuse(409, metav1.StatusReasonConflict)
		}
		return nil
	}
	dropped, err := m.Prune(t.Context(), r)
	w.must(err)
	if !slices.Equal(dropped, []string{"v1alpha1", "v1beta1"}) || !slices.Equal(w.stored(), []string{"v1"}) {
		t.Errorf("dropped %q, stored %q", dropped, w.stored())
	}
}

func TestPlanSaysWhatBlocks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false, "v1alpha1", "v1")
	w.widget("a", map[string]any{"size": int64(1)}, at("terraform", "v1alpha1"))
	w.taken()
	for version, want := range map[string][]string{
		"v1alpha1": {"status.storedVersions holds v1alpha1", `managedFields of 1 objects name v1alpha1, written by terraform (Apply), last 2026-01-02T03:04:05Z, such as shop/a: it may still write`, "v1alpha1 is served"},
		"v1":       {"v1 is the storage version", "v1 is served"},
		"v0":       nil,
	} {
		plan, err := w.migrator().Plan(t.Context(), version)
		w.must(err)
		if len(plan.Blocks) != len(want) || plan.Empty() != (len(want) == 0) {
			t.Errorf("%s: %v", version, plan)
			continue
		}
		for i := range want {
			if !strings.Contains(plan.Blocks[i], want[i]) || !strings.Contains(plan.String(), want[i]) {
				t.Errorf("%s: block %d is %q, want %q", version, i, plan.Blocks[i], want[i])
			}
		}
	}
	if writes := w.taken(); len(writes) > 0 {
		t.Errorf("a plan wrote %q", writes)
	}
}
