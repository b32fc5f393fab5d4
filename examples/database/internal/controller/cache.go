// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cache keeps Databases, and of everything else only what the operator created:
// its memory does not grow with the rest of the cluster. What it cannot see (a
// child whose label was taken off, somebody else's object of the same name) the
// API server refuses to create again, and a live read then tells which it is.
//
// namespaces is a comma-separated list; empty means all.
func Cache(namespaces string) cache.Options {
	ours := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{"app.kubernetes.io/managed-by": ManagedBy})}
	opts := cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}: ours, &corev1.Service{}: ours, &appsv1.StatefulSet{}: ours,
			&batchv1.Job{}: ours, &corev1.PersistentVolumeClaim{}: ours,
		},
	}
	for ns := range strings.SplitSeq(namespaces, ",") {
		if ns = strings.TrimSpace(ns); ns != "" {
			if opts.DefaultNamespaces == nil {
				opts.DefaultNamespaces = map[string]cache.Config{}
			}
			opts.DefaultNamespaces[ns] = cache.Config{}
		}
	}
	return opts
}
