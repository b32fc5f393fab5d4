// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"fmt"
	"math"

	"github.com/ashlar-go/ashlar/ownership"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type state int

const (
	stateCurrent state = iota
	stateWaiting
	stateFailed
)

// current says whether an object is what its spec asks for, by the published rules of kstatus
// (sigs.k8s.io/cli-utils/pkg/kstatus/README.md), and why not.
func current(o ownership.Object, gk schema.GroupKind) (state, string) {
	if o == nil {
		return stateWaiting, "unknown"
	}
	if o.GetDeletionTimestamp() != nil {
		return stateWaiting, "terminating"
	}
	f, err := fieldsOf(o)
	if err != nil {
		return stateWaiting, err.Error()
	}
	if seen, ok := f.num("status", "observedGeneration"); ok && o.GetGeneration() != 0 && seen != o.GetGeneration() {
		return stateWaiting, fmt.Sprintf("generation %d is not observed yet, %d is", o.GetGeneration(), seen)
	}
	for _, c := range f.conditions() {
		if c.status == "True" && c.typ == "Reconciling" {
			return stateWaiting, c.text()
		}
		if c.status == "True" && c.typ == "Stalled" {
			return stateFailed, c.text()
		}
	}
	if rule, ok := currentRules[gk]; ok {
		return rule(f)
	}
	for _, c := range f.conditions() {
		if c.typ == "Ready" && c.status != "True" {
			return stateWaiting, c.text()
		}
	}
	return stateCurrent, ""
}

// currentRules are the kinds with rules of their own.
var currentRules = map[schema.GroupKind]func(fields) (state, string){
	{Group: "apps", Kind: "StatefulSet"}:                              statefulSetCurrent,
	{Group: "apps", Kind: "Deployment"}:                               deploymentCurrent,
	{Group: "apps", Kind: "ReplicaSet"}:                               replicaSetCurrent,
	{Group: "apps", Kind: "DaemonSet"}:                                daemonSetCurrent,
	{Group: "batch", Kind: "Job"}:                                     jobCurrent,
	{Kind: "Pod"}:                                                     podCurrent,
	{Kind: "PersistentVolumeClaim"}:                                   volumeClaimCurrent,
	{Kind: "Service"}:                                                 serviceCurrent,
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: crdCurrent,
}

func statefulSetCurrent(f fields) (state, string) {
	if f.str("spec", "updateStrategy", "type") == "OnDelete" {
		return stateCurrent, ""
	}
	want := f.numOr(1, "spec", "replicas")
	have, ready := f.numOr(0, "status", "replicas"), f.numOr(0, "status", "readyReplicas")
	switch {
	case have < want:
		return stateWaiting, fmt.Sprintf("%d of %d replicas exist", have, want)
	case ready < want:
		return stateWaiting, fmt.Sprintf("%d of %d replicas are ready", ready, want)
	case have > want:
		return stateWaiting, fmt.Sprintf("%d replicas too many", have-want)
	}
	updated := f.numOr(0, "status", "updatedReplicas")
	if part, ok := f.num("spec", "updateStrategy", "rollingUpdate", "partition"); ok && part > 0 {
		if updated < want-part {
			return stateWaiting, fmt.Sprintf("%d of %d replicas are updated", updated, want-part)
		}
		return stateCurrent, ""
	}
	if now := f.numOr(0, "status", "currentReplicas"); now < want {
		return stateWaiting, fmt.Sprintf("%d of %d replicas are of the current revision", now, want)
	}
	if f.str("status", "currentRevision") != f.str("status", "updateRevision") {
		return stateWaiting, "a new revision is rolling out"
	}
	return stateCurrent, ""
}

func deploymentCurrent(f fields) (state, string) {
	progressing := f.numOr(math.MaxInt32, "spec", "progressDeadlineSeconds") == math.MaxInt32
	available := false
	for _, c := range f.conditions() {
		switch {
		case c.typ == "Progressing" && c.reason == "ProgressDeadlineExceeded":
			return stateFailed, c.text()
		case c.typ == "Progressing" && c.status == "True" && c.reason == "NewReplicaSetAvailable":
			progressing = true
		case c.typ == "Available" && c.status == "True":
			available = true
		}
	}
	want := f.numOr(1, "spec", "replicas")
	have, updated := f.numOr(0, "status", "replicas"), f.numOr(0, "status", "updatedReplicas")
	switch {
	case have < want:
		return stateWaiting, fmt.Sprintf("%d of %d replicas exist", have, want)
	case updated < want:
		return stateWaiting, fmt.Sprintf("%d of %d replicas are updated", updated, want)
	case have > want:
		return stateWaiting, fmt.Sprintf("%d replicas too many", have-want)
	case f.numOr(0, "status", "availableReplicas") < updated:
		return stateWaiting, fmt.Sprintf("%d of %d replicas are available", f.numOr(0, "status", "availableReplicas"), updated)
	case f.numOr(0, "status", "readyReplicas") < want:
		return stateWaiting, fmt.Sprintf("%d of %d replicas are ready", f.numOr(0, "status", "readyReplicas"), want)
	case !progressing:
		return stateWaiting, "the new replica set is not available"
	case !available:
		return stateWaiting, "not available"
	}
	return stateCurrent, ""
}

