// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dbv1 "github.com/ashlar-go/ashlar/examples/database/api/v1"
)

func backupName(db *dbv1.Database) string { return db.Name + "-final-backup" }

// backupJob reads every volume once. Its pods must not carry the labels that the
// Service and the StatefulSet select by.
func backupJob(db *dbv1.Database, volumes []corev1.PersistentVolumeClaim) *batchv1.Job {
	job := &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: meta(db, backupName(db)),
	}
	job.Labels["app.kubernetes.io/component"] = "backup"
	container := corev1.Container{
		Name:    "backup",
		Image:   image(db.Spec.Version),
		Command: []string{"sh", "-ec"},
		// Put the upload to your backup store in the place of wc.
		Args: []string{`tar -cf - -C /volumes . | wc -c`},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
		}},
		SecurityContext: containerSecurity(),
	}
	pod := corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, SecurityContext: podSecurity()}
	for i := range volumes {
		if volumes[i].DeletionTimestamp != nil {
			continue // no pod that uses it is scheduled any more
		}
		volume, claim := "volume-"+strconv.Itoa(i), volumes[i].Name
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim, ReadOnly: true},
		}})
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{
			Name: volume, MountPath: "/volumes/" + claim, ReadOnly: true,
		})
	}
	pod.Containers = []corev1.Container{container}
	job.Spec = batchv1.JobSpec{
		BackoffLimit: new(int32(3)),
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
				"app.kubernetes.io/name": "database-backup", "app.kubernetes.io/instance": db.Name,
				"app.kubernetes.io/managed-by": ManagedBy,
			}},
			Spec: pod,
		},
	}
	return job
}
