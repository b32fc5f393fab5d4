// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"fmt"

	"github.com/ashlar-go/ashlar/ownership"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// IndexField is the name of the field index that Index registers for a set's children.
func IndexField(s *ownership.Set) string { return ownership.Prefix + "owner-uid." + s.Name() }

// Index registers one field index per declared kind with a manager's field indexer, so that finding the children of an
// owner costs O(children) instead of O(objects of the kind). Call it before the manager starts and before the first
// pass; the client of New must then read from the indexed cache.
func (a *Applier) Index(ctx context.Context, i client.FieldIndexer) error {
	for _, k := range a.kinds {
		o, err := a.newObject(k.GroupVersionKind)
		if err != nil {
			return err
		}
		if err := i.IndexField(ctx, o, IndexField(a.set), a.indexValues); err != nil {
			return fmt.Errorf("index %s by owner of set %q: %w", k.GroupVersionKind.Kind, a.set.Name(), err)
		}
	}
	a.indexed.Store(true)
	return nil
}

// indexValues are the uids that claim an object; for one that lost its claim and still names an owner, the name.
func (a *Applier) indexValues(o client.Object) []string {
	vals := a.set.Claimants(o)
	if ref, ok := a.set.Noted(o); ok {
		vals = append(vals, lostKey(ref.Namespace, ref.Name))
	}
	return vals
}

// lostKey cannot be a uid: it holds a slash.
func lostKey(ns, name string) string { return ns + "/" + name }
