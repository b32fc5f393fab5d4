// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Database is a replicated database engine with its own volumes, as it was first served. Its replicas became
// v1's scalePolicy; what v1 holds beyond that survives a client of this version
// that keeps annotations.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:deprecatedversion:warning="db.example.com/v1alpha1 Database is deprecated: use db.example.com/v1"
// +kubebuilder:resource:shortName=db
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$')",message="metadata.name must be a DNS label of at most 40 characters that starts with a letter, because the Service and the pods are named after it"
type Database struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the user asks for.
	// +required
	Spec DatabaseSpec `json:"spec"`

	// status is what the operator last saw.
	// +default={"observedGeneration": -1}
	// +optional
	Status DatabaseStatus `json:"status,omitzero"`
}

// DatabaseSpec is what the user asks for.
type DatabaseSpec struct {
	// replicas is the number of pods, each with a volume of its own.
	// +kubebuilder:validation:Minimum=1
	// +required
	Replicas int32 `json:"replicas"`

	// version of the engine, as major or major.minor. Which majors are supported
	// depends on the operator; condition ConfigReady says so when one is not.
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^[1-9][0-9]*([.][0-9]+)?$')",message="spec.version must be a major or major.minor version, for example 17 or 17.2"
	// +required
	Version string `json:"version"`

	// storage of each replica.
	// +required
	Storage Storage `json:"storage"`
}

// Storage describes the volume of one replica. A StatefulSet cannot change its
// volumes either, so that the refusal comes at once and from here.
//
// +kubebuilder:validation:XValidation:rule="quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) == 0",fieldPath=".size",message="spec.storage.size is immutable, because the volumes of a running database are neither grown nor replaced: create a new Database and restore the backup there"
type Storage struct {
	// size of each volume, for example 10Gi.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0'))",message="spec.storage.size must be more than 0, for example 10Gi"
	// +required
	Size resource.Quantity `json:"size"`

	// class is the name of the StorageClass that provisions the volumes.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.storage.class is immutable, because the volumes of a running database are not moved: create a new Database and restore the backup there"
	// +required
	Class string `json:"class"`
}

// DatabaseStatus is what the operator last saw.
type DatabaseStatus struct {
	// observedGeneration is the generation that this status describes; -1 until
	// the operator has seen the Database.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// readyReplicas is the number of pods that are ready.
	// +optional
	ReadyReplicas *int32 `json:"readyReplicas,omitempty"`

	// version that every pod ran when the Database was last ready; empty before.
	// +optional
	Version *string `json:"version,omitempty"`

	// conditions: ConfigReady, StorageReady, ServingReady and their summary Ready;
	// VersionSkew, Reconciling and Stalled only when they are true or known.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DatabaseList is a list of Databases.
//
// +kubebuilder:object:root=true
type DatabaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Database `json:"items"`
}
