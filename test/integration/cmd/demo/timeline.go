// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/ashlar-go/ashlar/test/controlplane/audit"
	"github.com/ashlar-go/ashlar/test/integration/lab"
)

// line of the timeline: who did or said what.
type line struct {
	time      time.Time
	who, what string
}

// timeline turns the changes and requests of one act into lines.
type timeline struct {
	before map[string]*unstructured.Unstructured // last seen, by kind and name
}

func (t *timeline) print(out io.Writer, start time.Time, changes []lab.Change, requests audit.Requests) {
	var lines []line
	for _, change := range changes {
		lines = append(lines, t.lines(change)...)
	}
	for _, request := range requests {
		lines = append(lines, line{request.Time, "operator", fmt.Sprintf("%-6s %s → %d", request.Verb, target(request), request.Code)})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.time.UnixMilli(), b.time.UnixMilli()) })
	for _, line := range lines {
		what := strings.ReplaceAll(line.what, "\n", "; ")
		fmt.Fprintf(out, "  %7.2f s  %-9s %s\n", line.time.Sub(start).Seconds(), line.who, what)
	}
}

func target(request audit.Request) string {
	name := request.Resource
	if request.Subresource != "" {
		name += "/" + request.Subresource
	}
	return strings.TrimSuffix(name+" "+request.Name, " ")
}

func (t *timeline) lines(change lab.Change) []line {
	object := change.Object
	kind := object.GetKind()
	key := kind + "/" + object.GetName()
	before := t.before[key]
	if change.Type == watch.Deleted {
		delete(t.before, key)
		if kind == "Event" {
			return nil
		}
		return []line{{change.Time, "cluster", kind + " " + object.GetName() + " is gone"}}
	}
	t.before[key] = object

	say := func(who, format string, args ...any) []line {
		return []line{{change.Time, who, fmt.Sprintf(format, args...)}}
	}
	switch {
	case kind == "Event":
		text := func(field string) string { s, _, _ := unstructured.NestedString(object.Object, field); return s }
		if !strings.Contains(text("reportingController"), "database") {
			return nil // what the built-in controllers say would drown the story
		}
		return say("event", "%s %s: %s", text("type"), text("reason"), text("note"))
	case kind == "Database":
		return conditionLines(change, before)
	case before == nil || before.GetUID() != object.GetUID():
		return say("cluster", "%s %s exists", kind, object.GetName())
	case before.GetDeletionTimestamp() == nil && object.GetDeletionTimestamp() != nil:
		return say("cluster", "%s %s is being deleted", kind, object.GetName())
	case kind == "StatefulSet":
		if now := readiness(object); now != readiness(before) {
			return say("cluster", "StatefulSet %s has %s pods ready", object.GetName(), now)
		}
	case kind == "Job":
		if n, _, _ := unstructured.NestedInt64(object.Object, "status", "succeeded"); n > 0 {
			if was, _, _ := unstructured.NestedInt64(before.Object, "status", "succeeded"); was == 0 {
				return say("cluster", "Job %s succeeded", object.GetName())
			}
		}
	}
	return nil
}

func readiness(sts *unstructured.Unstructured) string {
	ready, _, _ := unstructured.NestedInt64(sts.Object, "status", "readyReplicas")
	want, _, _ := unstructured.NestedInt64(sts.Object, "spec", "replicas")
	return fmt.Sprintf("%d of %d", ready, want)
}

// conditionLines says which conditions of a Database changed.
func conditionLines(change lab.Change, before *unstructured.Unstructured) (lines []line) {
	if before == nil || before.GetUID() != change.Object.GetUID() {
		lines = append(lines, line{change.Time, "cluster", "Database " + change.Object.GetName() + " exists"})
		before = nil
	} else if before.GetDeletionTimestamp() == nil && change.Object.GetDeletionTimestamp() != nil {
		lines = append(lines, line{change.Time, "cluster", "Database " + change.Object.GetName() + " is being deleted"})
	}
	old := map[string]map[string]any{}
	if before != nil {
		for _, c := range conditionsOf(before) {
			old[fmt.Sprint(c["type"])] = c
		}
	}
	for _, c := range conditionsOf(change.Object) {
		was := old[fmt.Sprint(c["type"])]
		if was["status"] == c["status"] && was["reason"] == c["reason"] && was["message"] == c["message"] {
			continue
		}
		text := fmt.Sprintf("%v=%v %v", c["type"], c["status"], c["reason"])
		if message := fmt.Sprint(c["message"]); message != "" {
			text += ": " + message
		}
		lines = append(lines, line{change.Time, "status", text})
	}
	return lines
}

func conditionsOf(object *unstructured.Unstructured) (out []map[string]any) {
	list, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, item := range list {
		if fields, ok := item.(map[string]any); ok {
			out = append(out, fields)
		}
	}
	return out
}
