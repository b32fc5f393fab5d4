// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	kstatus "sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

// Lies replays recorded changes and returns a sentence for every moment at which a
// tool would have called a Database ready for a generation whose pods had not all
// been ready once.
//
// Two tools are asked: the kstatus library, and `kubectl wait --for=condition=Ready`,
// which compares the condition's own observedGeneration with the generation and falls
// back to that of the status. What was true is read from the pods alone: as many pods
// of the Database as it has replicas, of its version, and all of them Ready. Revisions
// of one etcd order the changes of all kinds, so that no watch's delay can hide a lie.
func Lies(changes []Change) (lies []string, asked int) {
	type seen struct {
		object *unstructured.Unstructured
		earned int64 // the newest generation whose pods were all ready once
	}
	databases := map[string]*seen{}
	pods := map[string]*unstructured.Unstructured{}
	earn := func() {
		for _, db := range databases {
			if db.object != nil && allReady(db.object, pods) {
				db.earned = db.object.GetGeneration()
			}
		}
	}
	for _, change := range changes {
		object := change.Object
		key := object.GetNamespace() + "/" + object.GetName()
		switch object.GetKind() {
		case "Pod":
			if change.Type == watch.Deleted {
				delete(pods, key)
			} else {
				pods[key] = object
			}
			earn()
		case "Database":
			if change.Type == watch.Deleted {
				delete(databases, key)
				continue
			}
			db := databases[key]
			if db == nil || db.object.GetUID() != object.GetUID() {
				db = &seen{}
				databases[key] = db
			}
			db.object = object
			earn()
			asked++
			for _, tool := range []struct {
				name string
				says func(*unstructured.Unstructured) bool
			}{{"kstatus", isCurrent}, {"kubectl wait", waitEnds}} {
				if db.earned < object.GetGeneration() && tool.says(object) {
					lies = append(lies, fmt.Sprintf("%s calls Database %s ready at revision %d for generation %d, whose pods were never all ready",
						tool.name, key, change.Version, object.GetGeneration()))
				}
			}
		}
	}
	return lies, asked
}

// allReady says whether the pods are what the spec of this generation asks for. The
// image carries the version, and a StatefulSet's pods its name and an ordinal.
func allReady(db *unstructured.Unstructured, pods map[string]*unstructured.Unstructured) bool {
	replicas, _, _ := unstructured.NestedInt64(db.Object, "spec", "scalePolicy", "replicas")
	version, _, _ := unstructured.NestedString(db.Object, "spec", "version")
	ready := int64(0)
	for _, pod := range pods {
		owner := ""
		for _, ref := range pod.GetOwnerReferences() {
			if ref.Kind == "StatefulSet" {
				owner = ref.Name
			}
		}
		if pod.GetNamespace() != db.GetNamespace() || owner != db.GetName() || pod.GetDeletionTimestamp() != nil {
			continue
		}
		containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
		current := false
		for _, container := range containers {
			fields, _ := container.(map[string]any)
			image, _ := fields["image"].(string)
			current = current || strings.HasSuffix(image, ":"+version)
		}
		status, _ := condition(pod, "Ready")
		if !current || status != "True" {
			return false
		}
		ready++
	}
	return replicas > 0 && ready == replicas
}

func isCurrent(object *unstructured.Unstructured) bool {
	result, err := kstatus.Compute(object)
	return err == nil && result.Status == kstatus.CurrentStatus
}

// waitEnds has the semantics of kubectl wait --for=condition=Ready.
func waitEnds(object *unstructured.Unstructured) bool {
	status, fields := condition(object, "Ready")
	observed, found, _ := unstructured.NestedInt64(fields, "observedGeneration")
	if !found {
		observed, found, _ = unstructured.NestedInt64(object.Object, "status", "observedGeneration")
	}
	return strings.EqualFold(status, "True") && (!found || observed >= object.GetGeneration())
}

func condition(object *unstructured.Unstructured, name string) (status string, fields map[string]any) {
	list, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, item := range list {
		if fields, ok := item.(map[string]any); ok && fields["type"] == name {
			status, _ = fields["status"].(string)
			return status, fields
		}
	}
	return "", nil
}
