// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	databasev1 "github.com/ashlar-go/ashlar/examples/database/api/v1"
	"github.com/ashlar-go/ashlar/test/integration/lab"
)

// TestVersions is the way of a Database from the release that stored v1alpha1 to one that stores v1, with clients of both.
// It has a control plane of its own: changing a CRD ends every watch of its kind.
func TestVersions(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	l, err := lab.Start(ctx, io.Discard, "")
	must(err)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	must(l.StoreAt(ctx, "v1alpha1"))
	const ns = "versions"
	must(l.Namespace(ctx, ns))
	run := func(args ...string) *lab.Process {
		t.Helper()
		address, err := lab.FreeAddress()
		must(err)
		p, err := l.Run(lab.Operator{Namespaces: []string{ns}, Webhook: address, Args: args})
		must(err)
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("an operator said:\n%s", p.Tail(8000))
			}
			p.Kill()
		})
		return p
	}
	first := run()

	// An old client creates, at the version that is stored.
	old := lab.Old(ns, "db")
	old.Object["spec"] = map[string]any{
		"replicas": int64(1), "version": "17", "storage": map[string]any{"size": "1Gi", "class": storageClass},
	}
	must(lab.Eventually(ctx, "the old client creates", func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(l.Client.Create(ctx, old.DeepCopy()))
	}))
	db := &databasev1.Database{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "db"}}
	ready := func(replicas int32) {
		t.Helper()
		must(lab.Eventually(ctx, "the Database is ready", func(ctx context.Context) error {
			if err := l.Client.Get(ctx, client.ObjectKeyFromObject(db), db); err != nil {
				return err
			}
			c := meta.FindStatusCondition(db.Status.Conditions, "Ready")
			if c == nil || c.Status != "True" || c.ObservedGeneration != db.Generation || db.Spec.ScalePolicy.Replicas != replicas {
				return fmt.Errorf("%d replicas, Ready is %+v", db.Spec.ScalePolicy.Replicas, c)
			}
			return nil
		}))
	}
	ready(1)
	if db.Status.Phase == nil || *db.Status.Phase != databasev1.PhaseReady {
		t.Errorf("phase is %v", db.Status.Phase)
	}
	// read returns what the old client sees.
	read := func() *unstructured.Unstructured {
		t.Helper()
		must(l.Client.Get(ctx, client.ObjectKeyFromObject(old), old))
		return old
	}
	if n, _, _ := unstructured.NestedInt64(read().Object, "status", "readyReplicas"); n != 1 {
		t.Errorf("the old client sees %d ready replicas: %v", n, old.Object["status"])
	}
	if _, found, _ := unstructured.NestedString(old.Object, "status", "phase"); found {
		t.Error("the old client sees a field that its version does not have")
	}

	// A new client sets what v1alpha1 has no place for; the old one reads, edits and writes all of it.
	slow := func(seconds int) {
		t.Helper()
		must(l.Client.Patch(ctx, db, client.RawPatch("application/merge-patch+json",
			fmt.Appendf(nil, `{"spec":{"scalePolicy":{"minReadySeconds":%d}}}`, seconds))))
	}
	scale := func(n int64, change func(*unstructured.Unstructured)) {
		t.Helper()
		must(lab.Eventually(ctx, "the old client scales", func(ctx context.Context) error {
			if err := l.Client.Get(ctx, client.ObjectKeyFromObject(old), old); err != nil {
				return err
			}
			if err := unstructured.SetNestedField(old.Object, n, "spec", "replicas"); err != nil {
				return err
			}
			change(old)
			return l.Client.Update(ctx, old)
		}))
	}
	keep := func(*unstructured.Unstructured) {}
	slow(1)
	scale(2, keep)
	ready(2)
	if db.Spec.ScalePolicy.MinReadySeconds != 1 {
		t.Error("a client of v1alpha1 that keeps annotations lost minReadySeconds")
	}

	// The next release stores v1. Whatever is stored moves, and the old client goes on.
	must(l.StoreAt(ctx, "v1"))
	out, err := l.Migrate(ctx)
	must(err)
	for _, want := range []string{"v1alpha1 and back: 0 failed, 0 lossy, 1 need the annotation", "1 Databases are stored at v1; storedVersions lost [v1alpha1]"} {
		if !strings.Contains(out, want) {
			t.Errorf("the migration does not say %q:\n%s", want, out)
		}
	}
	stored, err := l.StoredVersions(ctx)
	must(err)
	if !slices.Equal(stored, []string{"v1"}) {
		t.Errorf("stored versions are %q", stored)
	}
	scale(1, keep)
	ready(1)
	if db.Spec.ScalePolicy.MinReadySeconds != 1 || len(db.Annotations) > 0 {
		t.Errorf("after the migration: %+v, annotations %v", db.Spec.ScalePolicy, db.Annotations)
	}

	// A second replica that does not lead, and whose caches wait for nothing, serves as well. It has published its address.
	leader := run("--leader-elect", "--leader-election-namespace="+lab.SystemNamespace)
	must(lab.Eventually(ctx, "somebody leads", func(ctx context.Context) error { return leads(ctx, l) }))
	second := run("--leader-elect", "--leader-election-namespace="+lab.SystemNamespace)
	must(lab.Eventually(ctx, "the replica that does not lead converts", func(ctx context.Context) error {
		if !strings.Contains(second.Tail(1<<16), "Serving webhook server") {
			return errors.New("it does not serve yet")
		}
		first.Kill()
		leader.Kill()
		return l.Client.Get(ctx, client.ObjectKeyFromObject(old), old)
	}))

	// A full replace without the annotation is a full replace.
	scale(1, func(o *unstructured.Unstructured) { o.SetAnnotations(nil) })
	must(l.Client.Get(ctx, client.ObjectKeyFromObject(db), db))
	if db.Spec.ScalePolicy.MinReadySeconds != 0 {
		t.Error("a replace without annotations kept what it did not name")
	}

	// What somebody else writes into the CRD is repaired by the next replica that starts.
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	crd.SetName("databases.db.example.com")
	secret := &corev1.Secret{}
	must(l.Client.Get(ctx, client.ObjectKey{Namespace: lab.SystemNamespace, Name: "database-operator-webhook"}, secret))
	must(l.Client.Patch(ctx, crd, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"conversion":{"webhook":{"clientConfig":{"caBundle":null}}}}}`))))
	run()
	must(lab.Eventually(ctx, "the old client reads with a repaired CRD", func(ctx context.Context) error {
		return l.Client.Get(ctx, client.ObjectKeyFromObject(old), old)
	}))
}

func leads(ctx context.Context, l *lab.Lab) error {
	lease := &unstructured.Unstructured{}
	lease.SetAPIVersion("coordination.k8s.io/v1")
	lease.SetKind("Lease")
	if err := l.Client.Get(ctx, client.ObjectKey{Namespace: lab.SystemNamespace, Name: "database-operator"}, lease); err != nil {
		return err
	}
	if holder, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity"); holder == "" {
		return errors.New("nobody holds the lease")
	}
	return nil
}
