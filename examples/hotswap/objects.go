// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

//go:generate hack/generate.sh
