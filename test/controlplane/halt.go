// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
)

// Halt takes a component down on purpose: to see what the code under test does without it. It is killed, as in a crash,
// and its end is no error of the control plane. It stays down until [ControlPlane.Resume].
func (cp *ControlPlane) Halt(c Component) error {
	u, err := cp.own(c)
	if err != nil {
		return fmt.Errorf("halt: %w", err)
	}
	u.process().Stop(0)
	return nil
}

// Resume starts a halted component again, with the data, port and arguments it had, and returns when it works. A
// component that runs is an error.
func (cp *ControlPlane) Resume(ctx context.Context, c Component) error {
	u, err := cp.own(c)
	if err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	select {
	case <-u.process().Done():
	default:
		return fmt.Errorf("resume: %s runs", c)
	}
	if err := u.start(ctx, c == APIServer); err != nil { // kubeconfigs name the API server's port
		return fmt.Errorf("resume: %w", err)
	}
	cp.watch(u)
	return nil
}

// own returns a component that was started here.
func (cp *ControlPlane) own(c Component) (*unit, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if cp.group == nil {
		return nil, fmt.Errorf("%s: %w", c, ErrNotOurs)
	}
	u := cp.unit(c)
	if u == nil || u.process() == nil {
		return nil, fmt.Errorf("%s was left out", c)
	}
	return u, nil
}
