// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Verb is what a request does to the stored object. Patches are told apart because they are fenced differently.
type Verb string

// The verbs of writes.
const (
	VerbCreate           Verb = "create"            // POST
	VerbUpdate           Verb = "update"            // PUT
	VerbJSONPatch        Verb = "json patch"        // a list of operations
	VerbMergePatch       Verb = "merge patch"       // JSON merge patch or strategic merge patch
	VerbApply            Verb = "apply"             // server-side apply
	VerbDelete           Verb = "delete"            // DELETE of one object
	VerbDeleteCollection Verb = "delete collection" // DELETE of many
)

// Write is a request that would change something, as far as its address and its body tell.
type Write struct {
	// Verb is what the request does.
	Verb Verb
	// Resource is the plural with group and version.
	Resource schema.GroupVersionResource
	// Subresource is empty for the object itself.
	Subresource string
	// Namespace is empty for cluster-scoped resources.
	Namespace string
	// Name is empty for a delete of a collection, and for a create, whose name is in the body.
	Name string
	// UID is the incarnation the write names, in the body, a test operation or a precondition.
	UID types.UID
	// ResourceVersion is the version the write names, likewise.
	ResourceVersion string
}

// String is verb, resource and object, such as "apply databases.v1.example.com/status default/orders".
func (w Write) String() string {
	var b strings.Builder
	b.WriteString(string(w.Verb))
	b.WriteByte(' ')
	b.WriteString(w.Resource.Resource)
	b.WriteByte('.')
	b.WriteString(w.Resource.Version)
	if w.Resource.Group != "" {
		b.WriteByte('.')
		b.WriteString(w.Resource.Group)
	}
	if w.Subresource != "" {
		b.WriteByte('/')
		b.WriteString(w.Subresource)
	}
	if w.Name != "" || w.Namespace != "" {
		b.WriteByte(' ')
	}
	b.WriteString(w.Namespace)
	if w.Namespace != "" && w.Name != "" {
		b.WriteByte('/')
	}
	b.WriteString(w.Name)
	return b.String()
}

// address reads the path of a request for a resource; ok is false for everything else, such as discovery. A server
// behind a prefix is found too: the path is read from the first "api" or "apis" that a version follows.
func address(path string) (w Write, ok bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for i, p := range parts {
		switch {
		case p == "api" && len(parts) > i+2 && isVersion(parts[i+1]):
			w.Resource.Version = parts[i+1]
			parts = parts[i+2:]
		case p == "apis" && len(parts) > i+3 && isVersion(parts[i+2]):
			w.Resource.Group, w.Resource.Version = parts[i+1], parts[i+2]
			parts = parts[i+3:]
		default:
			continue
		}
		return w.locate(parts)
	}
	return Write{}, false
}

func (w Write) locate(parts []string) (Write, bool) {
	// The namespace itself is addressed like the prefix of what is in it; its two subresources are the exception.
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		w.Namespace = parts[1]
		parts = parts[2:]
	}
	w.Resource.Resource = parts[0]
	if len(parts) > 1 {
		w.Name = parts[1]
	}
	if len(parts) > 2 {
		w.Subresource = strings.Join(parts[2:], "/")
	}
	return w, true
}

func isVersion(s string) bool { return len(s) > 1 && s[0] == 'v' && s[1] >= '0' && s[1] <= '9' }

// verb is what the request does; empty when it changes nothing.
func verb(r *http.Request, w Write) Verb {
	switch r.Method {
	case http.MethodPost:
		return VerbCreate
	case http.MethodPut:
		return VerbUpdate
	case http.MethodPatch:
		return patchVerb(mediaType(r.Header))
	case http.MethodDelete:
		if w.Name == "" {
			return VerbDeleteCollection
		}
		return VerbDelete
	default:
		return ""
	}
}

func patchVerb(media string) Verb {
	switch types.PatchType(media) {
	case types.JSONPatchType:
		return VerbJSONPatch
	case types.ApplyYAMLPatchType, types.ApplyCBORPatchType:
		return VerbApply
	default:
		return VerbMergePatch
	}
}

// mediaType is the content type without parameters.
func mediaType(h http.Header) string {
	media, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(media))
}
