// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Object is what controller-runtime calls client.Object, spelled with apimachinery alone so that planning needs no
// client. Every Kubernetes API type and *unstructured.Unstructured is one.
type Object interface {
	metav1.Object
	runtime.Object
}

// Ref names one object of the cluster. Two refs are equal when they name the same object at the same version, so a
// Ref serves as a map key.
type Ref struct {
	schema.GroupVersionKind
	// Namespace is empty for an object of a cluster-scoped kind.
	Namespace string
	// Name is metadata.name.
	Name string
}

// String is the form used in messages: "ConfigMap team-a/orders", or "Namespace team-a" without a namespace.
func (r Ref) String() string {
	if r == (Ref{}) {
		return "nobody"
	}
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// wire is the value of the owner-ref annotation: apiVersion, kind, namespace and name, separated by commas. None of
// the four can contain one.
func (r Ref) wire() string {
	return r.GroupVersion().String() + "," + r.Kind + "," + r.Namespace + "," + r.Name
}

// parseRef reads what wire wrote. Annotations can be edited by anybody, so nothing about the text is trusted.
func parseRef(s string) (Ref, bool) {
	api, rest, ok1 := strings.Cut(s, ",")
	kind, rest, ok2 := strings.Cut(rest, ",")
	ns, name, ok3 := strings.Cut(rest, ",")
	if !ok1 || !ok2 || !ok3 || api == "" || kind == "" || name == "" || strings.Contains(name, ",") {
		return Ref{}, false
	}
	gv, err := schema.ParseGroupVersion(api)
	if err != nil || gv.Version == "" {
		return Ref{}, false
	}
	return Ref{GroupVersionKind: gv.WithKind(kind), Namespace: ns, Name: name}, true
}

// identity is an owner reduced to what claims are made of.
type identity struct {
	ref        Ref
	apiVersion string
	uid        types.UID
	wire       string // ref.wire()
}

// sameObject compares everything but the version and the uid.
func (r Ref) sameObject(o Ref) bool {
	return r.Group == o.Group && r.Kind == o.Kind && r.Namespace == o.Namespace && r.Name == o.Name
}

// groupOf cuts the group out of an apiVersion without building a GroupVersion.
func groupOf(apiVersion string) string {
	g, _, ok := strings.Cut(apiVersion, "/")
	if !ok {
		return ""
	}
	return g
}
