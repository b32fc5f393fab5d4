// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Database is a replicated database engine with its own volumes.
//
// The default of status is what keeps kstatus and `kubectl wait` from calling a
// Database ready before the operator has seen it: without it a fresh object has
// no condition at all, and that reads as current.
//
// The rule on the name is here because the name becomes a Service (a DNS label
// that starts with a letter) and the prefix of pod and Job names (63 bytes in
// all).
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:shortName=db
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Phase",type=string,priority=1,JSONPath=`.status.phase`
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
	// scalePolicy says how many pods there are and how they change.
	// +required
	ScalePolicy ScalePolicy `json:"scalePolicy"`

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

// ScalePolicy says how many pods there are and how they change.
type ScalePolicy struct {
	// replicas is the number of pods, each with a volume of its own.
	// +kubebuilder:validation:Minimum=1
	// +required
	Replicas int32 `json:"replicas"`

	// minReadySeconds is how long a new pod must have been ready before the next
	// one is replaced.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	// +optional
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
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

// Phase of a Database, in one word.
// +kubebuilder:validation:Enum=Creating;Ready;Updating;Degraded;Deleting
type Phase string

// The phases.
const (
	PhaseCreating Phase = "Creating" // was never ready
	PhaseReady    Phase = "Ready"
	PhaseUpdating Phase = "Updating" // was ready, and does not run what is asked for yet
	PhaseDegraded Phase = "Degraded" // runs what is asked for, and is not ready
	PhaseDeleting Phase = "Deleting"
)

// DatabaseStatus is what the operator last saw.
type DatabaseStatus struct {
	// observedGeneration is the generation that this status describes; -1 until
	// the operator has seen the Database.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase is one word for people: Creating, Ready, Updating, Degraded or
	// Deleting. Programs read the conditions.
	// +optional
	Phase *Phase `json:"phase,omitempty"`

	// readyReplicas is the number of pods that are ready. It is what clients of
	// v1alpha1 know, and frozen: it will mean nothing else, and go with v1alpha1.
	// Use the conditions.
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
