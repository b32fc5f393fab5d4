// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package convert is how Databases of one version become Databases of another:
// the two functions, the webhook that the API server calls, and the certificate
// the webhook shows.
package convert
