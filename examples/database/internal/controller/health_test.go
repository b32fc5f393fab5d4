// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	dbv1 "github.com/ashlar-go/ashlar/examples/database/api/v1"
)

func volume(db *dbv1.Database, ordinal int32, phase corev1.PersistentVolumeClaimPhase) corev1.PersistentVolumeClaim {
	return corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: db.Namespace, Name: volumeName(db, ordinal)},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: phase},
	}
}

func TestStorageReady(t *testing.T) {
	t.Parallel()
	db := database() // 2 replicas
	yes := func() error { return nil }
	no := func() error { return apierrors.NewNotFound(schema.GroupResource{Resource: "storageclasses"}, "fast") }
	broken := func() error { return errors.New("no answer") }
	pending := []corev1.PersistentVolumeClaim{volume(db, 0, corev1.ClaimPending), volume(db, 1, corev1.ClaimPending)}
	cases := map[string]struct {
		reason  string
		volumes []corev1.PersistentVolumeClaim
		class   func() error
		want    string
		says    string
	}{
		"bound": {"every replica has a volume", []corev1.PersistentVolumeClaim{volume(db, 0, corev1.ClaimBound), volume(db, 1, corev1.ClaimBound)},
			nil, "True Bound", "2 of 2"},
		"one pending": {"provisioning takes time", []corev1.PersistentVolumeClaim{volume(db, 0, corev1.ClaimBound), volume(db, 1, corev1.ClaimPending)},
			yes, "False Provisioning", "1 of 2"},
		"left over by a scale down": {"volumes of higher ordinals prove nothing about ours", []corev1.PersistentVolumeClaim{volume(db, 0, corev1.ClaimBound), volume(db, 4, corev1.ClaimBound)},
			yes, "False Provisioning", "1 of 2"},
		"none yet":      {"the StatefulSet has not created them, so the class is not asked for", nil, nil, "False Provisioning", "0 of 2"},
		"unknown class": {"the user must learn which field is wrong", pending, no, "False StorageClassNotFound", `spec.storage.class names StorageClass "fast"`},
		"no answer":     {"not knowing is not the same as absent", pending, broken, "Unknown StorageClassUnreadable", "no answer"},
		"lost": {"a lost volume is not on its way", []corev1.PersistentVolumeClaim{volume(db, 0, corev1.ClaimLost), volume(db, 1, corev1.ClaimBound)},
			yes, "False VolumeLost", "data-orders-0"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect(t, c.reason, volumesReady(db, c.volumes, c.class), c.want, c.says)
		})
	}
}

func TestServingReady(t *testing.T) {
	t.Parallel()
	db := database() // 2 replicas
	status := func(observed int64, replicas, updated, ready int32, current string) *appsv1.StatefulSet {
		return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Status: appsv1.StatefulSetStatus{
			ObservedGeneration: observed, Replicas: replicas, UpdatedReplicas: updated, ReadyReplicas: ready,
			CurrentRevision: current, UpdateRevision: "b",
		}}
	}
	cases := map[string]struct {
		reason string
		sts    *appsv1.StatefulSet
		want   string
		says   string
	}{
		"missing":           {"nothing was created", nil, "False RollingOut", "0 of 2"},
		"not observed":      {"what is said about an older template is no answer", status(1, 2, 2, 2, "b"), "False RollingOut", "0 of 2"},
		"half updated":      {"an old pod still runs the old version", status(2, 2, 1, 2, "a"), "False RollingOut", "1 of 2"},
		"scaling down":      {"pods beyond the wish are still there", status(2, 3, 3, 3, "b"), "False RollingOut", "2 of 2"},
		"revision not over": {"the controller has not finished the roll-out", status(2, 2, 2, 2, "a"), "False RollingOut", "2 of 2"},
		"one not ready":     {"a pod was lost", status(2, 2, 2, 1, "b"), "False PodsNotReady", "1 of 2"},
		"all ready":         {"every pod runs the version and is ready", status(2, 2, 2, 2, "b"), "True Serving", "17.2"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect(t, c.reason, servingReady(db, c.sts), c.want, c.says)
		})
	}
}

