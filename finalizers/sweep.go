// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers

import (
	"context"
	"fmt"
	"iter"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// sweepPage is how many objects one LIST asks for.
const sweepPage = 500

// Sweep finds holds whose owner is gone: somebody removed the owner's finalizer by force, so no cleanup step called
// [Unhold], and the held object can never be deleted. Each is yielded as a Ref of the held object with the hold in
// Finalizer, in the order of held and of the server's lists. Nothing is changed: remove the entry by hand, or decide
// in your own code what to do with it.
//
// The held kinds are listed first and the owners afterwards, so a hold that is taken during the sweep is never
// reported. Holds of other owner kinds are left alone. A kind that cannot be listed yields an error and the sweep goes
// on; when the owners cannot be listed nothing can be said, and the error is the last element.
//
// live must be an uncached reader. Only metadata is read, in all namespaces, 500 objects a page. RBAC: list on the
// owner's and the held kinds.
func Sweep(ctx context.Context, live client.Reader, owner schema.GroupVersionKind, held ...schema.GroupVersionKind,
) iter.Seq2[Ref, error] {
	return func(yield func(Ref, error) bool) {
		var holds []Ref
		prefix := holdNameOf(owner.GroupKind())
		for _, gvk := range held {
			err := listAll(ctx, live, gvk, func(m *metav1.PartialObjectMetadata) {
				for _, entry := range m.Finalizers {
					if strings.HasPrefix(entry, prefix) {
						holds = append(holds, Ref{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind,
							Namespace: m.Namespace, Name: m.Name, UID: m.UID, Finalizer: entry})
					}
				}
			})
			if err != nil && !yield(Ref{}, &Error{Op: opSweep, Object: Ref{Kind: gvk.Kind}, Err: err}) {
				return
			}
		}
		if len(holds) == 0 {
			return
		}

		alive := map[string]bool{}
		err := listAll(ctx, live, owner, func(m *metav1.PartialObjectMetadata) {
			alive[holdName(owner.GroupKind(), m.UID)] = true
		})
		if err != nil {
			yield(Ref{}, &Error{Op: opSweep, Object: Ref{Kind: owner.Kind}, Err: err})
			return
		}
		seen := map[Ref]bool{} // a list that had to start again shows objects twice
		for _, ref := range holds {
			if alive[ref.Finalizer] || seen[ref] {
				continue
			}
			seen[ref] = true
			if !yield(ref, nil) {
				return
			}
		}
	}
}

const opSweep = "sweep"

// listAll pages through the metadata of all objects of a kind. When the server has forgotten the revision that the pages
// were cut from, everything is listed once more in one piece: half a list of owners would make live ones look dead.
func listAll(ctx context.Context, live client.Reader, gvk schema.GroupVersionKind, each func(*metav1.PartialObjectMetadata)) error {
	limit, token := int64(sweepPage), ""
	for {
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		err := live.List(ctx, page, client.Limit(limit), client.Continue(token))
		if apierrors.IsResourceExpired(err) && limit > 0 {
			limit, token = 0, ""
			continue
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", gvk.Kind, err)
		}
		for i := range page.Items {
			each(&page.Items[i])
		}
		if token = page.Continue; token == "" {
			return nil
		}
	}
}
