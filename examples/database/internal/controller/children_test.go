// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"reflect"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"

	dbv1 "github.com/ashlar-go/ashlar/examples/database/api/v1"
)

// database is a valid Database, changed by each edit.
func database(edits ...func(*dbv1.Database)) *dbv1.Database {
	db := &dbv1.Database{
		TypeMeta:   metav1.TypeMeta{APIVersion: dbv1.GroupVersion.String(), Kind: "Database"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "11111111-2222-3333-4444-555555555555", Generation: 1},
		Spec: dbv1.DatabaseSpec{
			ScalePolicy: dbv1.ScalePolicy{Replicas: 2}, Version: "17.2",
			Storage: dbv1.Storage{Size: resource.MustParse("1Gi"), Class: "fast"},
		},
	}
	for _, edit := range edits {
		edit(db)
	}
	return db
}

var testClaim = claim{labels: map[string]string{"claim": "uid"}, annotations: map[string]string{"claim-ref": "owner"}}

func TestDesiredIsPure(t *testing.T) {
	t.Parallel()
	db := database()
	before := db.DeepCopy()
	first, second := desired(db, testClaim), desired(db, testClaim)
	if !reflect.DeepEqual(first, second) {
		t.Error("two calls for one Database disagree")
	}
	*first[2].(*appsv1.StatefulSet).Spec.Replicas = 99
	if !reflect.DeepEqual(db, before) {
		t.Errorf("the Database was changed through what desired returned: %+v", db)
	}
}

// What a StatefulSet cannot change must not depend on what a user can change.
func TestImmutableFieldsIgnoreMutableSpec(t *testing.T) {
	t.Parallel()
	edits := map[string]struct {
		reason string
		edit   func(*dbv1.Database)
	}{
		"replicas": {"scaling must not touch the volume template", func(db *dbv1.Database) { db.Spec.ScalePolicy.Replicas = 5 }},
		"version":  {"an upgrade must not touch selector or volume template", func(db *dbv1.Database) { db.Spec.Version = "18.1" }},
		"labels":   {"labels of the Database are not copied", func(db *dbv1.Database) { db.Labels = map[string]string{"team": "a"} }},
	}
	base := statefulSet(database(), testClaim).Spec
	for name, c := range edits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := statefulSet(database(c.edit), testClaim).Spec
			for field, pair := range map[string][2]any{
				"volumeClaimTemplates": {base.VolumeClaimTemplates, got.VolumeClaimTemplates},
				"selector":             {base.Selector, got.Selector},
				"serviceName":          {base.ServiceName, got.ServiceName},
				"podManagementPolicy":  {base.PodManagementPolicy, got.PodManagementPolicy},
			} {
				if !reflect.DeepEqual(pair[0], pair[1]) {
					t.Errorf("%s: spec.%s became %v, was %v", c.reason, field, pair[1], pair[0])
				}
			}
		})
	}
}

func TestVolumesCarryTheClaim(t *testing.T) {
	t.Parallel()
	vct := statefulSet(database(), testClaim).Spec.VolumeClaimTemplates[0]
	if vct.Labels["claim"] != "uid" || vct.Annotations["claim-ref"] != "owner" {
		t.Errorf("the volume template has labels %v and annotations %v, want the claim on it", vct.Labels, vct.Annotations)
	}
	if vct.Labels["app.kubernetes.io/managed-by"] != ManagedBy {
		t.Error("the cache selects by managed-by, and the volumes lack it")
	}
}

// A pod of the backup must not get traffic, nor count as a pod of the StatefulSet.
func TestBackupPodsAreNobodysPods(t *testing.T) {
	t.Parallel()
	db := database()
	job := backupJob(db, []corev1.PersistentVolumeClaim{volume(db, 0, corev1.ClaimBound), volume(db, 1, corev1.ClaimBound)})
	pod := k8slabels.Set(job.Spec.Template.Labels)
	if k8slabels.SelectorFromSet(selector(db)).Matches(pod) {
		t.Errorf("backup pods have labels %v, which the Service selects", pod)
	}
	var claims []string
	for i, v := range job.Spec.Template.Spec.Volumes {
		claims = append(claims, v.PersistentVolumeClaim.ClaimName)
		if m := job.Spec.Template.Spec.Containers[0].VolumeMounts[i]; m.Name != v.Name || !m.ReadOnly {
			t.Errorf("volume %s is mounted as %+v, want read-only under its own name", v.Name, m)
		}
	}
	if want := []string{"data-orders-0", "data-orders-1"}; !reflect.DeepEqual(claims, want) {
		t.Errorf("the backup reads %v, want %v", claims, want)
	}
}

// The pod security standard "restricted" would refuse the pods otherwise.
func TestPodsAreRestricted(t *testing.T) {
	t.Parallel()
	db := database()
	for name, pod := range map[string]corev1.PodSpec{
		"database": podSpec(db), "backup": backupJob(db, nil).Spec.Template.Spec,
	} {
		s, c := pod.SecurityContext, pod.Containers[0].SecurityContext
		if !*s.RunAsNonRoot || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault ||
			*c.AllowPrivilegeEscalation || !reflect.DeepEqual(c.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("pod %s is not restricted: %+v, %+v", name, s, c)
		}
	}
}

func TestChildrenAreSelectedByTheCache(t *testing.T) {
	t.Parallel()
	db := database()
	for _, obj := range append(desired(db, testClaim), backupJob(db, nil)) {
		if obj.GetLabels()["app.kubernetes.io/managed-by"] != ManagedBy {
			t.Errorf("%T has labels %v: the cache does not see it", obj, obj.GetLabels())
		}
		if len(obj.GetAnnotations()) > 0 {
			t.Errorf("%T has annotations %v, want none of ours", obj, obj.GetAnnotations())
		}
	}
}
