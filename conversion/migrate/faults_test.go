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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/conversion"
	"github.com/ashlar-go/ashlar/conversion/migrate"
)

// interrupted runs until a number of pages of two is done.
func (w *world) interrupted(pages int) migrate.Result {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	seen := 0
	r, err := w.migrator(migrate.WithPageSize(2), migrate.WithObserver(func(migrate.Progress) {
		if seen++; seen == pages {
			cancel()
		}
	})).Run(ctx, "")
	if !errors.Is(err, context.Canceled) || r.Resume == "" {
		w.t.Fatalf("not interrupted: %+v, %v", r, err)
	}
	return r
}

// An object could not be written before the run was interrupted. The run that goes on does not come by it again, and must
// not say that everything is migrated: Prune would take away the version that the object is stored at.
func TestResumedRunRemembersFailures(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false, "v1alpha1", "v1")
	w.widgets(6)
	w.answer = func(r *http.Request, _ []byte) *metav1.Status {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/w000") {
			return refuse(422, metav1.StatusReasonInvalid)
		}
		return nil
	}
	first := w.interrupted(2)
	m := w.migrator()
	r, err := m.Run(t.Context(), first.Resume)
	w.must(err)
	if r.Complete || r.Failed != 1 {
		t.Errorf("w000 was never written, and the run says %+v", r)
	}
	if _, err := m.Prune(t.Context(), r); !errors.Is(err, migrate.ErrIncomplete) || !slices.Equal(w.stored(), []string{"v1alpha1", "v1"}) {
		t.Errorf("Prune = %v, stored %q", err, w.stored())
	}
}

// The CRD changes between a run that was interrupted and the one that goes on: what the first one wrote is stored at
// another version now, so all of it is written again before Prune may act.
func TestResumedRunUnderAnotherGeneration(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false, "v1alpha1", "v1")
	w.widgets(6)
	first := w.interrupted(2)
	w.crd.Object["spec"].(map[string]any)["preserveUnknownFields"] = false
	w.must(w.client.Update(t.Context(), w.crd))
	w.taken()
	m := w.migrator()
	r, err := m.Run(t.Context(), first.Resume)
	w.must(err)
	if n := len(w.taken()); n != 6 || !r.Complete {
		t.Errorf("%d objects were written under the generation that is in force, of 6: %+v", n, r)
	}
}

// A mark that no run has made must not skip objects.
func TestRunRefusesAForeignMark(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false, "v1alpha1", "v1")
	w.widgets(2)
	if r, err := w.migrator().Run(t.Context(), "shop/zzz"); err == nil && len(w.taken()) != 2 {
		t.Errorf("got %+v", r)
	}
}

// controller-runtime's validators refuse an object by 403, as an authorizer refuses a user.
func TestAdmissionDenialIsAboutOneObject(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"webhook": `admission webhook "vwidget.kb.io" denied the request: spec.size: must not be 1`,
		"policy":  `widgets.example.com "w001" is forbidden: ValidatingAdmissionPolicy 'size' with binding 'size' denied request: must not be 1`,
	} {
		w := newWorld(t, false, "v1alpha1", "v1")
		w.widgets(3)
		w.answer = func(r *http.Request, _ []byte) *metav1.Status {
			if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/w001") {
				s := refuse(403, metav1.StatusReasonForbidden)
				s.Message = text
				return s
			}
			return nil
		}
		r, err := w.migrator(migrate.WithPageSize(1)).Run(t.Context(), "")
		if err != nil || r.Written != 2 || r.Failed != 1 || r.Failures[0].Name != "w001" {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// The first refusal ends the run: not every object of the page is asked about, and the error says it once.
func TestForbiddenEndsThePage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false, "v1alpha1", "v1")
	w.widgets(50)
	w.answer = func(r *http.Request, _ []byte) *metav1.Status {
		if r.Method == http.MethodPatch {
			return refuse(403, metav1.StatusReasonForbidden)
		}
		return nil
	}
	_, err := w.migrator(migrate.WithParallel(2)).Run(t.Context(), "")
	if n := len(w.taken()); err == nil || n > 4 || strings.Count(err.Error(), "\n") > 1 {
		t.Errorf("%d writes with 2 in flight: %v", n, err)
	}
}

// expires answers the second page with 410 once.
func (w *world) expires() {
	var once atomic.Bool
	w.answer = func(r *http.Request, _ []byte) *metav1.Status {
		if r.URL.Query().Get("continue") != "" && once.CompareAndSwap(false, true) {
			return refuse(410, metav1.StatusReasonExpired)
		}
		return nil
	}
}

type lossy struct{}

func (lossy) Trial(_ context.Context, raw []byte, to string) (conversion.Result, error) {
	return conversion.Result{}, errors.New("no")
}

// A token that expires costs requests; nothing is counted twice.
func TestExpiredTokenCountsNothingTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false, "v1alpha1", "v1")
	for i := range 5 {
		w.widget(fmt.Sprintf("w%03d", i), map[string]any{"size": int64(1)}, at("old", "v1alpha1"))
	}
	w.taken()
	done := 0
	m := w.migrator(migrate.WithPageSize(2), migrate.WithConverter(lossy{}), migrate.WithObserver(func(p migrate.Progress) { done = p.Done }))
	w.expires()
	plan, err := m.Plan(t.Context(), "v1alpha1")
	w.must(err)
	if plan.Objects != 5 || plan.Managers[0].Objects != 5 {
		t.Errorf("Plan: %d objects, %d of one manager, want 5", plan.Objects, plan.Managers[0].Objects)
	}
	w.expires()
	report, err := m.Rehearse(t.Context())
	w.must(err)
	if report.Objects != 5 || report.Trips[0].Failed != 5 || done != 5 {
		t.Errorf("Rehearse: %d objects, %d failed, progress %d, want 5", report.Objects, report.Trips[0].Failed, done)
	}
	w.expires()
	r, err := m.Run(t.Context(), "")
	w.must(err)
	if r.Objects != 5 || done != 5 {
		t.Errorf("Run: %d objects, progress %d, want 5", r.Objects, done)
	}
}

// A StorageVersionMigration that is left over is of a CRD that was deleted since. The CRD of the same name has the same
// generation again, and nothing of it was migrated.
func TestMigrationOfAnEarlierCRD(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true, "v1alpha1", "v1")
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := w.migrator(migrate.WithObserver(func(migrate.Progress) { cancel() })).Run(ctx, ""); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	w.finish("Succeeded") // after the process has ended
	before := w.crd.DeepCopy()
	uid, version := w.crd.GetUID(), w.crd.GetResourceVersion()
	w.must(w.client.Delete(t.Context(), w.crd, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &uid, ResourceVersion: &version}))
	w.crd = &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": crdName}, "spec": before.Object["spec"]}}
	w.crd.SetGroupVersionKind(crdKind)
	w.must(w.client.Create(t.Context(), w.crd))
	w.store("v1alpha1", "v1")
	if w.crd.GetGeneration() != before.GetGeneration() || w.crd.GetUID() == before.GetUID() {
		t.Fatalf("generation %d and uid %s, before %d and %s", w.crd.GetGeneration(), w.crd.GetUID(), before.GetGeneration(), before.GetUID())
	}
	w.widgets(1)
	asked := 0
	r, err := w.migrator(migrate.WithObserver(func(p migrate.Progress) {
		if strings.Contains(p.Text, "has not begun") {
			asked++
			w.finish("Succeeded")
		}
	})).Run(t.Context(), "")
	w.must(err)
	if asked != 1 {
		t.Errorf("the server was not asked again: %+v", r)
	}
}
