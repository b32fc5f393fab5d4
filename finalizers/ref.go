// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package finalizers

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Ref names an object in a message, in stored progress and in what [Sweep] finds. It is comparable; the zero Ref names
// nothing. Only the fields that are known need to be set.
type Ref struct {
	// The object, as far as it is known.
	APIVersion string    `json:"apiVersion,omitempty"`
	Kind       string    `json:"kind,omitempty"`
	Namespace  string    `json:"namespace,omitempty"`
	Name       string    `json:"name,omitempty"`
	UID        types.UID `json:"uid,omitempty"`

	// Finalizer is the entry on that object which is meant: [Sweep] sets it to the hold that was left over. A step may
	// set it to say which entry of the object it waits for.
	Finalizer string `json:"finalizer,omitempty"`
}

// IsZero reports whether r names nothing.
func (r Ref) IsZero() bool { return r == Ref{} }

// String is the kind and namespace/name, the way errors of this package name objects.
func (r Ref) String() string {
	var b strings.Builder
	b.WriteString(r.Kind)
	if r.Name != "" {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		if r.Namespace != "" {
			b.WriteString(r.Namespace)
			b.WriteByte('/')
		}
		b.WriteString(r.Name)
	}
	if r.Finalizer != "" {
		b.WriteString(" (finalizer ")
		b.WriteString(r.Finalizer)
		b.WriteByte(')')
	}
	return b.String()
}

// refOf names obj. Typed objects often carry no kind; their Go type says it then.
func refOf(obj client.Object) Ref {
	gvk := obj.GetObjectKind().GroupVersionKind()
	r := Ref{Kind: gvk.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID()}
	if gvk.Kind == "" {
		t := reflect.TypeOf(obj)
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		r.Kind = t.Name()
		return r
	}
	r.APIVersion = gvk.GroupVersion().String()
	return r
}
