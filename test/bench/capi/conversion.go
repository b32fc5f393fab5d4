// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	stash "sigs.k8s.io/cluster-api/util/conversion"
	ctrl "sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"github.com/ashlar-go/ashlar/test/bench/load"
	"github.com/ashlar-go/ashlar/test/bench/side"
)

var conversionBenches = []side.Bench{
	{Name: "conversion.one_down_stash", Prepare: stashDown},
	{Name: "conversion.stash", Prepare: stashBytes},
}

// The kind of the conversion metrics, as in the module ours.
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

// gadgetUp is not what is measured here; it must exist.
func gadgetUp(_ context.Context, in *oldGadget, out *newGadget) error {
	out.ObjectMeta = in.ObjectMeta
	_, err := stash.UnmarshalData(in, out)
	return err
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
	return stash.MarshalDataUnsafeNoCopy(in, out)
}

func conversionHandler() (http.Handler, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: "example.com", Version: load.OldGadget, Kind: "Gadget"}, &oldGadget{})
	scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: "example.com", Version: load.NewGadget, Kind: "Gadget"}, &newGadget{})
	converter, err := ctrl.NewHubSpokeConverter(&newGadget{}, ctrl.NewSpokeConverter(&oldGadget{}, gadgetDown, gadgetUp))(scheme)
	if err != nil {
		return nil, err
	}
	registry := ctrl.NewRegistry()
	if err := registry.RegisterConverter(schema.GroupKind{Group: "example.com", Kind: "Gadget"}, converter); err != nil {
		return nil, err
	}
	return ctrl.NewWebhookHandler(scheme, registry), nil
}

type recorder struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(code int)        { r.code = code }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }

func review(h http.Handler, w *recorder, body []byte) error {
	r, err := http.NewRequest(http.MethodPost, "/convert?timeout=30s", io.NopCloser(bytes.NewReader(body)))
	if err != nil {
		return err
	}
	r.ContentLength = int64(len(body))
	r.Header.Set("Content-Type", "application/json")
	w.body.Reset()
	w.code = http.StatusOK
	h.ServeHTTP(w, r)
	if w.code != http.StatusOK || !bytes.Contains(w.body.Bytes(), []byte("sunday")) {
		return errors.New(w.body.String())
	}
	return nil
}

// stashDown is a review of one object whose hub is kept whole in an annotation.
func stashDown() (side.Work, error) {
	h, err := conversionHandler()
	if err != nil {
		return side.Work{}, err
	}
	w := &recorder{header: http.Header{}}
	body := load.Review(load.OldGadget, load.Gadget(load.NewGadget, "orders", true, 0))
	return side.Work{Do: func() error { return review(h, w, body) }}, nil
}

func stashBytes() (side.Work, error) {
	h, err := conversionHandler()
	if err != nil {
		return side.Work{}, err
	}
	w := &recorder{header: http.Header{}}
	body := load.Review(load.OldGadget, load.Gadget(load.NewGadget, "orders", true, 0))
	var total int64
	return side.Work{Counts: func() map[string]int64 { return map[string]int64{"stash": total} }, Do: func() error {
		if err := review(h, w, body); err != nil {
			return err
		}
		var v struct {
			Response struct {
				Got []oldGadget `json:"convertedObjects"`
			}
		}
		if err := json.Unmarshal(w.body.Bytes(), &v); err != nil {
			return err
		}
		kept := v.Response.Got[0].Annotations[stash.DataAnnotation]
		if kept == "" {
			return fmt.Errorf("nothing was kept: %s", w.body.String())
		}
		total += int64(len(kept))
		return nil
	}}, nil
}
