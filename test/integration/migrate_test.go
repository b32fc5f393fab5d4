// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/conversion/migrate"
	"github.com/ashlar-go/ashlar/reconciletest"
	"github.com/ashlar-go/ashlar/test/integration/lab"
)

// moved is a kind with two versions of one shape, so that no webhook is needed, and objects that are stored at the old one.
type moved struct {
	*testing.T
	ns, crd string
	group   string
	c       client.Client // held to the laws of writing
}

func newMoved(t *testing.T, group string) *moved {
	t.Helper()
	m := &moved{T: t, ns: namespace(t.Context(), t), group: group, crd: "parcels." + group}
	laws := reconciletest.NewLawTransport(t, nil)
	config := cluster.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return laws.Wrap(next) })
	m.storage("v1alpha1", "v1alpha1", "v1")
	err := lab.Eventually(t.Context(), "the kind is served", func(ctx context.Context) error {
		_, err := cluster.Client.RESTMapper().RESTMapping(schema.GroupKind{Group: group, Kind: "Parcel"}, "v1alpha1")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if m.c, err = client.New(config, client.Options{Scheme: runtime.NewScheme()}); err != nil {
		t.Fatal(err)
	}
	return m
}

// storage applies the CRD with these versions, the first argument being the one that is stored. A version with a minus is
// not served.
func (m *moved) storage(storage string, versions ...string) error {
	m.Helper()
	var list []any
	for _, v := range versions {
		name := strings.TrimPrefix(v, "-")
		list = append(list, map[string]any{
			"name": name, "served": name == v, "storage": name == storage,
			"subresources": map[string]any{"status": map[string]any{}},
			"schema":       map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		})
	}
	crd := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": m.crd},
		"spec": map[string]any{
			"group": m.group, "scope": "Namespaced", "versions": list,
			"names": map[string]any{"kind": "Parcel", "plural": "parcels", "singular": "parcel", "listKind": "ParcelList"},
		},
	}}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	return cluster.Client.Apply(m.Context(), client.ApplyConfigurationFromUnstructured(crd), client.FieldOwner("lab"), client.ForceOwnership)
}

func (m *moved) must(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

func (m *moved) parcel(name, version string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"to": name}}}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: m.group, Version: version, Kind: "Parcel"})
	o.SetNamespace(m.ns)
	o.SetName(name)
	return o
}

