// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 declares Database as it was first served. The operator does
// not use it: the API server converts, by the functions of internal/convert.
//
// +kubebuilder:object:generate=true
// +groupName=db.example.com
package v1alpha1
