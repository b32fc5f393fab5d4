// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	databasev1 "github.com/ashlar-go/ashlar/examples/database/api/v1"
	"github.com/ashlar-go/ashlar/test/controlplane"
)

// Where the manifests of the example put the operator.
const (
	SystemNamespace = "database-system"
	ServiceAccount  = "database-operator"
)

// User is the name under which the operator appears in the audit log.
const User = "system:serviceaccount:" + SystemNamespace + ":" + ServiceAccount

// Lab is a control plane with the example's CRD and RBAC installed, and the operator built.
type Lab struct {
	*controlplane.ControlPlane
	// Client is the administrator's, uncached.
	Client client.WithWatch
	// Scheme knows the built-in kinds and Database.
	Scheme *runtime.Scheme

	dir    string // of the example
	binary string
	temp   string
	config *rest.Config // of the operator's service account

	mu   sync.Mutex
	made []client.Object // what was not in the cluster before
}

// Start brings up a control plane, or uses the cluster of kubeconfig if that is not
// empty, and installs the database example on it. Progress goes to the writer.
func Start(ctx context.Context, progress io.Writer, kubeconfig string, opts ...controlplane.Option) (*Lab, error) {
	l := &Lab{Scheme: runtime.NewScheme()}
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, databasev1.AddToScheme} {
		if err := add(l.Scheme); err != nil {
			return nil, err
		}
	}
	if err := l.build(ctx, progress); err != nil {
		return nil, err
	}
	crds := func(ctx context.Context, config *rest.Config) error {
		return l.applyFolder(ctx, config, filepath.Join(l.dir, "config", "crd", "bases"))
	}
	var err error
	if kubeconfig == "" {
		l.ControlPlane, err = controlplane.Start(ctx, append([]controlplane.Option{
			controlplane.WithProgress(progress), controlplane.WithSetup(crds),
		}, opts...)...)
	} else if l.ControlPlane, err = controlplane.Existing(kubeconfig); err == nil {
		err = crds(ctx, l.Config())
	}
	if err == nil {
		err = l.install(ctx)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Close stops the control plane if it is ours, and removes the operator's binary.
func (l *Lab) Close() error {
	if l.temp != "" {
		os.RemoveAll(l.temp)
	}
	if l.ControlPlane == nil {
		return nil
	}
	return l.Stop()
}

func (l *Lab) build(ctx context.Context, progress io.Writer) error {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/ashlar-go/ashlar/examples/database").Output()
	if err != nil {
		return fmt.Errorf("find the database example: %w", err)
	}
	l.dir = strings.TrimSpace(string(out))
	if l.temp, err = os.MkdirTemp("", "ashlar-lab-"); err != nil {
		return err
	}
	l.binary = filepath.Join(l.temp, "database-operator")
	fmt.Fprintln(progress, "building the database operator")
	build := exec.CommandContext(ctx, "go", "build", "-C", l.dir, "-o", l.binary, "./cmd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	var said bytes.Buffer
	build.Stdout, build.Stderr = &said, &said
	if err := build.Run(); err != nil {
		return fmt.Errorf("build the database operator: %w\n%s", err, said.String())
	}
	return nil
}

func (l *Lab) install(ctx context.Context) (err error) {
	if l.Client, err = client.NewWithWatch(l.Config(), client.Options{Scheme: l.Scheme}); err != nil {
		return err
	}
	if err := l.Namespace(ctx, SystemNamespace); err != nil {
		return err
	}
	if err := l.applyFolder(ctx, l.Config(), filepath.Join(l.dir, "config", "rbac")); err != nil {
		return err
	}
	l.config, err = l.ServiceAccount(ctx, SystemNamespace, ServiceAccount)
	return err
}
