// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import "errors"

// ErrNotOurs is returned for what only the one who started a control plane can do: see [Existing].
var ErrNotOurs = errors.New("this control plane was not started here")
