// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/test/controlplane/internal/assets"
)

// Component is one process of the control plane, named as its program is.
type Component string

// The components, in the order in which they start.
const (
	Etcd              Component = assets.Etcd
	APIServer         Component = assets.APIServer
	ControllerManager Component = assets.ControllerManager
	Scheduler         Component = assets.Scheduler
	// Kwok plays the kubelets: it makes nodes and pods ready, completes the pods of Jobs, and provisions volumes of the
	// default storage class, kwok-volume.
	Kwok Component = assets.Kwok
)

// Components returns all components, in the order in which they start.
func Components() []Component {
	return []Component{Etcd, APIServer, ControllerManager, Scheduler, Kwok}
}

func (c Component) logName() string {
	return string(c) + ".log"
}

func (c Component) check() error {
	if !slices.Contains(Components(), c) {
		return fmt.Errorf("no component is named %q", string(c))
	}
	return nil
}
