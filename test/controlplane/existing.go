// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"os/exec"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ashlar-go/ashlar/test/controlplane/internal/assets"
)

// Existing returns the handle of a control plane that somebody else runs: the current context of the kubeconfig at path,
// which needs the right to impersonate for [ControlPlane.AddUser] and to create service accounts and tokens for
// [ControlPlane.ServiceAccount]. Nothing is started, stopped or asked. Requests are not counted ([audit.ErrNotCounted]),
// components cannot be halted ([ErrNotOurs]), and kubectl is the one in PATH. Stop removes the kubeconfigs written.
func Existing(path string) (*ControlPlane, error) {
	if path == "" {
		return nil, errors.New("use existing control plane: no kubeconfig is given")
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("use existing control plane: %w", err)
	}
	cfg.QPS = unlimited
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("use existing control plane: %w", err)
	}
	kubectl, err := exec.LookPath(assets.Kubectl)
	if err != nil {
		kubectl = assets.Kubectl // whoever needs it gets the reason from exec
	}
	o, err := newOptions(nil)
	if err != nil {
		return nil, err
	}
	dir, err := newWorkdir(o)
	if err != nil {
		return nil, fmt.Errorf("use existing control plane: %w", err)
	}
	return &ControlPlane{
		opts: o, dir: dir, admin: cfg, client: client, kubeconfig: path, kubectl: kubectl, done: make(chan struct{}),
	}, nil
}
