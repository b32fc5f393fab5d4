// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	databasev1 "github.com/ashlar-go/ashlar/examples/database/api/v1"
	"github.com/ashlar-go/ashlar/test/integration/lab"
)

const oldNamespace = "demo-old"

// versions is the first act: a cluster of the release before this one stores v1alpha1, and moves to v1 under a client that
// knows nothing else. It starts the operator. It is over before anything is recorded, because changing a CRD ends the
// watches of its kind.
func (s *story) versions(ctx context.Context) (err error) {
	const title = "A client of v1alpha1 has a Database; storage moves to v1 under it"
	fmt.Printf("\n1. %s\n", title)
	if os.Getenv("KUBECONFIG") != "" {
		fmt.Println("   left out: the API server of another cluster cannot call a webhook on this machine")
		return s.startOperator()
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	begin := time.Now()
	say := func(format string, args ...any) {
		fmt.Printf("  %7.2f s  %s\n", time.Since(s.start).Seconds(), fmt.Sprintf(format, args...))
	}
	if s.webhook, err = lab.FreeAddress(); err != nil {
		return err
	}
	if err := errors.Join(s.lab.StoreAt(ctx, "v1alpha1"), s.lab.Namespace(ctx, oldNamespace), s.startOperator()); err != nil {
		return err
	}
	fmt.Printf("  the operator runs as %s and converts at %s\n", lab.User, s.webhook)

	old := lab.Old(oldNamespace, "ledger")
	old.Object["spec"] = map[string]any{
		"replicas": int64(1), "version": "17", "storage": map[string]any{"size": "1Gi", "class": s.class},
	}
	if err := lab.Eventually(ctx, "the old client creates", func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(s.lab.Client.Create(ctx, old.DeepCopy()))
	}); err != nil {
		return err
	}
	say("v1alpha1  spec.replicas: 1 is created, stored at v1alpha1")
	db := &databasev1.Database{}
	ready := func(replicas int32) error {
		return lab.Eventually(ctx, "the old client's Database is ready", func(ctx context.Context) error {
			if err := s.lab.Client.Get(ctx, client.ObjectKeyFromObject(old), db); err != nil {
				return err
			}
			if db.Spec.ScalePolicy.Replicas != replicas || db.Status.Phase == nil || *db.Status.Phase != databasev1.PhaseReady ||
				db.Status.ObservedGeneration != db.Generation {
				return fmt.Errorf("spec.scalePolicy %+v, phase %v", db.Spec.ScalePolicy, db.Status.Phase)
			}
			return nil
		})
	}
	if err := ready(1); err != nil {
		return err
	}
	if err := s.lab.Client.Patch(ctx, db, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"scalePolicy":{"minReadySeconds":1}}}`))); err != nil {
		return err
	}
	say("v1        spec.scalePolicy.minReadySeconds: 1 is set; v1alpha1 has no place for it")
	if err := s.lab.StoreAt(ctx, "v1"); err != nil {
		return err
	}
	out, err := s.lab.Migrate(ctx)
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		say("migrate   %s", strings.TrimSpace(line))
	}
	if err := lab.Eventually(ctx, "the old client scales", func(ctx context.Context) error {
		if err := s.lab.Client.Get(ctx, client.ObjectKeyFromObject(old), old); err != nil {
			return err
		}
		if err := unstructured.SetNestedField(old.Object, int64(2), "spec", "replicas"); err != nil {
			return err
		}
		return s.lab.Client.Update(ctx, old)
	}); err != nil {
		return err
	}
	say("v1alpha1  spec.replicas: 2 is written by a client that read, edited and wrote all of it")
	if err := ready(2); err != nil {
		return err
	}
	stored, err := s.lab.StoredVersions(ctx)
	if err != nil {
		return err
	}
	said := fmt.Sprintf("stored at %s, replicas 2, minReadySeconds kept, in %.1f s", strings.Join(stored, ", "), time.Since(begin).Seconds())
	if db.Spec.ScalePolicy.MinReadySeconds != 1 || !slices.Equal(stored, []string{"v1"}) {
		s.wrong = append(s.wrong, fmt.Errorf("%s: minReadySeconds is %d, stored versions are %v", title, db.Spec.ScalePolicy.MinReadySeconds, stored))
		said = "WRONG: " + s.wrong[len(s.wrong)-1].Error()
	}
	s.summary = append(s.summary, title+": "+said)
	return nil
}