func replicaSetCurrent(f fields) (state, string) {
	for _, c := range f.conditions() {
		if c.typ == "ReplicaFailure" && c.status == "True" {
			return stateWaiting, c.text()
		}
	}
	want := f.numOr(1, "spec", "replicas")
	for _, k := range [...]string{"fullyLabeledReplicas", "availableReplicas", "readyReplicas"} {
		if n := f.numOr(0, "status", k); n < want {
			return stateWaiting, fmt.Sprintf("%s is %d of %d", k, n, want)
		}
	}
	if have := f.numOr(0, "status", "replicas"); have > want {
		return stateWaiting, fmt.Sprintf("%d replicas too many", have-want)
	}
	return stateCurrent, ""
}

func daemonSetCurrent(f fields) (state, string) {
	if _, ok := f.num("status", "observedGeneration"); !ok {
		return stateWaiting, "not observed yet"
	}
	want, ok := f.num("status", "desiredNumberScheduled")
	if !ok {
		return stateWaiting, "not scheduled yet"
	}
	for _, k := range [...]string{"currentNumberScheduled", "updatedNumberScheduled", "numberAvailable", "numberReady"} {
		if n := f.numOr(0, "status", k); n < want {
			return stateWaiting, fmt.Sprintf("%s is %d of %d", k, n, want)
		}
	}
	return stateCurrent, ""
}

// jobCurrent follows kstatus, for which a Job that has started is current.
func jobCurrent(f fields) (state, string) {
	for _, c := range f.conditions() {
		switch {
		case c.typ == "Failed" && c.status == "True":
			return stateFailed, c.text()
		case c.typ == "Complete" && c.status == "True":
			return stateCurrent, ""
		}
	}
	if f.str("status", "startTime") == "" {
		return stateWaiting, "not started"
	}
	return stateCurrent, ""
}

func podCurrent(f fields) (state, string) {
	switch phase := f.str("status", "phase"); phase {
	case "Succeeded", "Failed":
		return stateCurrent, ""
	case "Running":
		for _, c := range f.conditions() {
			if c.typ == "Ready" && c.status == "True" {
				return stateCurrent, ""
			}
		}
		if name := f.crashLooping(); name != "" {
			return stateFailed, "container " + name + " is in a crash loop"
		}
		return stateWaiting, "running, not ready"
	default:
		for _, c := range f.conditions() {
			if c.typ == "PodScheduled" && c.status == "False" && c.reason == "Unschedulable" {
				return stateFailed, c.text()
			}
		}
		return stateWaiting, "phase is " + phase
	}
}

func volumeClaimCurrent(f fields) (state, string) {
	if phase := f.str("status", "phase"); phase != "Bound" {
		return stateWaiting, "phase is " + phase
	}
	return stateCurrent, ""
}

func serviceCurrent(f fields) (state, string) {
	if f.str("spec", "type") == "LoadBalancer" && f.str("spec", "clusterIP") == "" {
		return stateWaiting, "no cluster IP yet"
	}
	return stateCurrent, ""
}

func crdCurrent(f fields) (state, string) {
	for _, c := range f.conditions() {
		switch {
		case c.typ == "NamesAccepted" && c.status == "False":
			return stateFailed, c.text()
		case c.typ == "Established" && c.status == "True":
			return stateCurrent, ""
		}
	}
	return stateWaiting, "not established"
}

// fields reads a JSON tree leniently: a missing or mistyped field is absent.
type fields struct {
	tree map[string]any
}

func fieldsOf(o ownership.Object) (fields, error) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return fields{u.Object}, nil
	}
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	return fields{m}, err
}

func (f fields) at(path ...string) any {
	var v any = f.tree
	for _, p := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[p]
	}
	return v
}

func (f fields) str(path ...string) string {
	s, _ := f.at(path...).(string)
	return s
}

func (f fields) num(path ...string) (int64, bool) {
	switch n := f.at(path...).(type) {
	case int64:
		return n, true
	case float64:
		return int64(n), true
	}
	return 0, false
}

func (f fields) numOr(def int64, path ...string) int64 {
	if n, ok := f.num(path...); ok {
		return n
	}
	return def
}

type condition struct{ typ, status, reason, message string }

func (c condition) text() string {
	if c.message == "" {
		return c.typ + " is " + c.status + " (" + c.reason + ")"
	}
	return c.message
}

func (f fields) conditions() []condition {
	list, _ := f.at("status", "conditions").([]any)
	out := make([]condition, 0, len(list))
	for _, e := range list {
		if m, ok := e.(map[string]any); ok {
			g := fields{m}
			out = append(out, condition{g.str("type"), g.str("status"), g.str("reason"), g.str("message")})
		}
	}
	return out
}

func (f fields) crashLooping() string {
	list, _ := f.at("status", "containerStatuses").([]any)
	for _, e := range list {
		if m, ok := e.(map[string]any); ok {
			if g := (fields{m}); g.str("state", "waiting", "reason") == "CrashLoopBackOff" {
				return g.str("name")
			}
		}
	}
	return ""
}
