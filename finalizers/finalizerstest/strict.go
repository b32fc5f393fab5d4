// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizerstest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Strict gives an in-memory client (controller-runtime's fake) the API server's rules that finalizers depend on and
// that it does not keep by itself:
//
//   - a created object gets a uid;
//   - a write that names a finalizer the stored object does not have is refused once that object is being deleted: 422
//     with a cause;
//   - a JSON Patch whose test does not hold, or whose path does not exist, is a bare 422.
//
// It needs no help when c is a real API server. It is safe for concurrent use.
func Strict(c client.Client) client.Client { return &strict{Client: c} }

type strict struct {
	client.Client

	mu   sync.Mutex
	uids int
}

func (s *strict) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if obj.GetUID() == "" {
		s.uids++
		obj.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", s.uids)))
	}
	return s.Client.Create(ctx, obj, opts...)
}

func (s *strict) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(ctx, obj, obj.GetFinalizers()); err != nil {
		return err
	}
	return s.Client.Update(ctx, obj, opts...)
}

func (s *strict) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, err := patch.Data(obj)
	if err != nil {
		return err
	}
	named, err := namedIn(patch.Type(), body)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if err := s.check(ctx, obj, named); err != nil {
		return err
	}
	err = s.Client.Patch(ctx, obj, client.RawPatch(patch.Type(), body), opts...)
	if status := apierrors.APIStatus(nil); err != nil && patch.Type() == types.JSONPatchType && !errors.As(err, &status) {
		return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, http.MethodPatch,
			s.resource(obj), obj.GetName(), err.Error(), 0, false)
	}
	return err
}

// check refuses new names on a terminating object.
func (s *strict) check(ctx context.Context, obj client.Object, named []string) error {
	stored := &unstructured.Unstructured{}
	gvk, err := s.GroupVersionKindFor(obj)
	if err != nil {
		return err
	}
	stored.SetGroupVersionKind(gvk)
	err = s.Get(ctx, client.ObjectKeyFromObject(obj), stored)
	if apierrors.IsNotFound(err) {
		return nil // the write itself says so, or creates
	}
	if err != nil || stored.GetDeletionTimestamp() == nil {
		return err
	}
	for _, name := range named {
		if !slices.Contains(stored.GetFinalizers(), name) {
			e := apierrors.NewInvalid(gvk.GroupKind(), obj.GetName(), nil)
			e.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeForbidden, Field: "metadata.finalizers",
				Message: fmt.Sprintf("no new finalizers can be added if the object is being deleted, found new finalizers %q", name)}}
			return e
		}
	}
	return nil
}

func (s *strict) resource(obj client.Object) (gr schema.GroupResource) {
	if gvk, err := s.GroupVersionKindFor(obj); err == nil {
		gr.Group, gr.Resource = gvk.Group, strings.ToLower(gvk.Kind)
	}
	return gr
}

// namedIn lists the finalizers that a patch writes. A test names what is there, not what is written.
func namedIn(kind types.PatchType, body []byte) ([]string, error) {
	if kind != types.JSONPatchType {
		var doc struct {
			Metadata struct {
				Finalizers []string `json:"finalizers"`
			} `json:"metadata"`
		}
		err := json.Unmarshal(body, &doc)
		return doc.Metadata.Finalizers, err
	}
	var ops []struct {
		Op, Path string
		Value    json.RawMessage
	}
	if err := json.Unmarshal(body, &ops); err != nil {
		return nil, err
	}
	var named []string
	for _, op := range ops {
		if op.Op != "add" && op.Op != "replace" || !strings.HasPrefix(op.Path, "/metadata/finalizers") {
			continue
		}
		var one string
		var many []string
		if json.Unmarshal(op.Value, &many) != nil && json.Unmarshal(op.Value, &one) == nil {
			many = []string{one}
		}
		named = append(named, many...)
	}
	return named, nil
}
