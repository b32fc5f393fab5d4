// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dbv1 "github.com/ashlar-go/ashlar/examples/database/api/v1"
)

const (
	port = 5432

	// ManagedBy is the value of app.kubernetes.io/managed-by on everything the
	// operator creates; the cache of the manager selects by it.
	ManagedBy = "database-operator"

	dataVolume = "data"
	dataPath   = "/var/lib/database"
)

// selector picks the pods of one Database. It is immutable in a StatefulSet, so
// nothing that can change belongs here.
func selector(db *dbv1.Database) map[string]string {
	return map[string]string{"app.kubernetes.io/name": "database", "app.kubernetes.io/instance": db.Name}
}

func labelsOf(db *dbv1.Database) map[string]string {
	all := selector(db)
	all["app.kubernetes.io/managed-by"] = ManagedBy
	return all
}

func meta(db *dbv1.Database, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: db.Namespace, Name: name, Labels: labelsOf(db)}
}

// desired is what a Database should own. claim is what marks the volumes as
// owned: nobody applies a PVC, so the StatefulSet stamps it on them.
func desired(db *dbv1.Database, claim claim) []client.Object {
	return []client.Object{configMap(db), service(db), statefulSet(db, claim)}
}

// claim is what [ownership.Set.Claim] returns.
type claim struct{ labels, annotations map[string]string }

func configMap(db *dbv1.Database) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: meta(db, db.Name),
		Data:       map[string]string{"database.conf": config(db.Spec.Version)},
	}
}

// service is headless: clients address the pods by name.
func service(db *dbv1.Database) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: meta(db, db.Name),
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone,
			Selector:  selector(db),
			Ports: []corev1.ServicePort{{
				Name: "database", Port: port, TargetPort: intstr.FromString("database"), Protocol: corev1.ProtocolTCP,
			}},
		},
	}
}

func statefulSet(db *dbv1.Database, claim claim) *appsv1.StatefulSet {
	podLabels := labelsOf(db)
	podLabels["app.kubernetes.io/version"] = db.Spec.Version
	return &appsv1.StatefulSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"},
		ObjectMeta: meta(db, db.Name),
		Spec: appsv1.StatefulSetSpec{
			Replicas:            new(db.Spec.ScalePolicy.Replicas),
			MinReadySeconds:     db.Spec.ScalePolicy.MinReadySeconds,
			ServiceName:         db.Name,
			PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector:            &metav1.LabelSelector{MatchLabels: selector(db)},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: podLabels},
				Spec:       podSpec(db),
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{volumeClaim(db, claim)},
			// The volumes go by the cleanup alone, after the backup, and stay when the Database is orphaned.
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
				WhenScaled:  appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
			},
		},
	}
}

// volumeClaim carries no label that can change: the template is immutable.
func volumeClaim(db *dbv1.Database, claim claim) corev1.PersistentVolumeClaim {
	all := labelsOf(db)
	maps.Copy(all, claim.labels)
	return corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: dataVolume, Labels: all, Annotations: claim.annotations},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: new(db.Spec.Storage.Class),
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: db.Spec.Storage.Size},
			},
		},
	}
}

// podSpec meets the "restricted" pod security standard.
func podSpec(db *dbv1.Database) corev1.PodSpec {
	return corev1.PodSpec{
		SecurityContext: podSecurity(),
		Containers: []corev1.Container{{
			Name:    "database",
			Image:   image(db.Spec.Version),
			Command: []string{"sh", "-ec"},
			// Until somebody sets a password from inside the pod, nobody gets in over the network.
			Args: []string{`test -s "$PGDATA/PG_VERSION" || initdb --auth-local=peer --auth-host=scram-sha-256
exec postgres -c config_file=/etc/database/database.conf`},
			Env:   []corev1.EnvVar{{Name: "PGDATA", Value: dataPath + "/data"}},
			Ports: []corev1.ContainerPort{{Name: "database", ContainerPort: port, Protocol: corev1.ProtocolTCP}},
			ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
				Exec: &corev1.ExecAction{Command: []string{"pg_isready", "--quiet", "--host=/tmp"}},
			}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("256Mi"),
			}},
			SecurityContext: containerSecurity(),
			VolumeMounts: []corev1.VolumeMount{
				{Name: dataVolume, MountPath: dataPath},
				{Name: "config", MountPath: "/etc/database", ReadOnly: true},
				{Name: "tmp", MountPath: "/tmp"},
			},
		}},
		Volumes: []corev1.Volume{
			{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: db.Name},
			}}},
			{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		},
	}
}

func podSecurity() *corev1.PodSecurityContext {
	uid := int64(999) // the user of the image
	return &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), RunAsUser: &uid, RunAsGroup: &uid, FSGroup: &uid,
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

func containerSecurity() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}
