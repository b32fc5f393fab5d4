// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package statussync

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Check looks at start-up, read-only, whether the writers of this group can work, and returns one sentence for each
// thing that is wrong, joined; nil when nothing is. It looks at every kind that has a writer:
//
//   - the server serves it;
//   - this process may patch its status and get it (SelfSubjectAccessReview, which every authenticated client may
//     create), in all namespaces or, when some are named, in each of these;
//   - with WithOpenAPI: it has a status subresource; the condition list is a map keyed by type; the schema has every
//     payload field and, for a Primary writer, observedGeneration with the default status: {observedGeneration: -1},
//     without which kstatus takes a new object for Current before the first write.
//
// A right to read CustomResourceDefinitions is not needed. Requests: 2 per kind (and namespace), 1 per group and
// version with WithOpenAPI.
func (g *Group) Check(ctx context.Context, namespaces ...string) error {
	var errs []error
	documents := map[schema.GroupVersion]*openAPI{}
	reviewed := map[schema.GroupKind]bool{}
	for _, w := range g.list() {
		mapping, err := g.client.RESTMapper().RESTMapping(w.gvk.GroupKind(), w.gvk.Version)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %s: the server does not serve it: %w", w.version, w.gvk.Kind, err))
			continue
		}
		if !reviewed[w.gvk.GroupKind()] {
			reviewed[w.gvk.GroupKind()] = true
			errs = append(errs, g.checkAccess(ctx, mapping.Resource.GroupResource(), namespaces)...)
		}
		if g.settings.schema == nil {
			continue
		}
		gv := w.gvk.GroupVersion()
		doc, ok := documents[gv]
		if !ok {
			if doc, err = g.readOpenAPI(ctx, gv); err != nil {
				errs = append(errs, fmt.Errorf("%s: read the OpenAPI v3 schema: %w", gv, err))
			}
			documents[gv] = doc
		}
		if doc != nil {
			errs = append(errs, doc.check(w, mapping.Resource.Resource)...)
		}
	}
	return errors.Join(errs...)
}

// checkAccess asks the server what this process may do. The review is unstructured because this package does not
// depend on the types of the authorization API.
func (g *Group) checkAccess(ctx context.Context, r schema.GroupResource, namespaces []string) []error {
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	var errs []error
	for _, ns := range namespaces {
		for _, need := range []struct{ verb, subresource, what string }{
			{"patch", "status", "write the status"},
			{"get", "", "read the object live after a conflict"},
		} {
			attributes := map[string]any{"verb": need.verb, "group": r.Group, "resource": r.Resource}
			target := r.String()
			if need.subresource != "" {
				attributes["subresource"] = need.subresource
				target += "/" + need.subresource
			}
			where := "all namespaces"
			if ns != "" {
				attributes["namespace"] = ns
				where = "namespace " + ns
			}
			review := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "authorization.k8s.io/v1",
				"kind":       "SelfSubjectAccessReview",
				"spec":       map[string]any{"resourceAttributes": attributes},
			}}
			if err := g.client.Create(ctx, review); err != nil {
				errs = append(errs, fmt.Errorf("%s: review access: %w", target, err))
				continue
			}
			if allowed, _, _ := unstructured.NestedBool(review.Object, "status", "allowed"); !allowed {
				errs = append(errs, fmt.Errorf("%s: the verb %s is not allowed in %s; it is needed to %s", target, need.verb, where, need.what))
			}
		}
	}
	return errs
}
