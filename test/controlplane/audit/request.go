// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Request is one request as the API server saw it.
type Request struct {
	// Time is when the server received it.
	Time time.Time
	// Duration is from there to the end of the answer, or to its start for a long-running request.
	Duration time.Duration
	// User is the name the request was authorized for: a certificate's common name,
	// system:serviceaccount:<namespace>:<name>, or the impersonated user.
	User string
	// Impersonator is the name that authenticated, if it impersonated User; else empty.
	Impersonator string
	// UserAgent is the client's own description of itself.
	UserAgent string
	// Verb is the API verb: get, list, watch, create, update, patch, delete, deletecollection. A server-side apply is
	// a patch.
	Verb string
	// Group, Version, Resource and Subresource name the API; all are empty for a request outside it, such as /version.
	Group, Version, Resource, Subresource string
	// Namespace and Name name the object. A list has no name, nor has a create with generateName.
	Namespace, Name string
	// Code is the HTTP status code of the answer.
	Code int
	// DryRun says that the request asked not to be stored.
	DryRun bool
	// URI is the path and query as sent, with field manager, limit and continue in it.
	URI string
}

// String is one line: verb, resource and object, code, user.
func (r Request) String() string {
	object := r.Name
	if r.Namespace != "" {
		object = r.Namespace + "/" + r.Name
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %d by %s", r.Verb, r.what(), object, r.Code, r.User))
}

// what is the resource with group and subresource as kubectl spells it, or the path outside the API.
func (r Request) what() string {
	if r.Resource == "" {
		path, _, _ := strings.Cut(r.URI, "?")
		return path
	}
	what := r.Resource
	if r.Group != "" {
		what += "." + r.Group
	}
	if r.Subresource != "" {
		what += "/" + r.Subresource
	}
	return what
}

// Requests are in the order in which the server answered them.
type Requests []Request

// Filter returns those that match every filter.
func (rs Requests) Filter(filters ...Filter) Requests {
	var out Requests
	for _, r := range rs {
		if matches(r, filters) {
			out = append(out, r)
		}
	}
	return out
}

// Writes returns the requests that asked for a change: create, update, patch, delete and deletecollection, whatever
// the answer was, without dry runs and without access and token reviews, which are creates that store nothing.
func (rs Requests) Writes() Requests {
	return rs.Filter(func(r Request) bool {
		switch r.Verb {
		case "create", "update", "patch", "delete", "deletecollection":
			return !r.DryRun && !review(r)
		}
		return false
	})
}

// event is the part of audit.k8s.io/v1 Event that is read here.
type event struct {
	Stage            string    `json:"stage"`
	RequestURI       string    `json:"requestURI"`
	Verb             string    `json:"verb"`
	User             user      `json:"user"`
	ImpersonatedUser *user     `json:"impersonatedUser"`
	UserAgent        string    `json:"userAgent"`
	Received         time.Time `json:"requestReceivedTimestamp"`
	Staged           time.Time `json:"stageTimestamp"`
	ObjectRef        *struct {
		Resource    string `json:"resource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		APIGroup    string `json:"apiGroup"`
		APIVersion  string `json:"apiVersion"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus *struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

type user struct {
	Username string `json:"username"`
}

func namespaceObject(r Request) bool {
	return r.Group == "" && r.Resource == "namespaces"
}

// longRunning repeats the API server's own rule (kube-apiserver's LongRunningFunc): these get a ResponseStarted event,
// always, and are counted there.
func (e *event) longRunning() bool {
	if e.Verb == "watch" || e.Verb == "proxy" {
		return true
	}
	if e.ObjectRef == nil {
		return false
	}
	switch e.ObjectRef.Subresource {
	case "attach", "exec", "proxy", "log", "portforward":
		return true
	}
	return false
}

// decode reads one line of the log; ok is false for an event that is not counted.
func decode(line []byte) (r Request, ok bool, err error) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		return r, false, fmt.Errorf("read audit event: %w", err)
	}
	switch e.Stage {
	case "ResponseStarted":
	case "ResponseComplete", "Panic":
		if e.longRunning() {
			return r, false, nil // counted when it started
		}
	default:
		return r, false, nil
	}
	r = Request{
		Time: e.Received, Duration: e.Staged.Sub(e.Received),
		User: e.User.Username, UserAgent: e.UserAgent, Verb: e.Verb, URI: e.RequestURI,
	}
	if e.ImpersonatedUser != nil {
		r.User, r.Impersonator = e.ImpersonatedUser.Username, e.User.Username
	}
	if o := e.ObjectRef; o != nil {
		r.Group, r.Version, r.Resource, r.Subresource = o.APIGroup, o.APIVersion, o.Resource, o.Subresource
		r.Namespace, r.Name = o.Namespace, o.Name
		if namespaceObject(r) {
			r.Namespace = "" // the server puts the name there for all verbs but create
		}
	}
	if e.ResponseStatus != nil {
		r.Code = e.ResponseStatus.Code
	}
	if _, query, found := strings.Cut(e.RequestURI, "?"); found && strings.Contains(query, "dryRun") {
		if q, err := url.ParseQuery(query); err == nil {
			r.DryRun = q.Has("dryRun")
		}
	}
	return r, true, nil
}
