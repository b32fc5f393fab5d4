// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest

import (
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkMetadata are the rules about an object by itself.
func checkMetadata(u *unstructured.Unstructured) field.ErrorList {
	var errs field.ErrorList
	for _, name := range []string{"spec", "status"} {
		if v, ok := u.Object[name]; ok && v == nil {
			errs = append(errs, field.TypeInvalid(field.NewPath(name), "null", "must be of type object"))
		}
	}
	at := field.NewPath("metadata", "finalizers")
	for i, f := range u.GetFinalizers() {
		for _, msg := range validation.IsQualifiedName(f) {
			errs = append(errs, field.Invalid(at.Index(i), f, msg))
		}
	}
	if slices.Contains(u.GetFinalizers(), metav1.FinalizerOrphanDependents) && slices.Contains(u.GetFinalizers(), metav1.FinalizerDeleteDependents) {
		errs = append(errs, field.Invalid(at, u.GetFinalizers(), "finalizers orphan and foregroundDeletion cannot be both set"))
	}
	at = field.NewPath("metadata", "ownerReferences")
	controller := ""
	for i, r := range u.GetOwnerReferences() {
		for name, v := range map[string]string{"apiVersion": r.APIVersion, "kind": r.Kind, "name": r.Name, "uid": string(r.UID)} {
			if v == "" {
				errs = append(errs, field.Invalid(at.Index(i).Child(name), v, "must not be empty"))
			}
		}
		if r.APIVersion == "v1" && r.Kind == "Event" {
			errs = append(errs, field.Invalid(at.Index(i), r.Kind, "is disallowed from being an owner"))
		}
		if r.Controller != nil && *r.Controller {
			if controller != "" {
				errs = append(errs, field.Invalid(at, r.Name, "only one reference can have Controller set to true, found also "+controller))
			}
			controller = r.Name
		}
	}
	slices.SortFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	return errs
}

// checkChange are the rules about what may become of an object.
func checkChange(was, is *unstructured.Unstructured) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("metadata")
	if is.GetUID() != was.GetUID() {
		errs = append(errs, field.Invalid(at.Child("uid"), is.GetUID(), "field is immutable"))
	}
	if is.GetName() != was.GetName() {
		errs = append(errs, field.Invalid(at.Child("name"), is.GetName(), "field is immutable"))
	}
	if was.GetDeletionTimestamp() != nil {
		for _, f := range is.GetFinalizers() {
			if !slices.Contains(was.GetFinalizers(), f) {
				errs = append(errs, field.Forbidden(at.Child("finalizers"),
					"no new finalizers can be added if the object is being deleted, found new finalizers ["+f+"]"))
			}
		}
	}
	return append(errs, checkMetadata(is)...)
}

// inTerminatingNamespace refuses a create where the namespace is going away. A namespace that is not served or not there
// counts as there.
func (s *StrictServer) inTerminatingNamespace(k *kindStore, namespace, name string) error {
	var spaces *kindStore
	for _, c := range s.order {
		if c.Group == "" && c.Plural == "namespaces" {
			spaces = c
		}
	}
	if namespace == "" || spaces == nil {
		return nil
	}
	ns := spaces.objects[objectKey{name: namespace}]
	if ns == nil || ns.GetDeletionTimestamp() == nil {
		return nil
	}
	err := apierrors.NewForbidden(k.groupResource(), name, nil)
	err.ErrStatus.Message = "unable to create new content in namespace " + namespace + " because it is being terminated"
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: "NamespaceTerminating", Message: "namespace " + namespace + " is being terminated", Field: "metadata.namespace",
	})
	return err
}

// orphansByDefault are the two kinds whose children stay when a delete names no policy.
func (k *kindStore) orphansByDefault() bool {
	return k.Group == "batch" && k.Kind == "Job" || k.Group == "" && k.Kind == "ReplicationController"
}

func notServed(path string) *metav1.Status {
	return &metav1.Status{
		Status: metav1.StatusFailure, Code: 404, Reason: metav1.StatusReasonNotFound,
		Message: "the server could not find the requested resource", Details: &metav1.StatusDetails{Name: path},
	}
}