// fill creates n parcels at the old version.
func (m *moved) fill(n int) {
	m.Helper()
	var group sync.WaitGroup
	var mu sync.Mutex
	var errs error
	for worker := range 8 {
		group.Go(func() {
			for i := worker; i < n; i += 8 {
				o := m.parcel(fmt.Sprintf("p%05d", i), "v1alpha1")
				err := lab.Eventually(m.Context(), "a parcel is created", func(ctx context.Context) error {
					return client.IgnoreAlreadyExists(m.c.Create(ctx, o.DeepCopy()))
				})
				if err != nil {
					mu.Lock()
					errs = errors.Join(errs, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	group.Wait()
	m.must(errs)
}

func (m *moved) stored() []string {
	m.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	m.must(cluster.Client.Get(m.Context(), client.ObjectKey{Name: m.crd}, crd))
	list, _, err := unstructured.NestedStringSlice(crd.Object, "status", "storedVersions")
	m.must(err)
	return list
}

// gone removes the old version from the CRD and reads every object. The server refuses while the old version may be stored,
// and cannot read an object that still is.
func (m *moved) gone(n int) {
	m.Helper()
	m.must(m.storage("v1", "v1"))
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: m.group, Version: "v1", Kind: "ParcelList"})
	m.must(lab.Eventually(m.Context(), "all parcels are read without the old version", func(ctx context.Context) error {
		if err := m.c.List(ctx, list, client.InNamespace(m.ns)); err != nil {
			return err
		}
		if len(list.Items) != n {
			return fmt.Errorf("%d of %d", len(list.Items), n)
		}
		return nil
	}))
}

// TestMigrateManyObjects migrates 10 000 objects by itself, is interrupted and goes on.
func TestMigrateManyObjects(t *testing.T) {
	t.Parallel()
	const n = 10_000
	m := newMoved(t, "many.example.com")
	m.fill(n)
	m.must(m.storage("v1", "v1alpha1", "v1"))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var lines []string
	mig, err := migrate.New(m.c, m.c, m.crd, migrate.WithoutDelegation(), migrate.WithParallel(8),
		migrate.WithObserver(func(p migrate.Progress) {
			lines = append(lines, p.String())
			if p.Done >= n*4/10 {
				cancel()
			}
		}))
	m.must(err)
	plan, err := mig.Plan(t.Context(), "v1alpha1")
	m.must(err)
	if plan.Empty() || plan.Objects != n || !slices.Equal(plan.Stored, []string{"v1alpha1", "v1"}) {
		t.Errorf("plan: %v", plan)
	}
	start := time.Now()
	first, err := mig.Run(ctx, "")
	if !errors.Is(err, context.Canceled) || first.Complete || first.Resume == "" {
		t.Fatalf("interrupted: %+v, %v", first, err)
	}
	if _, err := mig.Prune(t.Context(), first); !errors.Is(err, migrate.ErrIncomplete) {
		t.Errorf("pruned what is not complete: %v", err)
	}
	rest, err := mig.Run(t.Context(), first.Resume)
	m.must(err)
	took := time.Since(start)
	if !rest.Complete || first.Objects+rest.Objects < n || first.Objects+rest.Objects > n+1000 {
		t.Errorf("%d and %d objects: %+v", first.Objects, rest.Objects, rest)
	}
	if want := fmt.Sprintf("%s: 500 of %d objects", m.crd, n); len(lines) < 20 || lines[0] != want {
		t.Errorf("%d lines of progress, the first is %q, want %q", len(lines), lines[0], want)
	}
	dropped, err := mig.Prune(t.Context(), rest)
	m.must(err)
	if !slices.Equal(dropped, []string{"v1alpha1"}) || !slices.Equal(m.stored(), []string{"v1"}) {
		t.Errorf("dropped %q, stored %q", dropped, m.stored())
	}
	t.Logf("%d objects in %.1f s: %s; %s", n, took.Seconds(), lines[0], lines[len(lines)-1])
	m.gone(n)
}

// TestMigratePrunesOnlyWhatItMay changes the CRD between run and prune, and leaves the old version stored by writing at it.
func TestMigratePrunesOnlyWhatItMay(t *testing.T) {
	t.Parallel()
	m := newMoved(t, "guard.example.com")
	m.fill(3)
	m.must(m.storage("v1", "v1alpha1", "v1"))
	mig, err := migrate.New(m.c, m.c, m.crd, migrate.WithoutDelegation())
	m.must(err)
	done, err := mig.Run(t.Context(), "")
	m.must(err)
	// Back and forth: objects may have been stored at the old version meanwhile.
	m.must(m.storage("v1alpha1", "v1alpha1", "v1"))
	m.must(m.storage("v1", "v1alpha1", "v1"))
	if _, err := mig.Prune(t.Context(), done); !errors.Is(err, migrate.ErrChanged) || len(m.stored()) != 2 {
		t.Errorf("pruned under another generation: %v, stored %q", err, m.stored())
	}
	if err := m.storage("v1", "v1"); !apierrors.IsInvalid(err) {
		t.Errorf("the server lets a stored version go: %v", err)
	}
	done, err = mig.Run(t.Context(), "")
	m.must(err)
	_, err = mig.Prune(t.Context(), done)
	m.must(err)
	m.gone(3)
}

// TestMigrateDelegated lets the server do it, which it does by the API it serves.
func TestMigrateDelegated(t *testing.T) {
	t.Parallel()
	m := newMoved(t, "delegated.example.com")
	m.fill(50)
	m.must(m.storage("v1", "v1alpha1", "v1"))
	var lines []string
	mig, err := migrate.New(m.c, m.c, m.crd, migrate.WithObserver(func(p migrate.Progress) { lines = append(lines, p.String()) }))
	m.must(err)
	done, err := mig.Run(t.Context(), "")
	m.must(err)
	if !done.Delegated || done.Written != 0 || !done.Complete {
		t.Errorf("%+v: %q", done, lines)
	}
	_, err = mig.Prune(t.Context(), done)
	m.must(err)
	if !slices.Equal(m.stored(), []string{"v1"}) {
		t.Errorf("stored %q", m.stored())
	}
	t.Logf("%q", lines)
	m.gone(50)
}

// TestMigrateDeadManagers removes a version that a manager has applied at. Before, every apply of the object fails for
// ever (kubernetes/kubernetes#111937); after the entries are cleaned, it works and takes a field away.
func TestMigrateDeadManagers(t *testing.T) {
	t.Parallel()
	m := newMoved(t, "dead.example.com")
	old := m.parcel("a", "v1alpha1")
	apply := func(o *unstructured.Unstructured, manager string) error {
		return m.c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o.DeepCopy()), client.FieldOwner(manager), client.ForceOwnership)
	}
	// Create only: no object has this version.
	old.SetResourceVersion("1")
	m.must(lab.Eventually(t.Context(), "the parcel is applied", func(context.Context) error { return apply(old, "terraform") }))
	m.must(m.storage("v1", "v1alpha1", "v1"))
	mig, err := migrate.New(m.c, m.c, m.crd, migrate.WithoutDelegation())
	m.must(err)
	plan, err := mig.Plan(t.Context(), "v1alpha1")
	m.must(err)
	if len(plan.Managers) != 1 || plan.Managers[0].Name != "terraform" || plan.Managers[0].Version != "v1alpha1" {
		t.Errorf("plan: %v", plan)
	}
	m.must(m.storage("v1", "-v1alpha1", "v1"))
	done, err := mig.Run(t.Context(), "")
	m.must(err)
	_, err = mig.Prune(t.Context(), done)
	m.must(err)
	m.gone(1)
	live := m.parcel("a", "v1")
	m.must(m.c.Get(t.Context(), client.ObjectKeyFromObject(live), live))
	for _, e := range live.GetManagedFields() {
		if e.APIVersion != m.group+"/v1" {
			t.Errorf("managedFields still name %s by %s", e.APIVersion, e.Manager)
		}
	}
	change := m.parcel("a", "v1")
	change.SetUID(live.GetUID())
	change.Object["spec"] = map[string]any{"from": "b"}
	if err := apply(change, "kubectl"); err != nil {
		t.Errorf("apply after the old version is gone: %v", err)
	}
	if plan, err = mig.Plan(t.Context(), "v1alpha1"); err != nil || !plan.Empty() {
		t.Errorf("afterwards: %v, %v", plan, err)
	}
}
