// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ashlar-go/ashlar/test/bench/load"
)

func groupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "example.com", Version: "v1"}
}

// Database is the object of the workload; the accessors are those that Cluster API asks of its users' types.
type Database struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   DatabaseSpec   `json:"spec,omitempty"`
	Status DatabaseStatus `json:"status,omitempty"`
}

// DatabaseSpec is what is asked for.
type DatabaseSpec struct {
	Replicas int32  `json:"replicas,omitempty"`
	Version  string `json:"version,omitempty"`
}

// DatabaseStatus is what was seen.
type DatabaseStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	ReadyReplicas      *int32             `json:"readyReplicas,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

func newDatabase(namespace, name string) *Database {
	return &Database{
		TypeMeta:   metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Database"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u1", ResourceVersion: "7", Generation: load.Generation},
	}
}

// GetConditions returns the conditions themselves.
func (d *Database) GetConditions() []metav1.Condition { return d.Status.Conditions }

// SetConditions replaces the conditions.
func (d *Database) SetConditions(c []metav1.Condition) { d.Status.Conditions = c }

// DeepCopyObject copies everything.
func (d *Database) DeepCopyObject() runtime.Object {
	c := *d
	d.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	if d.Status.ReadyReplicas != nil {
		n := *d.Status.ReadyReplicas
		c.Status.ReadyReplicas = &n
	}
	if d.Status.Conditions != nil {
		c.Status.Conditions = make([]metav1.Condition, len(d.Status.Conditions))
		for i := range d.Status.Conditions {
			d.Status.Conditions[i].DeepCopyInto(&c.Status.Conditions[i])
		}
	}
	return &c
}
