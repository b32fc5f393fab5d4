// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var svmKind = schema.GroupVersionKind{Group: "storagemigration.k8s.io", Version: "v1", Kind: "StorageVersionMigration"}

// delegate asks the server to do it and waits. It says false when the server does not serve the API, or gave up: it does
// so at the first object that cannot be written, and going on past that one is left to us.
func (m *Migrator) delegate(ctx context.Context, d *definition) (bool, error) {
	if _, err := m.c.RESTMapper().RESTMapping(svmKind.GroupKind(), svmKind.Version); meta.IsNoMatchError(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("migrate %s: look for %s: %w", d.name, svmKind.GroupKind(), err)
	}
	svm := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"resource": map[string]any{"group": d.group, "resource": d.plural},
	}}}
	svm.SetGroupVersionKind(svmKind)
	// One that is left over from a CRD of this name that was deleted since says nothing about this one.
	svm.SetName(fmt.Sprintf("%s-%s-%d", d.plural, d.uid, d.generation))
	err := m.c.Create(ctx, svm)
	if apierrors.IsForbidden(err) {
		return false, nil // the right to do it ourselves is enough
	}
	if err != nil && !apierrors.IsAlreadyExists(err) { // one that exists is of a run before this one
		return false, fmt.Errorf("migrate %s: create StorageVersionMigration %s: %w", d.name, svm.GetName(), err)
	}
	said := ""
	for tick := time.NewTicker(time.Second); ; {
		state, text, err := m.look(ctx, svm)
		if err != nil {
			tick.Stop()
			return false, fmt.Errorf("migrate %s: read StorageVersionMigration %s: %w", d.name, svm.GetName(), err)
		}
		if text != said {
			said = text
			m.observe(Progress{CRD: d.name, Text: text})
		}
		if state != "" {
			tick.Stop()
			return state == "Succeeded", m.discard(ctx, svm)
		}
		select {
		case <-ctx.Done():
			tick.Stop()
			return false, ctx.Err()
		case <-tick.C:
		}
	}
}

// look returns how the migration ended, "" while it runs, and what is said of it.
func (m *Migrator) look(ctx context.Context, svm *unstructured.Unstructured) (state, text string, err error) {
	if err := m.retry(ctx, func() error { return m.live.Get(ctx, client.ObjectKeyFromObject(svm), svm) }); err != nil {
		return "", "", err
	}
	text = "the server has not begun to migrate"
	list, _, _ := unstructured.NestedSlice(svm.Object, "status", "conditions")
	for _, item := range list {
		c, _ := item.(map[string]any)
		if c["status"] != string(metav1.ConditionTrue) {
			continue
		}
		typ, _ := c["type"].(string)
		said, _ := c["message"].(string)
		text = strings.TrimSuffix(fmt.Sprintf("the server's migration: %s: %s", typ, said), ": ")
		if typ == "Succeeded" || typ == "Failed" {
			return typ, text, nil
		}
	}
	return "", text, nil
}

// discard deletes the migration that is over, or the next one of this generation would find it done.
func (m *Migrator) discard(ctx context.Context, svm *unstructured.Unstructured) error {
	uid, version := svm.GetUID(), svm.GetResourceVersion()
	err := m.c.Delete(ctx, svm, client.PropagationPolicy(metav1.DeletePropagationBackground),
		client.Preconditions{UID: &uid, ResourceVersion: &version})
	if err := client.IgnoreNotFound(err); err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete StorageVersionMigration %s: %w", svm.GetName(), err)
	}
	return nil
}
