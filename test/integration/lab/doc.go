// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package lab runs the database operator on a real control plane the way a cluster
// does: as a process of its own, under its own service account and the rules of its
// own manifests. The integration tests and the demo share it.
package lab
