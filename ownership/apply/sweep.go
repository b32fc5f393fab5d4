// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/ashlar-go/ashlar/ownership"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	sweepAge  = 10 * time.Minute
	sweepPage = 500
)

// Sweep finds label claims whose owner is gone: somebody removed the owner's finalizer by force, and no garbage
// collector knows the child. It yields the children older than 10 minutes whose owner a live read does not find, or
// finds under another uid. An owner that cannot be read is an error for its children, never a finding. With
// WithSweepDelete each finding is deleted, after it was yielded, with uid and resourceVersion preconditions; a delete
// that fails is yielded again with its error.
//
// Requests: one live list of metadata per label-carried kind and page of 500, one live get per owner, one delete per
// finding when asked to.
func (a *Applier) Sweep(ctx context.Context) iter.Seq2[ownership.Ref, error] {
	return func(yield func(ownership.Ref, error) bool) {
		gone := map[types.UID]error{} // by claimed uid: nil = gone, errAlive, or why it is not known
		for _, k := range a.kinds {
			if _, label := a.set.Carriers(k); !label {
				continue
			}
			if !a.sweepKind(ctx, k, gone, yield) {
				return
			}
		}
	}
}

type aliveError struct{}

func (aliveError) Error() string { return "alive" }

func (a *Applier) sweepKind(ctx context.Context, k ownership.Kind, gone map[types.UID]error, yield func(ownership.Ref, error) bool) bool {
	list := &metav1.PartialObjectMetadataList{}
	for next := ""; ; next = list.Continue {
		list.SetGroupVersionKind(k.GroupVersion().WithKind(k.GroupVersionKind.Kind + "List"))
		err := a.live.List(ctx, list, client.HasLabels{a.set.LabelKey()}, client.Limit(sweepPage), client.Continue(next))
		if meta.IsNoMatchError(err) {
			return true
		}
		if err != nil {
			return yield(ownership.Ref{GroupVersionKind: k.GroupVersionKind},
				fmt.Errorf("sweep %s of set %q: %w", k.GroupVersionKind.Kind, a.set.Name(), err))
		}
		for i := range list.Items {
			if !a.sweepOne(ctx, k, &list.Items[i], gone, yield) {
				return false
			}
		}
		if list.Continue == "" {
			return true
		}
	}
}

func (a *Applier) sweepOne(ctx context.Context, k ownership.Kind, o *metav1.PartialObjectMetadata, gone map[types.UID]error, yield func(ownership.Ref, error) bool) bool {
	if o.DeletionTimestamp != nil || a.now().Sub(o.CreationTimestamp.Time) < sweepAge {
		return true
	}
	for _, r := range o.OwnerReferences {
		if r.Controller != nil && *r.Controller {
			return true // somebody else looks after it
		}
	}
	ref := ownership.Ref{GroupVersionKind: k.GroupVersionKind, Namespace: o.Namespace, Name: o.Name}
	owner, ok := a.set.Noted(o)
	if !ok {
		return yield(ref, fmt.Errorf("sweep %s: its annotation does not name an owner of set %q", ref, a.set.Name()))
	}
	uid := types.UID(o.Labels[a.set.LabelKey()])
	state, known := gone[uid]
	if !known {
		state = a.ownerGone(ctx, owner, uid)
		gone[uid] = state
	}
	switch state.(type) {
	case nil:
	case aliveError:
		return true
	default:
		return yield(ref, fmt.Errorf("sweep %s: %w", ref, state))
	}
	if !yield(ref, nil) {
		return false
	}
	if !a.sweepDelete {
		return true
	}
	err := a.c.Delete(ctx, bare(ref), client.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion},
		client.PropagationPolicy(a.propagation))
	if err != nil && !apierrors.IsNotFound(err) {
		return yield(ref, fmt.Errorf("sweep: delete %s: %w", ref, err))
	}
	return true
}

// ownerGone asks for the owner at the version the set declares, whatever version the annotation has.
func (a *Applier) ownerGone(ctx context.Context, owner ownership.Ref, uid types.UID) error {
	owner.GroupVersionKind = a.set.Owner()
	o, err := a.get(ctx, a.live, owner)
	switch {
	case err != nil:
		return err
	case o == nil || o.GetUID() != uid:
		return nil
	}
	return aliveError{}
}
