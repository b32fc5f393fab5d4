// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashlar-go/ashlar/conditions"
	dbv1 "github.com/ashlar-go/ashlar/examples/database/api/v1"
	"github.com/ashlar-go/ashlar/ownership/apply"
)

// The condition types of a Database.
const (
	Ready        = "Ready"
	ConfigReady  = "ConfigReady"
	StorageReady = "StorageReady"
	ServingReady = "ServingReady"
	VersionSkew  = "VersionSkew"
)

// newHealth declares what ready means: each part needs the one before it, so one
// fault shows once. VersionSkew is said and counts for nothing: a Database that
// serves its version is ready, whatever version a chart would install today.
func newHealth() (*conditions.Set, error) {
	return conditions.New(Ready,
		conditions.Type{Name: ConfigReady},
		conditions.Type{Name: StorageReady, Needs: []string{ConfigReady}},
		conditions.Type{Name: ServingReady, Needs: []string{StorageReady}},
		conditions.Type{Name: VersionSkew, Negative: true, Advisory: true},
	)
}

// configReady judges what the pods are configured and found by.
func configReady(kids apply.Result) metav1.Condition {
	for _, kind := range []string{"ConfigMap", "Service"} {
		if c := kids.Condition(ConfigReady, kind); c.Status != metav1.ConditionTrue {
			return c
		}
	}
	return is(ConfigReady, metav1.ConditionTrue, apply.ReasonApplied, "ConfigMap and Service are as declared")
}

// storageReady judges the volumes that the current replicas use, once there is a
// StatefulSet to create them. getClass is called only while one is pending.
func storageReady(db *dbv1.Database, kids apply.Result, volumes []corev1.PersistentVolumeClaim, getClass func() error) metav1.Condition {
	if only[*appsv1.StatefulSet](kids) == nil {
		return kids.Condition(StorageReady, "StatefulSet")
	}
	return volumesReady(db, volumes, getClass)
}

func volumesReady(db *dbv1.Database, volumes []corev1.PersistentVolumeClaim, getClass func() error) metav1.Condition {
	phase := make(map[string]corev1.PersistentVolumeClaimPhase, len(volumes))
	for i := range volumes {
		phase[volumes[i].Name] = volumes[i].Status.Phase
	}
	bound, pending := int32(0), false
	for i := range db.Spec.ScalePolicy.Replicas {
		switch name := volumeName(db, i); phase[name] {
		case corev1.ClaimBound:
			bound++
		case corev1.ClaimPending:
			pending = true
		case corev1.ClaimLost:
			return is(StorageReady, metav1.ConditionFalse, "VolumeLost",
				"PersistentVolumeClaim %s lost its volume: restore it or delete the claim and its pod", name)
		}
	}
	if bound == db.Spec.ScalePolicy.Replicas {
		return is(StorageReady, metav1.ConditionTrue, "Bound", "%d of %d volumes are bound", bound, db.Spec.ScalePolicy.Replicas)
	}
	var err error
	if pending {
		err = getClass()
	}
	switch {
	case apierrors.IsNotFound(err):
		return is(StorageReady, metav1.ConditionFalse, "StorageClassNotFound",
			"spec.storage.class names StorageClass %q, which does not exist: create it, or create the Database anew with another",
			db.Spec.Storage.Class)
	case err != nil:
		return is(StorageReady, metav1.ConditionUnknown, "StorageClassUnreadable", "spec.storage.class: %v", err)
	}
	return is(StorageReady, metav1.ConditionFalse, "Provisioning", "%d of %d volumes are bound", bound, db.Spec.ScalePolicy.Replicas)
}

func volumeName(db *dbv1.Database, ordinal int32) string {
	return dataVolume + "-" + db.Name + "-" + strconv.Itoa(int(ordinal))
}

// servingReady judges the StatefulSet by what its controller says about the
// template that was applied last; what it says about an older one is no answer.
func servingReady(db *dbv1.Database, sts *appsv1.StatefulSet) metav1.Condition {
	want, s := db.Spec.ScalePolicy.Replicas, &appsv1.StatefulSetStatus{}
	if sts != nil && sts.Status.ObservedGeneration >= sts.Generation {
		s = &sts.Status
	}
	switch {
	case s.UpdatedReplicas < want || s.CurrentRevision != s.UpdateRevision || s.Replicas != want:
		return is(ServingReady, metav1.ConditionFalse, "RollingOut",
			"%d of %d pods run version %s", min(s.UpdatedReplicas, want), want, db.Spec.Version)
	case s.ReadyReplicas < want:
		return is(ServingReady, metav1.ConditionFalse, "PodsNotReady", "%d of %d pods are ready", s.ReadyReplicas, want)
	}
	return is(ServingReady, metav1.ConditionTrue, "Serving", "%d of %d pods are ready with version %s",
		s.ReadyReplicas, want, db.Spec.Version)
}

// Status is what the status holds besides conditions and observedGeneration.
type Status struct {
	Phase         *dbv1.Phase `json:"phase,omitempty"`
	ReadyReplicas *int32      `json:"readyReplicas,omitempty"`
	Version       *string     `json:"version,omitempty"`
}

// statusOf repeats in one word and one number what the conditions say. What is
// not known now stays as it was said last.
func statusOf(db *dbv1.Database, conds []metav1.Condition, sts *appsv1.StatefulSet) Status {
	phase := dbv1.PhaseDegraded
	s := Status{Phase: &phase, ReadyReplicas: db.Status.ReadyReplicas, Version: db.Status.Version}
	if sts != nil {
		s.ReadyReplicas = &sts.Status.ReadyReplicas
	}
	switch serving := apimeta.FindStatusCondition(conds, ServingReady); {
	case !db.DeletionTimestamp.IsZero():
		phase = dbv1.PhaseDeleting
	case apimeta.IsStatusConditionTrue(conds, Ready):
		phase, s.Version = dbv1.PhaseReady, &db.Spec.Version
	case db.Status.Version == nil:
		phase = dbv1.PhaseCreating
	case serving != nil && serving.Reason == "RollingOut":
		phase = dbv1.PhaseUpdating
	}
	return s
}

// versionSkew compares what the user asked for with what the chart was made for.
// It is said and not acted upon: the user's word counts.
func versionSkew(db *dbv1.Database, chart string) metav1.Condition {
	if agree(db.Spec.Version, chart) {
		return is(VersionSkew, metav1.ConditionFalse, "InStep", "spec.version %s and chart version %s agree", db.Spec.Version, chart)
	}
	return is(VersionSkew, metav1.ConditionTrue, "VersionsDiffer",
		"spec.version is %s and the chart's version is %s: the Database stays on spec.version", db.Spec.Version, chart)
}

func is(typ string, status metav1.ConditionStatus, reason, format string, args ...any) metav1.Condition {
	return metav1.Condition{Type: typ, Status: status, Reason: reason, Message: fmt.Sprintf(format, args...)}
}
