// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ApplyFolder applies every object of every YAML file of a folder, in the order of
// the file names; files of kustomize are passed over.
func ApplyFolder(ctx context.Context, config *rest.Config, dir string) error {
	objects, err := Manifests(dir)
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("lab"), client.ForceOwnership); err != nil {
			return fmt.Errorf("apply %s %s of %s: %w", object.GetKind(), object.GetName(), dir, err)
		}
	}
	return nil
}

// Manifests reads the objects of the YAML files of a folder.
func Manifests(dir string) (objects []*unstructured.Unstructured, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		for docs := yaml.NewYAMLReader(bufio.NewReader(file)); ; {
			doc, err := docs.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			object := &unstructured.Unstructured{}
			if err == nil {
				err = yaml.Unmarshal(doc, &object.Object)
			}
			if err != nil {
				return nil, errors.Join(fmt.Errorf("read %s: %w", name, err), file.Close())
			}
			if object.GetAPIVersion() != "" && object.GetName() != "" {
				objects = append(objects, object)
			}
		}
		file.Close()
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("read %s: it holds no object", dir)
	}
	return objects, nil
}

// Namespace creates a namespace; one that exists is fine.
func (l *Lab) Namespace(ctx context.Context, name string) error {
	err := l.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
