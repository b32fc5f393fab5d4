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
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// applyFolder applies every object of every YAML file of a folder, in the order of
// the file names; files of kustomize are passed over. What was not there before is
// remembered for Uninstall.
func (l *Lab) applyFolder(ctx context.Context, config *rest.Config, dir string) error {
	objects, err := Manifests(dir)
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	for _, object := range objects {
		before := object.DeepCopy()
		missing := c.Get(ctx, client.ObjectKeyFromObject(object), before)
		if err := client.IgnoreNotFound(missing); err != nil {
			return fmt.Errorf("look for %s %s of %s: %w", object.GetKind(), object.GetName(), dir, err)
		}
		if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("lab"), client.ForceOwnership); err != nil {
			return fmt.Errorf("apply %s %s of %s: %w", object.GetKind(), object.GetName(), dir, err)
		}
		if missing != nil {
			l.remember(object)
		}
	}
	return nil
}

func (l *Lab) remember(object client.Object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made = append(l.made, object)
}

// Uninstall deletes what the lab has put into the cluster and waits until it is gone:
// the namespaces and the objects of the manifests that were not there before. A
// cluster of our own needs no such thing, one that outlives the lab does.
func (l *Lab) Uninstall(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, object := range slices.Backward(l.made) {
		if err := client.IgnoreNotFound(l.Client.Delete(ctx, object)); err != nil {
			return fmt.Errorf("delete %s %s: %w", object.GetObjectKind().GroupVersionKind().Kind, object.GetName(), err)
		}
	}
	return Eventually(ctx, "what was installed is gone", func(ctx context.Context) error {
		for len(l.made) > 0 {
			last := l.made[len(l.made)-1]
			switch err := l.Client.Get(ctx, client.ObjectKeyFromObject(last), last); {
			case err == nil:
				return fmt.Errorf("%s %s is still there", last.GetObjectKind().GroupVersionKind().Kind, last.GetName())
			case !apierrors.IsNotFound(err):
				return err
			}
			l.made = l.made[:len(l.made)-1]
		}
		return nil
	})
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
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	err := l.Client.Create(ctx, namespace)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err == nil {
		namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
		l.remember(namespace)
	}
	return err
}
