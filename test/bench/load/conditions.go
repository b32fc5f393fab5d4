// Copyright The Ashlar Authors
// SPDX-License-Identifier: Apache-2.0

// Package load describes the workloads, so that both sides of a metric get the same one. It knows no Kubernetes type:
// the sides are built with different versions of them.
package load

import "fmt"

// Condition is a condition without its times.
type Condition struct {
	Type, Status, Reason, Message string
}

// Generation is the generation of every object.
const Generation = 7

// Root is the condition that sums the others up.
const Root = "Ready"

// Passes is how many conditions an object of the pass20 metrics has beside the root.
const Passes = 20

// Conditions returns n conditions of one status, as a controller writes them: constant reasons, one sentence each.
func Conditions(n int, status string) []Condition {
	reason, message := "AllReplicasReady", "every replica of component %d has reported in this generation"
	if status != "True" {
		reason, message = "ReplicasMissing", "2 of 3 replicas of component %d have not reported in this generation"
	}
	out := make([]Condition, n)
	for i := range out {
		out[i] = Condition{Type: TypeName(i), Status: status, Reason: reason, Message: fmt.Sprintf(message, i)}
	}
	return out
}

// TypeName is the name of the i-th condition type.
func TypeName(i int) string { return fmt.Sprintf("Component%02dReady", i) }

// Member is one object of a fleet with its root condition.
type Member struct {
	Namespace, Name string
	Ready           Condition
}

// FleetSize is the number of members of the summarize10k and tally metrics.
const FleetSize = 10_000

// Fleet returns n objects: one in a hundred is bad with one of seven messages, about one in a hundred is Unknown.
func Fleet(n int) []Member {
	out := make([]Member, n)
	for i := range out {
		c := Condition{Type: Root, Status: "True", Reason: "Applied"}
		switch {
		case i%100 == 0:
			c.Status, c.Reason, c.Message = "False", "DiskFull", fmt.Sprintf("volume %d of 7 is full", i/100%7)
		case i%101 == 0:
			c.Status, c.Reason, c.Message = "Unknown", "NoContact", "no heartbeat"
		}
		out[i] = Member{Namespace: fmt.Sprintf("tenant-%02d", i%17), Name: fmt.Sprintf("pool-%05d", i), Ready: c}
	}
	return out
}
