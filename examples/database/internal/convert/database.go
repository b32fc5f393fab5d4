// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"context"

	"github.com/ashlar-go/ashlar/conversion"
	dbv1 "github.com/ashlar-go/ashlar/examples/database/api/v1"
	"github.com/ashlar-go/ashlar/examples/database/api/v1alpha1"
)

// Databases converts between v1alpha1 and v1. The two functions say what becomes
// what; minReadySeconds and phase, which v1alpha1 has no place for, are kept in an
// annotation and come back.
func Databases() (*conversion.Converter, error) {
	b := conversion.New(dbv1.DatabaseKind.GroupKind())
	conversion.Pair(b, "v1alpha1", "v1", up, down)
	return b.Build()
}

func up(_ context.Context, in *v1alpha1.Database, out *dbv1.Database) error {
	out.Spec = dbv1.DatabaseSpec{
		ScalePolicy: dbv1.ScalePolicy{Replicas: in.Spec.Replicas},
		Version:     in.Spec.Version,
		Storage:     dbv1.Storage(in.Spec.Storage),
	}
	out.Status = dbv1.DatabaseStatus{
		ObservedGeneration: in.Status.ObservedGeneration,
		Version:            in.Status.Version,
		Conditions:         in.Status.Conditions,
	}
	conversion.Shadow(&out.Status.ReadyReplicas, in.Status.ReadyReplicas)
	return nil
}

func down(_ context.Context, in *dbv1.Database, out *v1alpha1.Database) error {
	out.Spec = v1alpha1.DatabaseSpec{
		Replicas: in.Spec.ScalePolicy.Replicas,
		Version:  in.Spec.Version,
		Storage:  v1alpha1.Storage(in.Spec.Storage),
	}
	out.Status = v1alpha1.DatabaseStatus{
		ObservedGeneration: in.Status.ObservedGeneration,
		Version:            in.Status.Version,
		Conditions:         in.Status.Conditions,
	}
	conversion.Shadow(&out.Status.ReadyReplicas, in.Status.ReadyReplicas)
	return nil
}
