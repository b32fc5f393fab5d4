// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package v1 declares Database, the resource of this operator. It imports
// apimachinery only, so that other programs can use the types without the
// controllers.
//
// +kubebuilder:object:generate=true
// +groupName=db.example.com
package v1
