// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/ownership"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Check lists, joined into one error, what would make passes fail: a declared kind that is not served, a scope declared
// wrong, a plural name guessed wrong, and each verb of (*ownership.Set).Rules that the process lacks: of namespaced kinds
// in every namespace or, when some are named, in each of these, for an operator that has Roles only. It changes nothing;
// the access reviews it creates are not stored.
//
// Requests: discovery and one SelfSubjectAccessReview per verb (and namespace). It needs no verb beyond what every
// authenticated user has.
func (a *Applier) Check(ctx context.Context, namespaces ...string) error {
	var errs []error
	owner := ownership.Kind{GroupVersionKind: a.set.Owner(), Cluster: a.set.ClusterOwner()}
	if gvr, err := a.served(owner); err != nil {
		errs = append(errs, fmt.Errorf("check owner of set %q: %w", a.set.Name(), err))
	} else {
		errs = append(errs, a.allowed(ctx, owner, gvr, []string{"get"}, namespaces))
	}
	for _, k := range a.kinds {
		gvr, err := a.served(k)
		if err != nil {
			if !k.Retired || !meta.IsNoMatchError(err) {
				errs = append(errs, fmt.Errorf("check kind of set %q: %w", a.set.Name(), err))
			}
			continue
		}
		errs = append(errs, a.allowed(ctx, k, gvr, k.Verbs(), namespaces))
	}
	return errors.Join(errs...)
}

func (a *Applier) served(k ownership.Kind) (schema.GroupVersionResource, error) {
	m, err := a.c.RESTMapper().RESTMapping(k.GroupKind(), k.Version)
	if err != nil {
		return schema.GroupVersionResource{}, fmt.Errorf("%s is not served: %w", k.GroupVersionKind, err)
	}
	switch cluster := m.Scope.Name() == meta.RESTScopeNameRoot; {
	case cluster && !k.Cluster:
		return m.Resource, fmt.Errorf("%s is cluster-scoped but declared namespaced", k.GroupVersionKind)
	case !cluster && k.Cluster:
		return m.Resource, fmt.Errorf("%s is namespaced but declared cluster-scoped", k.GroupVersionKind)
	case m.Resource.Resource != k.Plural():
		return m.Resource, fmt.Errorf("%s: its plural is %s, not %s: set Kind.Resource", k.GroupVersionKind, m.Resource.Resource, k.Plural())
	}
	return m.Resource, nil
}

func (a *Applier) allowed(ctx context.Context, k ownership.Kind, r schema.GroupVersionResource, verbs, namespaces []string) error {
	if k.Cluster || len(namespaces) == 0 {
		namespaces = []string{""}
	}
	var errs []error
	for _, ns := range namespaces {
		where := "in namespace " + ns
		switch {
		case k.Cluster:
			where = "in the cluster"
		case ns == "":
			where = "in every namespace"
		}
		for _, verb := range verbs {
			attributes := map[string]any{"group": r.Group, "resource": r.Resource, "verb": verb}
			if ns != "" {
				attributes["namespace"] = ns
			}
			review := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
				"spec": map[string]any{"resourceAttributes": attributes},
			}}
			if err := a.c.Create(ctx, review); err != nil {
				errs = append(errs, fmt.Errorf("check access to %s %s: %w", verb, r.GroupResource(), err))
				continue
			}
			if ok, _, _ := unstructured.NestedBool(review.Object, "status", "allowed"); !ok {
				errs = append(errs, fmt.Errorf("set %q may not %s %s %s: grant it, see Rules", a.set.Name(), verb, r.GroupResource(), where))
			}
		}
	}
	return errors.Join(errs...)
}
