// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Option is an option of New.
type Option interface{ applySet(*Set) }

type optionFunc func(*Set)

func (f optionFunc) applySet(s *Set) { f(s) }

// WithFinalizer names the finalizer whose cleanup removes what the garbage collector does not know. Default: none, and
// then every claim that is not native is refused.
func WithFinalizer(name string) Option { return optionFunc(func(s *Set) { s.finalizer = name }) }

// WithClusterOwner says that the owner kind is cluster-scoped. Default: namespaced.
func WithClusterOwner() Option { return optionFunc(func(s *Set) { s.clusterOwner = true }) }

// WithManager sets the field manager of the set's server-side applies. Default: the set's name and the owner's
// lower-case kind and group, joined by dots. It must stay the same for the life of the children: fields are removed
// only for the manager that set them. At most 128 bytes, printable (the API server's rule).
func WithManager(name string) Option { return optionFunc(func(s *Set) { s.manager = name }) }

// Evidence is what somebody remembers of a member after writing it, so that an unchanged member costs no comparison.
type Evidence struct {
	// ResourceVersion the object had after the write.
	ResourceVersion string
	// Hash of the document that was applied.
	Hash string
	// Print is a digest of the declared part of the object as the server stored it. It is empty when the server stored
	// exactly what was sent; a webhook that rewrites a list makes it non-empty.
	Print string
	// Quick is a hash of the declared object that is cheaper than Hash and holds within one process. 0: unknown.
	Quick uint64
}

// PlanOption is an option of (*Set).Plan and (*Set).Teardown.
type PlanOption interface{ applyPlan(*planner) }

type planOptionFunc func(*planner)

func (f planOptionFunc) applyPlan(p *planner) { f(p) }

// Remembering gives the plan a memory of former writes, asked by uid. Default: none.
func Remembering(recall func(types.UID) (Evidence, bool)) PlanOption {
	return planOptionFunc(func(p *planner) { p.recall = recall })
}

// KindOf names the kind of objects whose TypeMeta is empty, as typed objects out of a cache are; a client's
// GroupVersionKindFor is the usual one. Default: an empty TypeMeta is an error.
func KindOf(kind func(Object) (schema.GroupVersionKind, error)) PlanOption {
	return planOptionFunc(func(p *planner) { p.kindOf = kind })
}