func TestVersionSkewIsReported(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason, spec, chart, want string
	}{
		"same":          {"nothing to say", "17.2", "17.2", "False InStep"},
		"chart is less": {"17 means any 17", "17.2", "17", "False InStep"},
		"spec is less":  {"17 means any 17", "17", "v17.2", "False InStep"},
		"minor differs": {"both are spelled out", "17.1", "17.2", "True VersionsDiffer"},
		"major differs": {"both are spelled out", "17", "18.0", "True VersionsDiffer"},
		"prefix":        {"1 is not 17", "17", "1", "True VersionsDiffer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := versionSkew(database(func(db *dbv1.Database) { db.Spec.Version = c.spec }), c.chart)
			expect(t, c.reason, got, c.want, c.spec)
			expect(t, c.reason, got, c.want, c.chart)
		})
	}
}

func TestUnsupportedNamesFieldAndRule(t *testing.T) {
	t.Parallel()
	if got := unsupported("17.2"); got != "" {
		t.Errorf("17.2 is refused: %s", got)
	}
	for _, v := range []string{"15", "19.1", "1", "170"} {
		got := unsupported(v)
		if !strings.Contains(got, "spec.version") || !strings.Contains(got, "16, 17, 18") || !strings.Contains(got, fmt.Sprintf("%q", v)) {
			t.Errorf("unsupported(%q) = %q, want field, value and the supported majors", v, got)
		}
	}
}

// A skew is said, and the Database is ready all the same.
func TestSkewLeavesReadyAlone(t *testing.T) {
	t.Parallel()
	health, err := newHealth()
	if err != nil {
		t.Fatal(err)
	}
	pass := health.Begin(nil, 1, nil)
	pass.True(ConfigReady, "Applied", "")
	pass.True(StorageReady, "Bound", "")
	pass.True(ServingReady, "Serving", "")
	pass.Put(versionSkew(database(), "18"))
	done, err := pass.Done(time.Unix(1700000000, 0))
	if err != nil {
		t.Fatal(err)
	}
	if !apimeta.IsStatusConditionTrue(done.Conditions, Ready) || !apimeta.IsStatusConditionTrue(done.Conditions, VersionSkew) {
		t.Errorf("want Ready and VersionSkew both True, have %+v", done.Conditions)
	}
}

// One fault shows once, and ready is the sum of the chain.
func TestHealthChain(t *testing.T) {
	t.Parallel()
	health, err := newHealth()
	if err != nil {
		t.Fatal(err)
	}
	pass := health.Begin(nil, 3, nil)
	pass.True(ConfigReady, "Applied", "")
	pass.False(StorageReady, "Provisioning", "0 of 2 volumes are bound")
	pass.False(ServingReady, "RollingOut", "0 of 2")
	pass.Put(versionSkew(database(), "18"))
	done, err := pass.Done(time.Unix(1700000000, 0))
	if err != nil {
		t.Fatal(err)
	}
	for typ, want := range map[string]string{
		ConfigReady: "True Applied", StorageReady: "False Provisioning",
		ServingReady: "Unknown BlockedByStorageReady", Ready: "False Provisioning",
	} {
		c := apimeta.FindStatusCondition(done.Conditions, typ)
		if c == nil {
			t.Errorf("%s is missing", typ)
			continue
		}
		expect(t, "one fault shows once", *c, want, "")
		if c.ObservedGeneration != 3 {
			t.Errorf("%s is about generation %d, want 3", typ, c.ObservedGeneration)
		}
	}
}

func expect(t *testing.T, reason string, got metav1.Condition, want, says string) {
	t.Helper()
	if is := string(got.Status) + " " + got.Reason; is != want || !strings.Contains(got.Message, says) {
		t.Errorf("%s: %s is %s (%q), want %s with %q", reason, got.Type, is, got.Message, want, says)
	}
}
