// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package audit

// Policy is the audit policy the counts rely on: metadata of every request, without the RequestReceived stage, so a
// plain request leaves exactly one line and a long-running one a line at its start and one at its end.
const Policy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`
