// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package pki makes the certificates and keys of one throw-away control plane.
package pki
