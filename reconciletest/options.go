// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Option changes how a [LawTransport] judges.
type Option interface{ apply(*laws) }

type optionFunc func(*laws)

func (f optionFunc) apply(l *laws) { f(l) }

// WithExempt adds resources whose writes are not judged. Always exempt are those that machinery writes in ways of its
// own: leases, events, and the reviews of the authentication and authorization groups.
func WithExempt(resources ...schema.GroupResource) Option {
	return optionFunc(func(l *laws) {
		for _, r := range resources {
			l.exempt[r] = true
		}
	})
}

// WithForeign adds a predicate that tells which objects are not the program's to write; a write to one breaks
// [ForeignWrite]. Given several times, any of them may object. It must be safe for concurrent use. By default nothing
// is foreign.
func WithForeign(foreign func(Write) bool) Option {
	return optionFunc(func(l *laws) {
		if foreign != nil {
			l.foreign = append(l.foreign, foreign)
		}
	})
}

// exemptByDefault are written by client-go's own machinery, which takes other precautions or needs none.
func exemptByDefault() map[schema.GroupResource]bool {
	return map[schema.GroupResource]bool{
		{Group: "coordination.k8s.io", Resource: "leases"}:                     true,
		{Group: "", Resource: "events"}:                                        true,
		{Group: "events.k8s.io", Resource: "events"}:                           true,
		{Group: "authentication.k8s.io", Resource: "tokenreviews"}:             true,
		{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"}:       true,
		{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}:      true,
		{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"}:  true,
		{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"}: true,
		{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"}:   true,
	}
}
