// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// Disorder replays the recorded changes of a namespace with one Database that was
// deleted, and returns a sentence for every step that did not wait for the one before:
// the backup Job is complete before the StatefulSet starts to go, the StatefulSet and
// its pods are gone before the first volume claim starts to go, and everything of the
// Database is gone before the Database is.
//
// Without backup the namespace is being deleted: the namespace controller starts every
// deletion itself, in its own order, so that only the ends count: the pods are gone
// before the volume claims are.
func Disorder(changes []Change, backup bool) (faults []string) {
	there := map[string]map[types.UID]string{} // kind → uid → name, of what exists
	going := map[types.UID]bool{}
	complete := false
	left := func(kinds ...string) (names []string) {
		for _, kind := range kinds {
			for _, name := range there[kind] {
				names = append(names, kind+" "+name)
			}
		}
		slices.Sort(names)
		return names
	}
	for _, change := range changes {
		object := change.Object
		kind, uid := object.GetKind(), object.GetUID()
		if kind == "Pod" && !ownedBy(object, "StatefulSet") {
			continue // the Job's
		}
		if change.Type == watch.Deleted {
			delete(there[kind], uid)
		} else {
			if there[kind] == nil {
				there[kind] = map[types.UID]string{}
			}
			there[kind][uid] = object.GetName()
		}
		if kind == "Job" {
			status, _ := condition(object, "Complete")
			complete = complete || status == "True"
		}
		gone := change.Type == watch.Deleted
		starts := (gone || object.GetDeletionTimestamp() != nil) && !going[uid]
		if starts {
			going[uid] = true
		}
		switch {
		case kind == "StatefulSet" && starts && backup && !complete:
			faults = append(faults, fmt.Sprintf("revision %d: StatefulSet %s starts to go before the backup is complete", change.Version, object.GetName()))
		case kind == "PersistentVolumeClaim" && (backup && starts || gone):
			users := []string{"Pod"}
			if backup {
				users = append(users, "StatefulSet")
			}
			if names := left(users...); len(names) > 0 {
				faults = append(faults, fmt.Sprintf("revision %d: PersistentVolumeClaim %s goes before %v", change.Version, object.GetName(), names))
			}
		case kind == "Database" && gone:
			if names := left("StatefulSet", "Pod", "PersistentVolumeClaim", "Job"); len(names) > 0 {
				faults = append(faults, fmt.Sprintf("revision %d: Database %s is gone before %v", change.Version, object.GetName(), names))
			}
		}
	}
	return faults
}

// Incarnations returns how many different objects of a kind were seen under each name.
func Incarnations(changes []Change, kind string) map[string]int {
	seen := map[types.UID]bool{}
	count := map[string]int{}
	for _, change := range changes {
		if object := change.Object; object.GetKind() == kind && !seen[object.GetUID()] {
			seen[object.GetUID()] = true
			count[object.GetName()]++
		}
	}
	return count
}

func ownedBy(object *unstructured.Unstructured, kind string) bool {
	for _, ref := range object.GetOwnerReferences() {
		if ref.Kind == kind {
			return true
		}
	}
	return false
}
