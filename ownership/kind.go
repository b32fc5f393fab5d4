// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Carrier is how a claim is written on a child.
type Carrier int

const (
	// Auto picks Native wherever Kubernetes allows a native reference (same namespace, or a cluster-scoped owner) and
	// Label everywhere else. Kinds with NeededByCleanup are always carried by Label.
	Auto Carrier = iota
	// Native is a controller owner reference with blockOwnerDeletion: the garbage collector removes the child.
	Native
	// Label is a label with the owner's uid plus an annotation naming the owner. It works across namespaces and
	// scopes. No garbage collector knows it, so the owner must carry the set's finalizer.
	Label
	// ApplySet is Label plus the member label of KEP-3659, so that tools which read ApplySets find the members.
	ApplySet
)

// String is the name of the constant.
func (c Carrier) String() string {
	switch c {
	case Auto:
		return "Auto"
	case Native:
		return "Native"
	case Label:
		return "Label"
	case ApplySet:
		return "ApplySet"
	}
	return "Carrier(?)"
}

// Kind declares one kind of children. The declared kinds are the record of what the set may remove: nothing of another
// kind is ever touched, and a kind must stay declared (see Retired) until its last child is gone.
type Kind struct {
	schema.GroupVersionKind
	// Cluster says that the kind is cluster-scoped.
	Cluster bool
	// Carrier of the claim. The zero value, Auto, is right for nearly everything.
	Carrier Carrier
	// NeededByCleanup says that cleanup steps read or create objects of the kind. Under foreground deletion the
	// garbage collector deletes natively owned children before any finalizer ran, so these are carried by Label, may
	// be created on a terminating owner, and go last.
	NeededByCleanup bool
	// Retired says that a former release created the kind: children are found and pruned, none is created.
	Retired bool
	// Found says that others create the objects, from a template that carries the claim (see (*Set).Claim): the volumes
	// of a StatefulSet. Children are found and torn down, never applied, and never pruned: whether one is still wanted
	// only its creator knows. They are carried by Label.
	Found bool
	// Resource is the plural name in URLs and RBAC. Empty means the usual English plural of the kind.
	Resource string
}

// Plural is Resource, or the usual English plural of the kind.
func (k Kind) Plural() string {
	if k.Resource != "" {
		return k.Resource
	}
	plural, _ := meta.UnsafeGuessKindToResource(k.GroupVersionKind)
	return plural.Resource
}

// Verbs are what an executor asks of the API server for children of the kind, sorted: patch also releases a child
// without deleting it, which kinds with NeededByCleanup never need.
func (k Kind) Verbs() []string {
	switch {
	case k.Found && k.NeededByCleanup:
		return []string{"delete", "get", "list", "watch"}
	case k.Found, k.Retired:
		return []string{"delete", "get", "list", "patch", "watch"}
	}
	return []string{"create", "delete", "get", "list", "patch", "watch"}
}
