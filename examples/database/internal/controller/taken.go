// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dbv1 "github.com/ashlar-go/ashlar/examples/database/api/v1"
	"github.com/ashlar-go/ashlar/ownership"
)

// takenAgain is when a taken name is looked at again: events of somebody else's
// object do not lead to a Database.
const takenAgain = 20 * time.Second

// taken says whose object has the name of a child, or nothing. The cache holds our
// own objects only, so what is about to be created is looked for live.
func (r *Reconciler) taken(ctx context.Context, db *dbv1.Database, plan ownership.Plan) (string, error) {
	for _, d := range plan.Decisions {
		switch d.Verb {
		case ownership.Conflict:
			return refusal(d.Ref, d.Object), nil
		case ownership.Create:
			found := &metav1.PartialObjectMetadata{}
			found.SetGroupVersionKind(d.Ref.GroupVersionKind)
			err := r.live.Get(ctx, client.ObjectKey{Namespace: d.Ref.Namespace, Name: d.Ref.Name}, found)
			if client.IgnoreNotFound(err) != nil {
				return "", fmt.Errorf("look whether %s is free: %w", d.Ref, err)
			}
			if err == nil && found.DeletionTimestamp == nil && !r.children.set.Claimed(db, found) {
				return refusal(d.Ref, found), nil
			}
		}
	}
	return "", nil
}

func refusal(ref ownership.Ref, found ownership.Object) string {
	holder := "nobody"
	if found != nil {
		if owner, ok := ownership.OwnerOf(found); ok {
			holder = owner.String()
		}
	}
	return fmt.Sprintf("%s exists and is controlled by %s, and metadata.name names every child of a Database:"+
		" delete or rename it, or give the Database another name", ref, holder)
}
