// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// permission is one thing RBAC decides: a verb on a resource (with its subresource) or on a path outside the API.
type permission struct {
	group, resource, path, verb string
}

// permissions returns what the request needed. A patch or update answered 201 created the object, and for that the
// server asked for create as well (apiserver, create-on-update authorization).
func (r Request) permissions() []permission {
	p := permission{group: r.Group, resource: r.Resource, verb: r.Verb}
	switch {
	case r.Resource == "":
		p.path = r.what()
	case r.Subresource != "":
		p.resource += "/" + r.Subresource
	}
	out := []permission{p}
	if r.Code == 201 && (r.Verb == "patch" || r.Verb == "update") {
		p.verb = "create"
		out = append(out, p)
	}
	return out
}

// everybody matches what the default roles system:basic-user, system:discovery and system:public-info-viewer grant to
// every user: an operator's own role does not have to.
func everybody(r Request) bool {
	switch {
	case r.Resource == "":
		return discovery(r.what())
	case r.Group == "authorization.k8s.io":
		return r.Resource == "selfsubjectaccessreviews" || r.Resource == "selfsubjectrulesreviews"
	case r.Group == "authentication.k8s.io":
		return r.Resource == "selfsubjectreviews"
	}
	return false
}

// Rules returns the RBAC rules that the requests needed, one per resource or path, ordered by group and resource.
// What every authenticated user may do (discovery, reviews of oneself) is left out.
//
// Some permissions leave no request behind and are therefore never here: update on <resource>/finalizers (admission
// plugin OwnerReferencesPermissionEnforcement), escalate, bind, and impersonate.
func (rs Requests) Rules() []rbacv1.PolicyRule {
	verbs := map[permission][]string{}
	for _, r := range rs {
		if everybody(r) {
			continue
		}
		for _, p := range r.permissions() {
			key := p
			key.verb = ""
			if !slices.Contains(verbs[key], p.verb) {
				verbs[key] = append(verbs[key], p.verb)
			}
		}
	}
	keys := make([]permission, 0, len(verbs))
	for k := range verbs {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b permission) int {
		return cmp.Or(strings.Compare(a.path, b.path), strings.Compare(a.group, b.group), strings.Compare(a.resource, b.resource))
	})
	rules := make([]rbacv1.PolicyRule, 0, len(keys))
	for _, k := range keys {
		slices.Sort(verbs[k])
		if k.path != "" {
			rules = append(rules, rbacv1.PolicyRule{NonResourceURLs: []string{k.path}, Verbs: verbs[k]})
			continue
		}
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{k.group}, Resources: []string{k.resource}, Verbs: verbs[k]})
	}
	return rules
}

// Uncovered returns the requests that the rules do not allow: none, when the role is complete. It looks at rules only,
// not at where they are bound: give it the rules that hold in the namespace, and filter by namespace where Roles
// differ. A request the server refused is judged like any other.
func (rs Requests) Uncovered(rules []rbacv1.PolicyRule) Requests {
	return rs.Filter(func(r Request) bool {
		if everybody(r) {
			return false
		}
		for _, p := range r.permissions() {
			if !slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool { return allows(rule, p, ruleName(r)) }) {
				return true
			}
		}
		return false
	})
}

// Unused returns the part of the rules that no request needed: nothing, when the role is minimal and everything was
// exercised. Each verb on each resource is looked at by itself; resource names are ignored. See [Requests.Rules] for
// the permissions that never show in requests.
func (rs Requests) Unused(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	used := map[permission]bool{}
	for _, r := range rs {
		for _, p := range r.permissions() {
			used[p] = true
		}
	}
	needed := func(rule rbacv1.PolicyRule) bool {
		for p := range used {
			if allows(rule, p, "") {
				return true
			}
		}
		return false
	}
	var out []rbacv1.PolicyRule
	for _, rule := range rules {
		for _, part := range split(rule) {
			if !needed(part) {
				out = append(out, part)
			}
		}
	}
	return out
}

// split cuts a rule into its single resource (or path) and verb parts.
func split(rule rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for _, verb := range rule.Verbs {
		for _, path := range rule.NonResourceURLs {
			out = append(out, rbacv1.PolicyRule{NonResourceURLs: []string{path}, Verbs: []string{verb}})
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				out = append(out, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}})
			}
		}
	}
	return out
}

// ruleName is the name that the authorizer saw. It saw none for a create of a main resource, whose name is in the
// body, although the audit event has it.
func ruleName(r Request) string {
	if r.Verb == "deletecollection" || (r.Verb == "create" && r.Subresource == "") {
		return ""
	}
	return r.Name
}

// allows repeats the decision of the RBAC authorizer (k8s.io/kubernetes/pkg/apis/rbac/v1, evaluation_helpers.go).
func allows(rule rbacv1.PolicyRule, p permission, name string) bool {
	if !has(rule.Verbs, p.verb) {
		return false
	}
	if p.path != "" {
		return slices.ContainsFunc(rule.NonResourceURLs, func(url string) bool {
			prefix, wild := strings.CutSuffix(url, "*")
			return url == p.path || (wild && strings.HasPrefix(p.path, prefix))
		})
	}
	if len(rule.ResourceNames) > 0 && !slices.Contains(rule.ResourceNames, name) {
		return false
	}
	_, subresource, _ := strings.Cut(p.resource, "/")
	return has(rule.APIGroups, p.group) &&
		(has(rule.Resources, p.resource) || (subresource != "" && slices.Contains(rule.Resources, "*/"+subresource)))
}

func has(list []string, item string) bool {
	return slices.Contains(list, item) || slices.Contains(list, rbacv1.VerbAll)
}
