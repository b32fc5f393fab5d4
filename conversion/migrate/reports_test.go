// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashlar-go/ashlar/conversion/migrate"
)

// A resource that is gone, or that may not be touched, ends the run at once; it was retried for ever.
func TestStorageVersionMigrator47GoneOrForbidden(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		reason string
		method string
		answer *metav1.Status
		is     func(error) bool
	}{
		"gone":      {"nothing will bring it back", http.MethodGet, refuse(404, metav1.StatusReasonNotFound), apierrors.IsNotFound},
		"forbidden": {"no later object is allowed either", http.MethodPatch, refuse(403, metav1.StatusReasonForbidden), apierrors.IsForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, false, "v1alpha1", "v1")
			w.widgets(20)
			var refused atomic.Int32
			w.answer = func(r *http.Request, _ []byte) *metav1.Status {
				if r.Method == row.method && strings.Contains(r.URL.Path, "/widgets") {
					refused.Add(1)
					return row.answer
				}
				return nil
			}
			r, err := w.migrator(migrate.WithPageSize(5), migrate.WithParallel(1)).Run(t.Context(), "")
			if !row.is(err) || !strings.Contains(err.Error(), crdName) {
				t.Errorf("%s: error %v does not say so", row.reason, err)
			}
			if r.Complete {
				t.Error("the result says that it is complete")
			}
			if most := map[string]int{http.MethodGet: 1, http.MethodPatch: 5}[row.method]; int(refused.Load()) > most {
				t.Errorf("%d requests were refused, want at most %d: it was tried again", refused.Load(), most)
			}
			if n := len(w.taken()); n > 5 {
				t.Errorf("%d writes were tried, want those of one page at most", n)
			}
		})
	}
}

// An answer that passes is tried again, but not for ever.
func TestStorageVersionMigrator83RetriesAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false, "v1alpha1", "v1")
	w.widgets(2)
	w.answer = func(r *http.Request, _ []byte) *metav1.Status {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/w000") {
			return refuse(503, metav1.StatusReasonServiceUnavailable)
		}
		return nil
	}
	r, err := w.migrator().Run(t.Context(), "")
	w.must(err)
	if r.Failed != 1 || r.Written != 1 || r.Complete || r.Failures[0].Name != "w000" || !apierrors.IsServiceUnavailable(r.Failures[0]) {
		t.Errorf("got %+v", r)
	}
	if n := len(w.taken()); n != 7 {
		t.Errorf("%d writes, want 6 tries of one object and 1 of the other", n)
	}
}

// When storedVersions names the storage version alone, nothing is written.
func TestKnativePkg2845NothingToDo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false, "v1")
	w.widgets(3)
	m := w.migrator()
	r, err := m.Run(t.Context(), "")
	w.must(err)
	dropped, err := m.Prune(t.Context(), r)
	w.must(err)
	if writes := w.taken(); len(writes) > 0 || len(dropped) > 0 || !r.Complete || r.Objects != 3 {
		t.Errorf("writes %q, dropped %q, result %+v", writes, dropped, r)
	}
}

// Stale storedVersions go also when there is no object.
func TestClusterAPI6691NoObjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false, "v1alpha1", "v1")
	m := w.migrator()
	r, err := m.Run(t.Context(), "")
	w.must(err)
	dropped, err := m.Prune(t.Context(), r)
	w.must(err)
	if !slices.Equal(dropped, []string{"v1alpha1"}) || !slices.Equal(w.stored(), []string{"v1"}) {
		t.Errorf("dropped %q, stored %q", dropped, w.stored())
	}
}

// managedFields that name a version which is gone make every apply fail. Those entries go, the others stay, and an object
// does not end up without any.
func TestKubernetes111937DeadManagedFields(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false, "v1")
	w.widget("both", map[string]any{"size": int64(1)}, at("old", "v1beta1"), at("new", "v1"))
	w.widget("dead", map[string]any{"size": int64(1)}, at("old", "v1beta1"))
	w.widget("fine", map[string]any{"size": int64(1)}, at("new", "v1"))
	w.taken()
	m := w.migrator()
	plan, err := m.Plan(t.Context(), "v1beta1")
	w.must(err)
	if len(plan.Managers) != 1 || plan.Managers[0].Name != "old" || plan.Managers[0].Objects != 2 || plan.Managers[0].Example != "shop/both" || plan.Empty() {
		t.Errorf("plan %+v", plan)
	}
	r, err := m.Run(t.Context(), "")
	w.must(err)
	if writes := w.taken(); len(writes) != 2 || r.Written != 2 || !r.Complete {
		t.Errorf("writes %q, result %+v", writes, r)
	}
	for name, want := range map[string]string{"both": "new", "dead": "ashlar-migrate", "fine": "new"} {
		var got []string
		for _, e := range w.get(name).GetManagedFields() {
			got = append(got, e.Manager+"@"+e.APIVersion)
		}
		if !slices.Equal(got, []string{want + "@example.com/v1"}) {
			t.Errorf("%s has entries %q", name, got)
		}
	}
	if plan, err = m.Plan(t.Context(), "v1beta1"); err != nil || !plan.Empty() {
		t.Errorf("afterwards: %v %v", plan, err)
	}
}

// A validator that is stricter today refuses an unchanged old object: it is named, the others are migrated, and a write
// of the status gets past it.
func TestMCPLifecycleOperator408OldObjectRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false, "v1alpha1", "v1")
	w.widgets(3)
	w.answer = func(r *http.Request, _ []byte) *metav1.Status {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/w001") {
			return refuse(422, metav1.StatusReasonInvalid)
		}
		return nil
	}
	r, err := w.migrator().Run(t.Context(), "")
	w.must(err)
	if r.Complete || r.Failed != 1 || r.Written != 2 || !strings.Contains(r.Failures[0].Error(), "shop/w001") {
		t.Errorf("got %+v", r)
	}
	if _, err := w.migrator().Prune(t.Context(), r); !errors.Is(err, migrate.ErrIncomplete) || !slices.Equal(w.stored(), []string{"v1alpha1", "v1"}) {
		t.Errorf("pruned after an incomplete run: %v", err)
	}
	w.taken()
	if r, err = w.migrator(migrate.WithStatusTouch()).Run(t.Context(), ""); err != nil || !r.Complete {
		t.Errorf("through the status: %+v, %v", r, err)
	}
	for _, write := range w.taken() {
		if !strings.HasSuffix(write, "/status") {
			t.Errorf("wrote %s", write)
		}
	}
}

// The storage version may be changed while objects are migrated: what was done then proves nothing.
func TestEnhancements2856StorageVersionFlips(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false, "v1alpha1", "v1")
	w.widgets(1)
	m := w.migrator()
	r, err := m.Run(t.Context(), "")
	w.must(err)
	w.crd.Object["spec"].(map[string]any)["preserveUnknownFields"] = false
	w.must(w.client.Update(t.Context(), w.crd))
	if _, err := m.Prune(t.Context(), r); !errors.Is(err, migrate.ErrChanged) || !slices.Equal(w.stored(), []string{"v1alpha1", "v1"}) {
		t.Errorf("pruned under another generation: %v, stored %q", err, w.stored())
	}
}
