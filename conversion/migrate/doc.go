// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package migrate moves what the API server has stored of a CustomResourceDefinition to its storage version, so that an
// old version can be dropped. A version that is still named by status.storedVersions cannot be removed from the CRD, and
// one that is removed while an object's managedFields name it makes that object impossible to apply.
//
//	m, err := migrate.New(mgr.GetClient(), mgr.GetAPIReader(), "databases.example.com", migrate.WithConverter(databases))
//	plan, err := m.Plan(ctx, "v1alpha1")      // what blocks dropping it
//	report, err := m.Rehearse(ctx)            // would anything be lost? reads only
//	done, err := m.Run(ctx, "")               // writes every object once
//	dropped, err := m.Prune(ctx, done)        // status.storedVersions says so
//
// # Guarantees
//
//   - Plan and Rehearse write nothing.
//   - Every write names the resourceVersion it was decided on. An object that changed meanwhile is stored at the storage
//     version by that change, so a conflict is a success.
//   - One object that cannot be written stops nothing: it is named in the result, and Prune refuses until it is mended.
//   - A run that is interrupted says where to go on, and that mark does not expire.
//   - Prune takes a version off status.storedVersions only when every object that existed was migrated under the very
//     generation of the CRD that still is in force.
//   - When nothing is left to migrate, Run and Prune write nothing.
//
// # Assumptions
//
//   - Every API server of the cluster has seen the CRD's current storage version: one that has not may still write the
//     old one. Wait a minute after changing it.
//   - Nobody else migrates the same CRD in another way at the same time; two runs of this package do no harm.
//
// # Cost
//
// Requests: Plan one for the CRD and one for each page of 500 objects (metadata alone). Rehearse the same with whole
// objects. Run, when the server serves storagemigration.k8s.io/v1: one create, one read a second, and a page for each 500
// objects to clean managedFields; else one page for each 500 objects and one write for each object. The server calls a
// conversion webhook up to ten times for such a write. Prune one read and one write.
//
// # RBAC
//
// get on customresourcedefinitions; list and, without delegation or for managedFields, patch on the resource (patch on its
// status with WithStatusTouch); patch on customresourcedefinitions/status for Prune; create, get and delete on
// storageversionmigrations.storagemigration.k8s.io for delegation.
//
// # Not for
//
// Built-in kinds, and moving objects between clusters.
package migrate
