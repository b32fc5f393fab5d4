// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	databasev1 "github.com/ashlar-go/ashlar/examples/database/api/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// StoreAt installs the CRD anew with another storage version, as a release before or after this one does.
func (l *Lab) StoreAt(ctx context.Context, version string) error {
	objects, err := Manifests(filepath.Join(l.dir, "config", "crd", "bases"))
	if err != nil {
		return err
	}
	for _, crd := range objects {
		versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
		if err != nil {
			return err
		}
		for _, v := range versions {
			v := v.(map[string]any)
			v["storage"] = v["name"] == version
		}
		if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
			return err
		}
		if err := l.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(crd), client.FieldOwner("lab"), client.ForceOwnership); err != nil {
			return fmt.Errorf("store %s at %s: %w", crd.GetName(), version, err)
		}
	}
	return nil
}

// Migrate runs the operator's own migration as the administrator and returns what it printed.
func (l *Lab) Migrate(ctx context.Context) (string, error) {
	kubeconfig, err := l.WriteKubeconfig(l.Config())
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, l.binary, "--migrate")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("migrate: %w\n%s", err, out)
	}
	return string(out), nil
}

// StoredVersions are those of status.storedVersions.
func (l *Lab) StoredVersions(ctx context.Context) ([]string, error) {
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	if err := l.Client.Get(ctx, client.ObjectKey{Name: "databases." + databasev1.GroupVersion.Group}, crd); err != nil {
		return nil, err
	}
	stored, _, err := unstructured.NestedStringSlice(crd.Object, "status", "storedVersions")
	return stored, err
}

// Old is a Database as a client of v1alpha1 sees it.
func Old(namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(databasev1.GroupVersion.WithKind("Database"))
	o.SetAPIVersion(databasev1.GroupVersion.Group + "/v1alpha1")
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}
