// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"

	"github.com/ashlar-go/ashlar/test/controlplane/internal/assets"
)

// Build makes the programs available without starting anything, and returns the directory that holds them:
// kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, etcd and kwok. It can serve as KUBEBUILDER_ASSETS,
// which Build itself does not look at.
//
// A cold build takes as long as compiling Kubernetes, a warm one milliseconds. Two at once take turns; one that was
// stopped resumes; a file that is missing or damaged is made again. Only [WithCache] and [WithProgress] matter here.
func Build(ctx context.Context, opts ...Option) (dir string, err error) {
	o, err := newOptions(opts)
	if err != nil {
		return "", err
	}
	o.assets.Ready = ""
	set, err := assets.Ensure(ctx, o.assets, assets.Names()...)
	if err != nil {
		return "", err
	}
	return set.Dir, nil
}
