// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"slices"
	"strings"
)

// Filter says whether a request is wanted. Several filters given together must all match.
type Filter func(Request) bool

// User matches requests authorized for this user name.
func User(name string) Filter {
	return func(r Request) bool { return r.User == name }
}

// ServiceAccount matches requests of a service account.
func ServiceAccount(namespace, name string) Filter {
	return User("system:serviceaccount:" + namespace + ":" + name)
}

// UserAgent matches requests whose user agent begins with prefix. It tells apart clients that share a user.
func UserAgent(prefix string) Filter {
	return func(r Request) bool { return strings.HasPrefix(r.UserAgent, prefix) }
}

// Namespace matches requests on this namespace's objects, and on the Namespace object itself.
func Namespace(name string) Filter {
	return func(r Request) bool { return r.Namespace == name || (namespaceObject(r) && r.Name == name) }
}

// Resource matches requests on a resource (lower case, plural) and all its subresources. The core group is "".
func Resource(group, resource string) Filter {
	return func(r Request) bool { return r.Group == group && r.Resource == resource }
}

// Subresource matches requests on a subresource such as "status"; "" matches the main resource only.
func Subresource(name string) Filter {
	return func(r Request) bool { return r.Resource != "" && r.Subresource == name }
}

// Object matches requests on one object and its subresources, without lists and watches, which name no object.
// namespace is empty for a cluster-scoped object.
func Object(group, resource, namespace, name string) Filter {
	return func(r Request) bool {
		return r.Group == group && r.Resource == resource && r.Namespace == namespace && r.Name == name
	}
}

// Verb matches any of the verbs.
func Verb(verbs ...string) Filter {
	return func(r Request) bool { return slices.Contains(verbs, r.Verb) }
}

// Code matches any of the HTTP status codes.
func Code(codes ...int) Filter {
	return func(r Request) bool { return slices.Contains(codes, r.Code) }
}

// Not matches what f does not.
func Not(f Filter) Filter {
	return func(r Request) bool { return !f(r) }
}

// Or matches what any of the filters matches.
func Or(filters ...Filter) Filter {
	return func(r Request) bool {
		return slices.ContainsFunc(filters, func(f Filter) bool { return f(r) })
	}
}

// Noise matches what [Log.Since] leaves out because it says nothing about a reconciler: Leases, Events of both groups,
// access and token reviews, discovery, OpenAPI, version and health endpoints.
func Noise(r Request) bool {
	switch r.Resource {
	case "":
		return discovery(r.what())
	case "leases":
		return r.Group == "coordination.k8s.io"
	case "events":
		return r.Group == "" || r.Group == "events.k8s.io"
	}
	return review(r)
}

// review matches the kinds that are posted to ask a question.
func review(r Request) bool {
	switch r.Group {
	case "authorization.k8s.io":
		return true // the group holds nothing else
	case "authentication.k8s.io":
		return r.Resource == "tokenreviews" || r.Resource == "selfsubjectreviews"
	}
	return false
}

func discovery(path string) bool {
	if path == "/" {
		return true
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch first {
	case "api", "apis", "openapi", "version", "healthz", "livez", "readyz", ".well-known":
		return true
	}
	return false
}

func matches(r Request, filters []Filter) bool {
	for _, f := range filters {
		if !f(r) {
			return false
		}
	}
	return true
}
