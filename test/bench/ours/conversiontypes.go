// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The kind of the conversion metrics. Both sides run the same functions.
type (
	oldGadget struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata,omitempty"`
		Spec              oldGadgetSpec `json:"spec,omitempty"`
		Status            gadgetStatus  `json:"status,omitempty"`
	}
	oldGadgetSpec struct {
		Endpoint       string            `json:"endpoint,omitempty"`
		Config         map[string]string `json:"config,omitempty"`
		Paused         bool              `json:"paused,omitempty"`
		Replicas       int32             `json:"replicas,omitempty"`
		Rules          []gadgetRule      `json:"rules,omitempty"`
		TimeoutSeconds int64             `json:"timeoutSeconds,omitempty"`
	}
	newGadget struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata,omitempty"`
		Spec              newGadgetSpec `json:"spec,omitempty"`
		Status            gadgetStatus  `json:"status,omitempty"`
	}
	newGadgetSpec struct {
		Address     *gadgetAddress    `json:"address,omitempty"`
		Config      map[string]string `json:"config,omitempty"`
		Paused      bool              `json:"paused,omitempty"`
		Rules       []gadgetRule      `json:"rules,omitempty"`
		ScalePolicy *gadgetScale      `json:"scalePolicy,omitempty"`
		Tier        *gadgetTier       `json:"tier,omitempty"`
		Timeout     *metav1.Duration  `json:"timeout,omitempty"`
	}
	gadgetAddress struct {
		Host string `json:"host"`
		Port int32  `json:"port,omitempty"`
	}
	gadgetScale struct {
		Min int32 `json:"min"`
		Max int32 `json:"max,omitempty"`
	}
	gadgetTier struct {
		Class  string `json:"class"`
		Window string `json:"window,omitempty"`
	}
	gadgetRule struct {
		Name        string `json:"name"`
		Description string `json:"description,omitempty"`
		Port        int32  `json:"port,omitempty"`
	}
	gadgetStatus struct {
		Message       string `json:"message,omitempty"`
		ReadyReplicas *int32 `json:"readyReplicas,omitempty"`
	}
)

func (g *oldGadget) DeepCopyObject() runtime.Object { c := *g; return &c }
func (g *newGadget) DeepCopyObject() runtime.Object { c := *g; return &c }

// Hub makes v1 the hub of controller-runtime.
func (g *newGadget) Hub() {}

func gadgetUp(_ context.Context, in *oldGadget, out *newGadget) error {
	out.ObjectMeta = in.ObjectMeta
	if in.Spec.Endpoint != "" {
		host, port, _ := strings.Cut(in.Spec.Endpoint, ":")
		n, err := strconv.ParseInt(port, 10, 32)
		if err != nil {
			return err
		}
		out.Spec.Address = &gadgetAddress{Host: host, Port: int32(n)}
	}
	if in.Spec.Replicas != 0 {
		out.Spec.ScalePolicy = &gadgetScale{Min: in.Spec.Replicas, Max: in.Spec.Replicas}
	}
	if in.Spec.TimeoutSeconds != 0 {
		out.Spec.Timeout = &metav1.Duration{Duration: time.Duration(in.Spec.TimeoutSeconds) * time.Second}
	}
	out.Spec.Config, out.Spec.Paused, out.Spec.Rules = in.Spec.Config, in.Spec.Paused, in.Spec.Rules
	out.Status = in.Status
	return nil
}

func gadgetDown(_ context.Context, in *newGadget, out *oldGadget) error {
	out.ObjectMeta = in.ObjectMeta
	if a := in.Spec.Address; a != nil {
		out.Spec.Endpoint = a.Host + ":" + strconv.Itoa(int(a.Port))
	}
	if in.Spec.ScalePolicy != nil {
		out.Spec.Replicas = in.Spec.ScalePolicy.Min
	}
	if in.Spec.Timeout != nil {
		out.Spec.TimeoutSeconds = int64(in.Spec.Timeout.Duration / time.Second)
	}
	out.Spec.Config, out.Spec.Paused, out.Spec.Rules = in.Spec.Config, in.Spec.Paused, in.Spec.Rules
	out.Status = in.Status
	return nil
}
