// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package assets builds the programs of a control plane from Go modules and keeps them in the user's cache.
//
// The cache is <user cache>/ashlar/controlplane/<Kubernetes version>-<hash of everything that decides the content>/.
// Its manifest names every complete file with size and checksum and is written after the file: what is not in the
// manifest, or differs from it, is built again, and nothing else is. A binary is linked to a temporary name and renamed;
// what the compiler finished before an interruption is in Go's own build cache. So an interrupted build resumes, and a
// damaged cache is repaired, by the same rule. One builder works at a time, under a lock file that dies with it.
package assets
