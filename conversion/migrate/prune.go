// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Prune takes every version but the storage version off status.storedVersions and returns those it took. done is the
// result of a run that is complete. The server that did a delegated migration may have pruned already; then nothing is
// written.
//
// Errors: ErrIncomplete when the run left something behind, ErrChanged when the CRD's generation or storage version is not
// the one that was migrated. Requests: one read and, if there is something to take off, one write; three of each when
// others keep writing the CRD.
func (m *Migrator) Prune(ctx context.Context, done Result) ([]string, error) {
	if !done.Complete {
		return nil, fmt.Errorf("prune storedVersions of %s: %w", m.crd, ErrIncomplete)
	}
	for try := 1; ; try++ {
		d, err := m.read(ctx)
		if err != nil {
			return nil, err
		}
		if d.uid != done.uid || d.generation != done.Generation || d.storage != done.Storage {
			return nil, fmt.Errorf("prune storedVersions of %s: %w: generation %d and storage version %s were migrated, now it is %d and %s",
				m.crd, ErrChanged, done.Generation, done.Storage, d.generation, d.storage)
		}
		if d.settled() {
			return nil, nil
		}
		body, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": d.uid, "resourceVersion": d.resourceVersion},
			"status":   map[string]any{"storedVersions": []string{d.storage}},
		})
		if err != nil {
			return nil, err
		}
		crd := &unstructured.Unstructured{}
		crd.SetGroupVersionKind(crdKind)
		crd.SetName(d.name)
		err = m.retry(ctx, func() error { return m.c.Status().Patch(ctx, crd, client.RawPatch(types.MergePatchType, body)) })
		if apierrors.IsConflict(err) && try < 3 {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("prune storedVersions of %s: %w", m.crd, err)
		}
		var dropped []string
		for _, v := range d.stored {
			if v != d.storage {
				dropped = append(dropped, v)
			}
		}
		return dropped, nil
	}
}
