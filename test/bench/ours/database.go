// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ashlar-go/ashlar/test/bench/canned"
	"github.com/ashlar-go/ashlar/test/bench/load"
)

func groupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "example.com", Version: "v1"}
}

// Database is the object of the workload.
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

// DatabaseList is a list of databases.
type DatabaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Database `json:"items"`
}

// DeepCopyObject copies everything.
func (l *DatabaseList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = make([]Database, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopyObject().(*Database)
	}
	return &c
}

// databaseAt is the object as a cache that strips managedFields holds it.
func databaseAt(s load.State, version, generation int64) (*Database, error) {
	d := &Database{}
	if err := json.Unmarshal(s.Reply(version, generation), d); err != nil {
		return nil, fmt.Errorf("read reply: %w", err)
	}
	d.ManagedFields = nil
	return d, nil
}

// move lets a cached object look as after the write of its state, followed by a change of its spec.
func move(d *Database, version, generation, observed int64) {
	d.ResourceVersion = strconv.FormatInt(version, 10)
	d.Generation = generation
	d.Status.ObservedGeneration = observed
	for i := range d.Status.Conditions {
		d.Status.Conditions[i].ObservedGeneration = observed
	}
}

func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	s.AddKnownTypes(groupVersion(), &Database{}, &DatabaseList{})
	metav1.AddToGroupVersion(s, groupVersion())
	return s, corev1.AddToScheme(s)
}

func newMapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(groupVersion().WithKind("Database"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	return m
}

// clientOf is a live client of a canned server.
func clientOf(s *canned.Server) (client.Client, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	return client.New(&rest.Config{Host: "https://server", QPS: -1}, client.Options{
		HTTPClient: &http.Client{Transport: s}, Scheme: scheme, Mapper: newMapper(),
	})
}
